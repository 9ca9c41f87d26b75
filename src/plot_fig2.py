"""Figure 2: how often the user's last and last-but-one item stand in their own list."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from lastitem.errors import run
from lastitem.report import figures, tables
from lastitem.report.summaries import Bootstrap, last_item_hit_rates
from lastitem.study.runs import read_run_tables


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, summarize, draw, write the figure and the numbers behind it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", required=True, nargs="+", help="ranks.parquet of each run")
    parser.add_argument("--cutoff", required=True, type=int, help="K")
    Bootstrap.add_arguments(parser)
    figures.add_output_arguments(parser)
    arguments = parser.parse_args(argv)

    bootstrap = Bootstrap.from_arguments(arguments)
    rates = last_item_hit_rates(read_run_tables(arguments.ranks), arguments.cutoff, bootstrap)
    tables.write_csv(rates, arguments.csv)
    figures.save(figures.fig2(rates, arguments.cutoff), arguments.pdf, arguments.png)


if __name__ == "__main__":
    run(main)
