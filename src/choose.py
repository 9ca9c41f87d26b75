"""Choose among the points of a model's grid by their best validation NDCG; test data
has no part in it.
"""

import argparse
import json
import math
from collections.abc import Sequence

import pandas as pd

from lastitem.errors import InputError, run
from lastitem.files import write_json


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, compare the learning curves, write the choice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--points",
        required=True,
        type=json.loads,
        help="JSON: name of a point → its settings, in the order of the grid",
    )
    parser.add_argument(
        "--curves",
        required=True,
        nargs="+",
        help="learning curve of each point, in that order (CSV)",
    )
    parser.add_argument(
        "--seed", required=True, type=int, help="of the trainings that are compared"
    )
    parser.add_argument(
        "--out",
        required=True,
        help="output: the chosen settings and what they were compared with (JSON)",
    )
    arguments = parser.parse_args(argv)
    if len(arguments.points) != len(arguments.curves):
        raise InputError(
            f"{len(arguments.points)} points of the grid, but {len(arguments.curves)} learning"
            " curves"
        )
    found = {
        name: float(pd.read_csv(path)["validation_ndcg"].max())
        for name, path in zip(arguments.points, arguments.curves, strict=True)
    }
    if any(math.isnan(value) for value in found.values()):
        raise InputError(
            f"{' '.join(arguments.curves)}: not all hold a validation step; is the validation part"
            " empty? A grid needs one; name its settings instead"
        )
    # Of equal points the first in the grid is kept.
    best = max(found, key=found.get)
    write_json(
        arguments.out,
        {
            "point": best,
            "settings": arguments.points[best],
            "seed": arguments.seed,
            "validation_ndcg": found,
        },
    )
    print(
        f"chosen on validation: {best} of "
        + ", ".join(f"{name} ({value:.4f})" for name, value in found.items())
    )


if __name__ == "__main__":
    run(main)
