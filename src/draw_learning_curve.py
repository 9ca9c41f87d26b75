"""Draw how one training went: loss and validation NDCG by epoch, and the state that was
kept.
"""

from collections.abc import Sequence

import pandas as pd

from lastitem.arguments import add_run, parser_of, run_of
from lastitem.errors import run
from lastitem.report.drawing import save
from lastitem.report.figures import learning_curve


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, draw, write the figure."""
    parser = parser_of(
        __doc__, add_run, curve="learning_curve.csv of the run", pdf="output", png="output"
    )
    parser.add_argument("--cutoff", required=True, type=int, help="K of the validation NDCG")
    arguments = parser.parse_args(argv)
    drawn = learning_curve(pd.read_csv(arguments.curve), run_of(arguments), arguments.cutoff)
    save(drawn, arguments.pdf)
    save(drawn, arguments.png)


if __name__ == "__main__":
    run(main)
