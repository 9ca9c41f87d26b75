"""Figure 1: accuracy of ordered, partially and fully shuffled histories."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from lastitem.errors import run
from lastitem.report import figures, tables
from lastitem.report.summaries import Bootstrap, shuffle_effects
from lastitem.study.runs import read_run_tables


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, summarize, draw, write the figure and the numbers behind it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shuffle", required=True, nargs="+", help="shuffle.parquet of each run")
    parser.add_argument("--cutoff", required=True, type=int, help="K")
    Bootstrap.add_arguments(parser)
    figures.add_output_arguments(parser)
    arguments = parser.parse_args(argv)

    bootstrap = Bootstrap.from_arguments(arguments)
    effects = shuffle_effects(
        read_run_tables(arguments.shuffle), "ndcg", arguments.cutoff, bootstrap
    )
    tables.write_csv(effects, arguments.csv)
    figures.save(figures.fig1(effects, arguments.cutoff), arguments.pdf, arguments.png)


if __name__ == "__main__":
    run(main)
