"""Figure 6: the residual scale chosen on validation, the oracle, and the
tolerance ε.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pandas as pd

from lastitem.errors import run
from lastitem.report import figures, tables
from lastitem.report.summaries import Bootstrap, chosen_scales, recovery_curves, recovery_sweep
from lastitem.study.runs import read_run_tables


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, summarize, draw, write the figure and the numbers behind it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rescale", required=True, nargs="+", help="rescale.parquet of each run")
    parser.add_argument("--cutoff", required=True, type=int, help="K")
    parser.add_argument("--tolerances", required=True, nargs="+", type=float, help="ε")
    parser.add_argument(
        "--headline-tolerance", required=True, type=float, help="the ε of the panels on the left"
    )
    Bootstrap.add_arguments(parser)
    figures.add_output_arguments(parser)
    arguments = parser.parse_args(argv)

    ranks = read_run_tables(arguments.rescale)
    curves = recovery_curves(ranks, arguments.cutoff)
    choices = chosen_scales(curves, arguments.tolerances)
    along = recovery_sweep(ranks, arguments.cutoff, Bootstrap.from_arguments(arguments))
    facts = [
        along.assign(selection="along λ (test)"),
        curves.assign(selection="curve of each seed"),
        choices,
    ]
    tables.write_csv(pd.concat(facts, ignore_index=True), arguments.csv)
    figures.save(
        figures.fig6(along, choices, arguments.headline_tolerance, arguments.cutoff),
        arguments.pdf,
        arguments.png,
    )


if __name__ == "__main__":
    run(main)
