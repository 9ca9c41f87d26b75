"""Compare the accuracy of two folders of results, as before and after a change of how
models are trained.

Of each dataset, split and model the test NDCG@10 of each seed that both hold, and the
mean difference with its 95 % interval: users are paired by their original ids, averaged
over the seeds, and drawn with replacement. The interval tells nothing about other
seeds.

    python benchmarks/compare_accuracy.py before/results after/results

Prints a table as Markdown. Below it stand the models whose users are not all in both
folders (those in both are compared), and the runs whose study hashes differ, as they do
where a setting does. If a user's targets are other items in the other folder, nothing
is compared.

The exit status is 1 if an interval lies below 0, and 2 if nothing can be compared.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from lastitem.errors import InputError
from lastitem.evaluation.metrics import per_user
from lastitem.report.uncertainty import bootstrap_ratio

CUTOFF, RESAMPLES = 10, 10_000
#: Where the ranks of a run lie in a folder of results.
RUNS = "*/*/*/seed=*/ranks.parquet"


def runs_in(results: Path) -> set[Path]:
    """The runs of a folder of results: dataset/split/model/seed=….

    Raises
    ------
    InputError if there is none; it says what to name instead.
    """
    if not results.exists():
        raise InputError(f"{results}: no such folder; name the results folder of a study")
    if not results.is_dir():
        raise InputError(f"{results}: a file; name the results folder of a study")
    found = {path.parent.relative_to(results) for path in results.glob(RUNS)}
    if not found:
        inside = any((results / "results").glob(RUNS))
        meant = f", {results / 'results'}" if inside else ", which holds DATASET/SPLIT/MODEL/seed=…"
        raise InputError(f"{results}: no run in it; name the results folder itself{meant}")
    return found


def original_ids(results: Path, dataset: str, of: str) -> pd.Series:
    """Code → original id of the users or items (``of``) of a dataset."""
    path = results / dataset / "core" / f"{of}s.parquet"
    if not path.is_file():
        raise InputError(f"{path} is missing: it tells who is who; copy it, or make it again")
    return pd.read_parquet(path).set_index(of)[f"{of}_id"]


def of_users(results: Path, run: Path) -> pd.DataFrame:
    """Original user id → mean NDCG of the user's cases, and their targets' ids."""
    path = results / run / "ranks.parquet"
    ranks = pd.read_parquet(path, columns=["user", "target", "target_rank"])
    users, items = (original_ids(results, run.parts[0], of) for of in ("user", "item"))
    cases = pd.DataFrame(
        {
            "user": ranks["user"].map(users),
            "ndcg": per_user("ndcg", ranks["target_rank"].to_numpy(), CUTOFF),
            "targets": ranks["target"].map(items),
        }
    )
    if cases.isna().any(axis=None):
        raise InputError(f"{path}: some users or items are not in the core folder beside it")
    return cases.groupby("user", sort=False).agg({"ndcg": "mean", "targets": tuple})


def study_of(run: Path) -> str:
    """The hash of the settings behind a training, which its learning curve carries."""
    path = run / "learning_curve.csv"
    if not path.is_file():
        return "unknown"
    with path.open(encoding="utf-8", newline="") as stream:
        known = {row.get("study") or "unknown" for row in csv.DictReader(stream)}
    return " ".join(sorted(known)) or "unknown"


def paired(before: Path, after: Path, runs: Sequence[Path]) -> tuple[np.ndarray, list[int]]:
    """NDCG before and after of the users that are in both folders with each seed: [2,
    users, seeds]; and how many users there are before, and after.

    Raises
    ------
    InputError if no user is in both, or one of them has other targets.
    """
    pairs = [(of_users(before, run), of_users(after, run)) for run in runs]
    # In the order of the first folder: draws, and so the interval, depend on it.
    shared = pairs[0][0].index
    for frame in (frame for pair in pairs for frame in pair):
        shared = shared[shared.isin(frame.index)]
    if shared.empty:
        raise InputError(f"{runs[0]}: no user of {before} is in {after}; nothing to pair")
    for run, (old, new) in zip(runs, pairs, strict=True):
        differs = old.loc[shared, "targets"] != new.loc[shared, "targets"]
        if differs.any():
            user = shared[differs.argmax()]
            raise InputError(
                f"{run}: {differs.sum():,} of {len(shared):,} users have other targets in {after}"
                f" than in {before}, so they are not comparable; first user {user!r}:"
                f" {_listed(old.at[user, 'targets'])} and {_listed(new.at[user, 'targets'])}"
            )
    values = [
        np.stack([pair[side].loc[shared, "ndcg"] for pair in pairs], axis=1) for side in (0, 1)
    ]
    sizes = [len(set().union(*(pair[side].index for pair in pairs))) for side in (0, 1)]
    return np.stack(values), sizes


def _listed(items: Sequence[Any]) -> str:
    shown = ", ".join(map(repr, items[:3]))
    return shown if len(items) <= 3 else f"{shown}, …"


def compared(before: Path, after: Path) -> tuple[pd.DataFrame, list[str]]:
    """A row for each dataset, split and model that both folders hold; and what is to be
    known beside.
    """
    there = [runs_in(results) for results in (before, after)]
    both = sorted(there[0] & there[1])
    if not both:
        held = "; ".join(
            f"{results}: {', '.join(map(str, sorted(runs)))}"
            for results, runs in zip((before, after), there, strict=True)
        )
        raise InputError(f"{before} and {after} hold no run of the same name ({held})")
    rows, notes = [], []
    for model in dict.fromkeys(run.parent for run in both):
        runs = [run for run in both if run.parent == model]
        (old, new), sizes = paired(before, after, runs)
        gain = (new.mean(axis=1) - old.mean(axis=1))[:, None]
        low, high = bootstrap_ratio(gain, np.ones_like(gain), resamples=RESAMPLES, seed=0)
        rows.append(
            {
                "log": ", ".join(model.parts[:2]),
                "model": model.parts[2],
                "seeds": ", ".join(run.name.removeprefix("seed=") for run in runs),
                "users": len(gain),
                "before": ", ".join(f"{value:.4f}" for value in old.mean(axis=0)),
                "after": ", ".join(f"{value:.4f}" for value in new.mean(axis=0)),
                "difference": f"{gain.mean():+.4f} [{low[0]:+.4f}, {high[0]:+.4f}]",
                "high": high[0],
            }
        )
        if max(sizes) > len(gain):
            notes.append(
                f"{model}: {len(gain):,} users are in both, of {sizes[0]:,} before and"
                f" {sizes[1]:,} after"
            )
        for run in runs:
            studies = study_of(before / run), study_of(after / run)
            if studies[0] != studies[1]:
                notes.append(f"{run}: study {studies[0]} before, {studies[1]} after")
    return pd.DataFrame(rows), notes


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, compare, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="a folder of results")
    parser.add_argument("after", type=Path, help="another")
    arguments = parser.parse_args(argv)
    try:
        table, notes = compared(arguments.before, arguments.after)
    except InputError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 2
    print(table.drop(columns="high").to_markdown(index=False, disable_numparse=True))
    if notes:
        print("", *notes, sep="\n")
    return int((table["high"] < 0).any())


if __name__ == "__main__":
    sys.exit(main())
