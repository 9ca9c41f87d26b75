"""config/check.yaml from end to end: statistics and splits against a literal pandas
implementation, written here.

Always on generated logs; on the real ones (Beauty, Toys) where they lie in data/, which
git ignores. There Table 1 must equal the paper's.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from .conftest import ROOT, copy_project, snakemake

NAMES = ("beauty", "toys")


def generate(path: Path, seed: int) -> None:
    """A log with many ties, heavy tails, repeats and ids that are whole numbers."""
    random = np.random.default_rng(seed)
    count = 30_000
    log = pd.DataFrame(
        {
            "user_id": (2000 * random.random(count) ** 2).astype(int) + 5,
            "item_id": (900 * random.random(count) ** 2).astype(int) + 95,
            "timestamp": 86_400 * (15_000 + 9 * (50 * random.random(count) ** 0.5).astype(int)),
        }
    )
    log.to_csv(path, index=False)


def core_by_pandas(log: pd.DataFrame, p: int = 5) -> pd.DataFrame:
    """The p-core with ties by item id; ids replaced by user and item codes."""
    log = log.sort_values(["user_id", "timestamp", "item_id"])
    while True:
        repeats = log.groupby("user_id")["item_id"].shift() == log["item_id"]
        kept = log[~repeats]
        kept = kept[kept.groupby("user_id")["item_id"].transform("count") >= p]
        kept = kept[kept.groupby("item_id")["user_id"].transform("count") >= p]
        if len(kept) == len(log):
            break
        log = kept
    return log.assign(
        user=log["user_id"].rank(method="dense").astype(int) - 1,
        item=log["item_id"].rank(method="dense").astype(int),
    )


def temporal_cut(log: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Events up to the 0.9 quantile, of users with two of them; and the whole sequences
    of users with a later one.
    """
    threshold = log["timestamp"].quantile(0.9)
    early = log[log["timestamp"] <= threshold]
    early = early[early.groupby("user")["item"].transform("count") >= 2]
    return early, log[log.groupby("user")["timestamp"].transform("max") > threshold]


def split_by_pandas(core: pd.DataFrame, kind: str) -> dict[str, pd.DataFrame]:
    """Train events, and the sequences whose last event is the target of validation and
    test.
    """
    if kind == "gts":
        early, test = temporal_cut(core)
        train, validation = temporal_cut(early)
    else:
        from_end = core.groupby("user").cumcount(ascending=False)
        train, validation, test = core[from_end >= 2], core[from_end >= 1], core
    held_out = {"validation": validation, "test": test}
    return {"train": train} | {
        name: part[part.groupby("user")["item"].transform("count") >= 2]
        for name, part in held_out.items()
    }


@pytest.fixture(scope="module", params=["generated", "real"])
def checked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has run config/check.yaml as far as the splits."""
    project = copy_project(tmp_path_factory.mktemp("check") / "project")
    for seed, name in enumerate(NAMES):
        place = project / "data" / f"{name}.csv.gz"
        if request.param == "generated":
            generate(place, seed)
        elif (ROOT / "data" / place.name).is_file():
            shutil.copy(ROOT / "data" / place.name, place)
        else:
            pytest.skip(
                f"data/{place.name} is not there: put it there to check the published statistics,"
                " see config/check.yaml"
            )
    if request.param == "real":
        (project / "real").touch()
    targets = [
        "results/table1.csv",
        *(f"results/{name}/{kind}/split.json" for name in NAMES for kind in ("gts", "loo")),
    ]
    done = snakemake(project, *targets, configfile="config/check.yaml")
    assert done.returncode == 0, done.stdout[-4000:]
    for name in NAMES:
        assert f"{name}: kept" in done.stdout and f"{name}: warning: " in done.stdout
    return project


@pytest.mark.parametrize("name", NAMES)
def test_the_core_and_its_statistics(checked: Path, name: str):
    core = core_by_pandas(pd.read_csv(checked / "data" / f"{name}.csv.gz"))
    found = pd.read_parquet(checked / "results" / name / "core/interactions.parquet")
    assert (
        found[["user", "item", "timestamp"]].to_numpy().tolist()
        == core[["user", "item", "timestamp"]].to_numpy().tolist()
    )
    table = pd.read_csv(checked / "results/table1.csv").query("dataset == @name")
    row = table.query("source == 'measured'").iloc[0]
    days = (core["timestamp"].max() - core["timestamp"].min()) // 86_400
    assert row[["users", "items", "interactions", "days"]].tolist() == [
        core["user"].nunique(),
        core["item"].nunique(),
        len(core),
        days,
    ]
    if (checked / "real").exists():
        paper = table.query("source == 'paper'").iloc[0]
        assert (
            row[["users", "items", "interactions", "days"]].tolist()
            == paper[["users", "items", "interactions", "days"]].tolist()
        )
        assert (round(row["avg_length"], 1), round(row["density_percent"], 2)) == (
            paper["avg_length"],
            paper["density_percent"],
        )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["gts", "loo"])
def test_the_splits(checked: Path, name: str, kind: str):
    core = core_by_pandas(pd.read_csv(checked / "data" / f"{name}.csv.gz"))
    for part, expected in split_by_pandas(core, kind).items():
        found = pd.read_parquet(checked / "results" / name / kind / f"{part}.parquet").set_index(
            "user"
        )
        for column, listed in (("item", "items"), ("timestamp", "timestamps")):
            assert {
                user: values.tolist() for user, values in found[listed].items()
            } == expected.groupby("user")[column].agg(list).to_dict()
        if part != "train":
            assert [targets.tolist() for targets in found["targets"]] == [
                [count - 1] for count in expected.groupby("user").size()
            ]
