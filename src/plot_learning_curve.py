"""Draw how one training went: loss and validation NDCG by epoch, and the state that was
kept.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pandas as pd

from lastitem.arguments import add_run, run_of
from lastitem.errors import run
from lastitem.report import figures


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, draw, write the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_run(parser)
    parser.add_argument("--curve", required=True, help="learning_curve.csv of the run")
    parser.add_argument("--cutoff", required=True, type=int, help="K of the validation NDCG")
    parser.add_argument("--pdf", required=True, help="output")
    parser.add_argument("--png", required=True, help="output")
    arguments = parser.parse_args(argv)
    this = run_of(arguments)
    figures.save(
        figures.learning_curve(pd.read_csv(arguments.curve), this, arguments.cutoff),
        arguments.pdf,
        arguments.png,
    )


if __name__ == "__main__":
    run(main)
