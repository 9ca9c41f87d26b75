"""Whole runs of other studies on the tiny log: a grid, ties, left-out runs, one model
alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from .conftest import copy_project, environment, planned_rules, snakemake


def test_a_grid_is_chosen_on_validation_with_the_first_seed(changed: Path):
    """Each point trained once, the best on validation taken: its own model for the
    first seed, its settings for the others.
    """
    grid = "model_settings={gru4rec: {grid: {hidden_size: [4, 8], dropout: [%s]}}}"
    larger, arguments = (
        (
            "results/table2.csv",
            "--config",
            grid % rates,
            "seeds=[3,4]",
            "models=[gru4rec]",
            "baselines=[]",
        )
        for rates in ("0.0, 0.5", "0.5")
    )
    for settings, points in ((larger, 4), (arguments, 2)):
        planned = planned_rules(snakemake(changed, "-n", *settings).stdout)
        assert (planned["train_grid_point"], planned["choose"], planned["train"]) == (points, 1, 2)
    done = snakemake(changed, *arguments)
    assert done.returncode == 0, done.stdout[-4000:]
    model = changed / "results/tiny/loo/gru4rec"
    choice = json.loads((model / "choice.json").read_text(encoding="utf-8"))
    curves = {
        path.parts[-3]: pd.read_csv(path)["validation_ndcg"].max()
        for path in model.glob("grid/*/seed=3/learning_curve.csv")
    }
    assert choice["validation_ndcg"] == pytest.approx(curves) and len(curves) == 2
    assert choice["point"] == max(
        choice["validation_ndcg"], key=lambda name: choice["validation_ndcg"][name]
    )
    taken = model / "grid" / choice["point"] / "seed=3/model.safetensors"
    assert taken.read_bytes() == (model / "seed=3/model.safetensors").read_bytes()
    other = json.loads((model / "seed=4/model.json").read_text(encoding="utf-8"))["settings"]
    assert {key: other[key] for key in choice["settings"]} == choice["settings"]
    assert planned_rules(snakemake(changed, "-n", *arguments).stdout) == {}


def test_a_grid_without_gradients_is_chosen_on_validation(changed: Path):
    """As that of a trained model; beside the other yardsticks, and with a curve."""
    model = "results/tiny/loo/item-knn-chosen"
    done = snakemake(
        changed,
        "results/table2.csv",
        f"{model}/seed=4/learning_curve.png",
        "--config",
        "baselines=[markov, item-knn, item-knn-1, item-knn-chosen]",
        "seeds=[3,4]",
        "models=[gru4rec]",
    )
    assert done.returncode == 0, done.stdout[-4000:]
    choice = json.loads((changed / model / "choice.json").read_text(encoding="utf-8"))
    assert choice["point"] == "newest=1", "most users go on to the next item"
    assert choice["validation_ndcg"]["newest=1"] == max(choice["validation_ndcg"].values())
    table = pd.read_csv(changed / "results/table2.csv").query("metric == 'ndcg' and cutoff == 10")
    found = table.set_index("model")["value"]
    assert found["item-knn-chosen"] == found["item-knn-1"] > found["item-knn"]
    assert found["markov"] == found.max()


def test_a_study_without_an_answer_to_some_questions_completes(changed: Path):
    """No attention: tables say n/a, figures say why they are empty. (No earlier
    prediction to go back to: the study that is killed at any moment.)
    """
    done = snakemake(changed, "all", "--config", "models=[gru4rec]", "baselines=[]")
    assert done.returncode == 0, done.stdout[-4000:]
    assert "| gru4rec" in (changed / "results/table4.md").read_text(encoding="utf-8")


def test_a_study_with_interventions_of_ones_own(changed: Path):
    """What needs others is n/a or absent; no model is trained."""
    own = ("all", "--config", "interventions=[partial, last_only]")
    assert "train" not in planned_rules(snakemake(changed, "-n", *own).stdout)
    done = snakemake(changed, *own)
    assert done.returncode == 0, done.stdout[-4000:]
    results = changed / "results"
    shown = pd.read_csv(results / "fig8.csv").query("reading == 'change'")
    assert set(shown["part"]) == {"partial", "last_only"}
    holds = pd.read_csv(results / "claims.csv", keep_default_na=False).set_index("claim")["holds"]
    for claim in ("what it uses", "last item only", "order matters"):
        assert set(holds[claim]) == {"n/a"}
    assert "n/a" not in set(holds["order before the last"])
    page = (results / "index.html").read_text(encoding="utf-8")
    answers = re.findall(r'<article class="answer">.*?</article>', page, re.DOTALL)
    assert len(answers) == 3 and not re.search(r"\bnan\b", page)
    for answer in answers:
        assert "These data do not tell which part of the history it uses" in answer
        assert "no items before the last" in answer and "another user&#39;s" not in answer


def test_the_tie_order_study(changed: Path):
    """The log with two orders of its ties and one of its own file: three cores of one
    download, own trainings, table5 and fig7.
    """
    log = pd.read_csv(changed / "data/tiny log.csv")
    log.assign(when=log["when"] // 200 * 200).to_csv(changed / "data/tiny log.csv", index=False)
    study = "tie_order={datasets: [tiny], splits: [loo], models: [sasrec], draws: 2}"
    arguments = ("results/table5.csv", "results/fig7.pdf", "--config", study, "map_positions=4")
    planned = planned_rules(snakemake(changed, "-n", *arguments).stdout)
    assert {name: planned[name] for name in ("download", "core_filter", "train")} == {
        "download": 1,
        "core_filter": 3,
        "train": 3,
    }
    done = snakemake(changed, *arguments)
    assert done.returncode == 0, done.stdout[-4000:]
    table = pd.read_csv(changed / "results/table5.csv")
    assert set(table["dataset"]) == {"tiny"} and len(table) == 3 * 3 * 5, (
        "each order, and their difference"
    )
    assert table.groupby("ties")["trainings"].unique().map(list).to_dict() == {
        "item": [1],
        "random": [2],
        "item - random": [3],
    }
    cores = {
        name: pd.read_parquet(changed / f"results/tiny.ties-{name}/core/interactions.parquet")
        for name in ("item", "random-1", "random-2")
    }
    assert len({tuple(core["item"]) for core in cores.values()}) == 3, "three orders"
    assert (
        len(
            {tuple(sorted(zip(core["user"], core["item"], strict=True))) for core in cores.values()}
        )
        == 1
    ), "of the same events"


def test_runs_that_are_left_out(changed: Path):
    """`exclude` is heeded by training, tables and figures; what is left of an uneven
    study completes.
    """
    left_out = "exclude=[{model: gru4rec, split: gts}, {model: [sasrec, popularity], seed: 4}]"
    arguments = (
        "all",
        "--config",
        "splits=[loo, gts]",
        "seeds=[3,4]",
        "models=[sasrec, gru4rec]",
        "baselines=[popularity]",
        left_out,
    )
    assert planned_rules(snakemake(changed, "-n", *arguments).stdout)["train"] == 6 - 3, (
        "three are there from the study before"
    )
    done = snakemake(changed, *arguments)
    assert done.returncode == 0, done.stdout[-4000:]
    table = pd.read_csv(changed / "results/table2.csv").query("metric == 'ndcg' and cutoff == 10")
    wanted = {
        ("loo", "sasrec"): 1,
        ("gts", "sasrec"): 1,
        ("loo", "gru4rec"): 2,
        ("loo", "popularity"): 1,
        ("gts", "popularity"): 1,
    }
    assert table.set_index(["split", "model"])["trainings"].to_dict() == wanted
    bars = pd.read_csv(changed / "results/fig1.csv")
    assert set(zip(bars["split"], bars["model"], strict=True)) == {*wanted}


def test_another_users_read_only_copy_works_in_a_folder_of_ones_own(finished: Path, tmp_path: Path):
    """`--snakefile` and `--directory`: nothing is written beside the sources, and the
    numbers are the same.
    """
    source, folder = copy_project(tmp_path / "source é"), tmp_path / "own folder"
    folder.mkdir()
    (source / "data").rename(folder / "data")
    (source / "tiny.yaml").rename(folder / "tiny.yaml")
    before = {path: path.stat().st_mtime_ns for path in source.rglob("*")}
    subprocess.run(["chmod", "-R", "a-w", str(source)], check=True)
    command = [
        "snakemake",
        "--snakefile",
        str(source / "Snakefile"),
        "--directory",
        str(folder),
        "--configfile",
        str(folder / "tiny.yaml"),
    ]
    if os.geteuid() == 0:
        # Root writes anywhere, unless it gives that up and the files are another
        # user's.
        subprocess.run(["chown", "-R", "65534", str(source)], check=True)
        command = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", *command]
    run = "results/tiny/loo/sasrec/seed=3"
    targets = ["results/table1.csv", f"{run}/interventions.parquet", f"{run}/learning_curve.pdf"]
    done = subprocess.run(
        [*command, "--", *targets],
        cwd=folder,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    subprocess.run(["chmod", "-R", "u+w", str(source)], check=True)
    assert done.returncode == 0, done.stdout[-4000:]
    for target in targets:
        assert (folder / target).read_bytes() == (finished / target).read_bytes()
    assert {path: path.stat().st_mtime_ns for path in source.rglob("*")} == before
