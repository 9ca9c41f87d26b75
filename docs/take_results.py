"""Copy what the docs say of a study out of its worths.csv into docs/results/.

    python docs/take_results.py RESULTS NAME

Of single groups (tied targets, lengths of input) the account is kept; versions stand in
the study's own file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

KEPT = Path(__file__).parent / "results"


def main(results: str, name: str) -> None:
    """Read, select, write."""
    facts = pd.read_csv(Path(results) / "worths.csv", keep_default_na=False, dtype=str)
    told = (facts["group"] == "all") | (facts["reading"] == "account")
    shown = facts[told & (facts["reading"] != "cases with a hit")]
    KEPT.mkdir(exist_ok=True)
    shown.drop(columns="versions").to_csv(KEPT / f"{name}.csv", index=False, lineterminator="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
