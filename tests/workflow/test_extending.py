"""docs/extending.md followed to the letter: its files made, its lines added, its
commands and its tests run.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from .conftest import ROOT, copy_finished, environment, planned_rules, snakemake

PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
#: How the page says where a block belongs.
PLACES = (
    r"New file `(?P<new>[^`]+)`:"
    r"|At the end of `(?P<end>[^`]+)`:"
    r"|(?P<where>Behind|Before) `(?P<line>[^`]+)` in `(?P<inside>[^`]+)`:"
)
STUDY = ("--configfile", "tiny.yaml", "mine.yaml")


def follow(project: Path, part: str) -> list[str]:
    """Do what a part of the page says; the names of the files it makes."""
    text = re.search(rf"^## {part}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert text, f"the page has no part {part!r}"
    made = []
    for place in re.finditer(rf"(?:{PLACES})\n\n```\w*\n(?P<block>.*?)```", text[1], re.DOTALL):
        file = project / (place["new"] or place["end"] or place["inside"])
        if place["new"]:
            made.append(place["new"])
            file.parent.mkdir(exist_ok=True)
            file.write_text(place["block"], encoding="utf-8")
            continue
        before = file.read_text(encoding="utf-8")
        if place["end"]:
            after = f"{before.rstrip()}\n\n\n{place['block']}"
        else:
            lines = before.splitlines(keepends=True)
            (at,) = (n for n, line in enumerate(lines) if line.strip() == place["line"])
            lines.insert(at + (place["where"] == "Behind"), place["block"])
            after = "".join(lines)
        file.write_text(after, encoding="utf-8")
    assert made
    return made


@pytest.fixture(scope="module")
def project(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the finished study, with the tests."""
    copy = copy_finished(finished, tmp_path_factory.mktemp("extended") / "copy")
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def run_tests(project: Path, *files: str) -> None:
    """Run tests of the copy, in the copy."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider"]
    paths = {**environment(), "PYTHONPATH": str(project)}
    done = subprocess.run(
        [*command, *files], cwd=project, env=paths, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-4000:]


def test_the_page_can_be_followed(project: Path):
    """A model and a baseline are trained, and nothing else is; the new model knows no
    order; the new diagnostic and figure are made of runs of both models; the tests of
    the page pass, and those of what it touched.
    """
    made = follow(project, "A model") + follow(project, "A baseline without gradients")
    planned = snakemake(project, "-n", "all", *STUDY, configfile=None)
    assert planned.returncode == 0, planned.stdout[-4000:]
    rules = planned_rules(planned.stdout)
    counts = {"train": 2, "evaluate": 2, "intervene": 2, "decompose": 1, "rescale": 1}
    assert {name: rules.get(name) for name in counts} == counts
    trained = re.findall(r"^    output: (\S+)/model.safetensors", planned.stdout, re.MULTILINE)
    assert set(trained) == {f"results/tiny/loo/{name}/seed=3" for name in ("average", "successors")}

    made += follow(project, "A diagnostic") + follow(project, "A figure")
    planned = snakemake(project, "-n", "all", *STUDY, configfile=None)
    assert planned_rules(planned.stdout).get("train") == 2, planned.stdout[-4000:]
    # Six bars of the default study are gone: the tiny one names its models anew.
    done = snakemake(project, "all", "results/history.pdf", "--cores", "2", *STUDY, configfile=None)
    assert done.returncode == 0, done.stdout[-4000:]

    effects = pd.read_csv(project / "results/fig1.csv")
    effects = effects[(effects["reading"] == "change") & effects["part"].isin(["partial", "full"])]
    assert effects.query("model == 'average'")["value"].abs().max() < 1
    mixing = pd.read_csv(project / "results/table3.csv").query("model == 'average'")
    assert mixing["note"].str.startswith("n/a").all()
    accuracy = pd.read_csv(project / "results/table2.csv").query("metric == 'ndcg'")
    assert {"average", "successors"} <= set(accuracy["model"])
    history = pd.read_csv(project / "results/history.csv")
    assert set(history["model"]) == {"sasrec", "average"}
    assert history.groupby("newest")["users"].max().to_dict() == dict.fromkeys((1, 2, 5, 20), 40)
    page = (project / "results/index.html").read_text(encoding="utf-8")
    assert "history: History needed" in page

    made += follow(project, "An intervention")
    study = (*STUDY[:-1], "backwards.yaml")
    planned = snakemake(project, "-n", "all", *study, configfile=None)
    rules = planned_rules(planned.stdout)
    assert {"intervene", "worths", "fig8", "page"} <= set(rules), planned.stdout[-4000:]
    assert not {"download", "core_filter", "split", "train", "evaluate", "decompose"} & set(rules)
    done = snakemake(project, "results/fig8.pdf", "results/worths.csv", *study, configfile=None)
    assert done.returncode == 0, done.stdout[-4000:]
    worths = pd.read_csv(project / "results/worths.csv").query("part == 'backwards'")
    changes = worths[(worths["reading"] == "change") & (worths["group"] == "all")]
    assert set(changes["model"]) == {"sasrec", "gru4rec", "bert4rec", "popularity", "markov"}
    unmoved = changes["model"].isin(["popularity", "markov"])
    assert (changes.loc[unmoved, "value"] == 0).all() and changes["value"].any()
    assert "earlier items backwards" in (project / "results/worths.md").read_text(encoding="utf-8")

    tests = [name for name in made if name.startswith("tests/")]
    touched = ("report/test_summaries", "report/test_figures", "evaluation/test_interventions")
    run_tests(project, *tests, *(f"tests/{name}.py" for name in touched))
