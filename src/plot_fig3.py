"""Figure 3: attention map beside AttnResLN map over the newest positions."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from lastitem.errors import run
from lastitem.report import figures, tables
from lastitem.report.summaries import average_maps
from lastitem.study.runs import read_run_tables


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, summarize, draw, write the figure and the numbers behind it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--maps", required=True, nargs="+", help="maps.parquet of each run")
    figures.add_output_arguments(parser)
    arguments = parser.parse_args(argv)

    maps = average_maps(read_run_tables(arguments.maps))
    tables.write_csv(maps, arguments.csv)
    figures.save(figures.fig3(maps), arguments.pdf, arguments.png)


if __name__ == "__main__":
    run(main)
