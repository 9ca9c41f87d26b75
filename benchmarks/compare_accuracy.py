"""Compare the accuracy of two folders of results, as before and after a change of how
models are trained.

Of each dataset, split and model the test NDCG@10 of each seed that both hold, and the
mean difference with its 95 % interval: users are paired, averaged over the seeds, and
drawn with replacement. The interval tells nothing about other seeds.

    python benchmarks/compare_accuracy.py before/results after/results

Prints a table as Markdown; the exit status is 1 if an interval lies below 0.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from lastitem.evaluation.metrics import per_user
from lastitem.report.uncertainty import bootstrap_ratio

CUTOFF, RESAMPLES = 10, 10_000


def of_users(path: Path) -> pd.Series:
    """User → mean NDCG of its cases."""
    ranks = pd.read_parquet(path, columns=["user", "target_rank"])
    value = per_user("ndcg", ranks["target_rank"].to_numpy(), CUTOFF)
    return pd.Series(value).groupby(ranks["user"].to_numpy()).mean()


def compared(before: Path, after: Path) -> pd.DataFrame:
    """A row for each dataset, split and model that both folders hold."""
    rows = []
    folders = sorted({path.parents[1] for path in before.glob("*/*/*/seed=*/ranks.parquet")})
    for folder in folders:
        there = after / folder.relative_to(before)
        seeds = sorted(
            path.parent.name
            for path in folder.glob("seed=*/ranks.parquet")
            if (there / path.parent.name / path.name).is_file()
        )
        if not seeds:
            continue
        old, new = (
            pd.concat([of_users(place / seed / "ranks.parquet") for seed in seeds], axis=1)
            for place in (folder, there)
        )
        if not old.index.equals(new.index):
            sys.exit(f"{folder} and {there} have other users: nothing to pair")
        gain = (new.mean(axis=1) - old.mean(axis=1)).to_numpy()[:, None]
        low, high = bootstrap_ratio(gain, np.ones_like(gain), resamples=RESAMPLES, seed=0)
        dataset, split, model = folder.parts[-3:]
        rows.append(
            {
                "log": f"{dataset}, {split}",
                "model": model,
                "seeds": ", ".join(seed.removeprefix("seed=") for seed in seeds),
                "users": len(gain),
                "before": ", ".join(f"{value:.4f}" for value in old.mean()),
                "after": ", ".join(f"{value:.4f}" for value in new.mean()),
                "difference": f"{gain.mean():+.4f} [{low[0]:+.4f}, {high[0]:+.4f}]",
                "high": high[0],
            }
        )
    return pd.DataFrame(rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, compare, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="a folder of results")
    parser.add_argument("after", type=Path, help="another")
    arguments = parser.parse_args(argv)
    table = compared(arguments.before, arguments.after)
    if table.empty:
        sys.exit(f"{arguments.before} and {arguments.after} hold no run of the same name")
    print(table.drop(columns="high").to_markdown(index=False, disable_numparse=True))
    return int((table["high"] < 0).any())


if __name__ == "__main__":
    sys.exit(main())
