"""Figure 7: what the order of events with equal time does to every headline measure."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from lastitem.errors import run
from lastitem.report import figures, tables
from lastitem.report.summaries import Bootstrap
from lastitem.report.tie_order import tie_order_effects
from lastitem.study.runs import add_user_arguments, read_run_tables, read_user_ids


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, summarize, draw, write the figure and the numbers behind it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--ranks", required=True, nargs="+", help="ranks.parquet of each run of the tie-order study"
    )
    parser.add_argument(
        "--shuffle", required=True, nargs="+", help="shuffle.parquet of each of them"
    )
    add_user_arguments(parser)
    parser.add_argument(
        "--permutations", required=True, type=int, help="random choices of each test"
    )
    parser.add_argument("--cutoff", required=True, type=int, help="K")
    Bootstrap.add_arguments(parser)
    figures.add_output_arguments(parser)
    arguments = parser.parse_args(argv)

    ranks, shuffled = read_run_tables(arguments.ranks), read_run_tables(arguments.shuffle)
    ids = read_user_ids(arguments.datasets, arguments.users)
    bootstrap = Bootstrap.from_arguments(arguments)
    found = tie_order_effects(
        ranks, shuffled, ids, arguments.cutoff, bootstrap, arguments.permutations
    )
    tables.write_csv(found, arguments.csv)
    figures.save(figures.fig7(found, arguments.cutoff), arguments.pdf, arguments.png)


if __name__ == "__main__":
    run(main)
