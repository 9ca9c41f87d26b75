"""docs/extending.md followed to the letter: its changes applied, its commands run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pandas as pd

from .conftest import ROOT, copy_project, snakemake


def test_the_page_can_be_followed(tmp_path: Path):
    """The new model goes through training and every diagnostic and knows no order; the
    new diagnostic reads a run of it.
    """
    project = copy_project(tmp_path / "project")
    page = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    for change in re.findall(r"```diff\n(.*?)```", page, re.DOTALL):
        subprocess.run(["git", "apply", "-"], cwd=project, input=change, text=True, check=True)
    (project / "average.yaml").write_text(
        re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0], encoding="utf-8"
    )
    figure, truncated = (line.split() for line in re.findall(r"^snakemake .*", page, re.MULTILINE))
    target = (
        truncated[1]
        .replace("ml-100k", "tiny")
        .replace("sasrec", "average")
        .replace("seed=1", "seed=3")
    )
    done = snakemake(
        project,
        figure[1],
        "results/table3.csv",
        target,
        "--configfile",
        "tiny.yaml",
        "average.yaml",
        configfile=None,
    )
    assert done.returncode == 0, done.stdout[-4000:]

    effects = pd.read_csv(project / "results/fig1.csv").query("measure == 'change_percent'")
    assert set(effects["model"]) == {"average"} and set(effects["order"]) == {
        "ordered",
        "partial",
        "full",
    }
    assert effects["value"].abs().max() < 1
    assert pd.read_csv(project / "results/table3.csv")["note"].str.startswith("n/a").all()
    found = pd.read_parquet(project / target)
    assert found.groupby("newest")["user"].nunique().to_dict() == dict.fromkeys((1, 2, 5, 20), 40)
    assert not found.query("newest == 1")["target_rank"].equals(
        found.query("newest == 20")["target_rank"]
    )
