"""Figure 4: residual scale against last-item hit rate and mixing ratio."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pandas as pd

from lastitem.errors import run
from lastitem.report import figures, tables
from lastitem.report.summaries import Bootstrap, mixing_at_readout, sweep
from lastitem.study.runs import read_run_tables


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, summarize, draw, write the figure and the numbers behind it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rescale", required=True, nargs="+", help="rescale.parquet of each run")
    parser.add_argument(
        "--mixing", required=True, nargs="+", help="rescale_mixing.parquet of each run"
    )
    parser.add_argument("--cutoff", required=True, type=int, help="K")
    Bootstrap.add_arguments(parser)
    figures.add_output_arguments(parser)
    arguments = parser.parse_args(argv)

    bootstrap = Bootstrap.from_arguments(arguments)
    curves = sweep(read_run_tables(arguments.rescale), arguments.cutoff, bootstrap)
    mixing = mixing_at_readout(read_run_tables(arguments.mixing), bootstrap, ["residual_scale"])
    tables.write_csv(
        pd.concat([curves, mixing.assign(measure="mixing ratio")], ignore_index=True), arguments.csv
    )
    figures.save(figures.fig4(curves, mixing, arguments.cutoff), arguments.pdf, arguments.png)


if __name__ == "__main__":
    run(main)
