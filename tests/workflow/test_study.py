"""The whole workflow, run for real: what its results are and say."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
import yaml

from lastitem.report.names import shown_name
from lastitem.report.verdicts import SPOKEN_OF

from ..report.typesetting import typeset
from .conftest import ROOT, copy_project, environment, planned_rules, snakemake

TABLE_NAMES = [*(f"table{number}" for number in range(1, 5)), "worths", "comparisons", "claims"]
#: fig7 is of the tie-order study.
FIGURE_NAMES = [f"fig{number}" for number in (*range(1, 7), 8)]
TABLES = [
    f"results/{name}.{ending}" for name in TABLE_NAMES for ending in ("csv", "md", "tex", "json")
]
FIGURES = [
    f"results/{name}.{ending}" for name in FIGURE_NAMES for ending in ("pdf", "png", "svg", "csv")
]


SIDES = ["value", "ci_low", "ci_high"]


def test_all_outputs_are_there_and_a_second_run_does_nothing(finished: Path):
    """Though the path holds a space and an é, the log's name a space, the ids both."""
    for path in TABLES + FIGURES:
        assert (finished / path).stat().st_size > 0, path
    again = snakemake(finished, "all")
    assert again.returncode == 0 and "Nothing to be done" in again.stdout


def test_results_say_what_they_stand_on(finished: Path):
    """Table 1 agrees with the log that was written; n, seeds and spread are in every
    table's facts.
    """
    log = pd.read_csv(finished / "data/tiny log.csv")
    row = pd.read_csv(finished / "results/table1.csv").iloc[0]
    assert (row["users"], row["items"], row["interactions"]) == (
        log["who"].nunique(),
        log["what"].nunique(),
        len(log),
    )
    accuracy = pd.read_csv(finished / "results/table2.csv")
    assert set(accuracy["model"]) == {"sasrec", "gru4rec", "bert4rec", "popularity", "markov"}
    assert (accuracy["users"] == 40).all() and (accuracy["trainings"] == 1).all()
    assert (
        accuracy.loc[accuracy["metric"] != "coverage", ["ci_low", "ci_high"]].notna().all(axis=None)
    )
    users = pyarrow.parquet.read_table(finished / "results/tiny/core/users.parquet").to_pydict()
    assert set(users["user_id"]) == set(log["who"])


def test_every_csv_says_of_which_study_it_is(finished: Path):
    """Its last columns: a hash of its settings, the seeds, and the versions of the
    trainings and of what made it; table 1 has no trainings behind it.
    """
    run = finished / "results/tiny/loo/sasrec/seed=3"
    versions = json.loads((run / "model.json").read_text(encoding="utf-8"))["versions"]
    trained = f"trained: lastitem {versions['lastitem']} torch {versions['torch']}; "
    for path in sorted((finished / "results").glob("*.csv")):
        facts = pd.read_csv(path, dtype=str, keep_default_na=False)
        assert list(facts.columns[-3:]) == ["study", "seeds", "versions"], path.name
        ((study, seeds, made),) = set(facts.iloc[:, -3:].itertuples(index=False, name=None))
        assert re.fullmatch("[0-9a-f]{12}", study)
        assert seeds == ("" if path.name == "table1.csv" else "3")
        assert made.startswith("made: " if path.name == "table1.csv" else trained)
        assert made.endswith(f"numpy {version('numpy')} pandas {version('pandas')}")


def test_the_page_says_what_the_files_say(finished: Path):
    """Every number of its answers is one of worths.csv, rounded: the changes, and the
    bars of the account; every table and figure of the study is on it.
    """
    html = (finished / "results/index.html").read_text(encoding="utf-8")
    worths = pd.read_csv(finished / "results/worths.csv").query("group == 'all'")
    answers = re.findall(r'<article class="answer">(.*?)</article>', html, re.DOTALL)
    assert len(answers) == 3
    for model, answer in zip(("sasrec", "gru4rec", "bert4rec"), answers, strict=True):
        own = worths[worths["model"] == model].set_index(["reading", "part"])
        assert f"<h3>{shown_name(model)} on tiny (loo)</h3>" in answer
        changes = own.loc["change"].loc[list(SPOKEN_OF)]
        (told,) = re.findall(r"Change of NDCG@10: (.*?); n = 40 users", answer)
        assert re.findall(r"[+-]\d+\.\d", told) == [
            f"{row[side]:+.1f}" for _, row in changes.iterrows() for side in SIDES
        ]
        account = own.loc["account"]
        spoken = "; ".join(
            "{} {:.0f} % [{:.0f}, {:.0f}]".format(part, *row[SIDES])
            for part, row in account.iterrows()
        )
        assert f'aria-label="{spoken}"' in answer and account["value"].sum() == pytest.approx(100)
        share = own.loc[("share of its accuracy", "markov")]
        had = "{:.0f} % [{:.0f}, {:.0f}] of ".format(*share[SIDES])
        assert had in answer.replace("\N{NO-BREAK SPACE}", " ")
    for name in TABLE_NAMES + FIGURE_NAMES:
        assert f'id="{name}"' in html
    assert html.count("data:image/svg+xml;base64,") == len(FIGURE_NAMES)
    assert f"snakemake {version('snakemake')}" in html


def test_figures_carry_their_fonts(finished: Path):
    """Outlines are embedded as TrueType, so text stays text in whatever the figure is
    pasted into.
    """
    for path in sorted((finished / "results").glob("fig*.pdf")):
        content = path.read_bytes()
        assert content.count(b"/FontFile2") >= 1 and b"/Type3" not in content, path.name


def test_the_report_of_snakemake_is_complete(finished: Path):
    """--report: every table, figure and learning curve with its caption, under its
    category; the study's description in front.
    """
    done = snakemake(finished, "all", "--report", "report.html")
    assert done.returncode == 0, done.stdout[-3000:]
    html = (finished / "report.html").read_text(encoding="utf-8")
    captions = finished / "workflow/report"
    for name in [*TABLE_NAMES, *FIGURE_NAMES, "learning_curve", "page"]:
        caption = (captions / f"{name}.rst").read_text(encoding="utf-8")
        words = re.findall(r"[A-Za-z]{4,}", caption)[:6]
        assert re.search(r"[^A-Za-z]+(?:[A-Za-z]{1,3}[^A-Za-z]+)*".join(words), html), name
    for label in ("Tables", "Figures", "Learning curves", "Page", "sasrec", "bert4rec"):
        assert f'"{label}"' in html, label
    (finished / "report.html").unlink()


def test_every_table_compiles(finished: Path, tmp_path: Path):
    """In LaTeX, within the width of a page."""
    typeset(tmp_path, sorted((finished / "results").glob("*.tex")))


def test_another_engine_reads_the_data_files(finished: Path):
    """DuckDB, which shares no code with pyarrow, finds plain integers and the same
    lists.
    """
    folder = finished / "results/tiny"
    kinds = {
        "core/interactions": {
            "user": "INTEGER",
            "item": "INTEGER",
            "timestamp": "BIGINT",
            "tied": "BOOLEAN",
        },
        "core/users": {"user": "INTEGER", "user_id": "VARCHAR"},
        "core/items": {"item": "INTEGER", "item_id": "VARCHAR"},
        "loo/train": {"user": "INTEGER", "items": "INTEGER[]", "timestamps": "BIGINT[]"},
        "loo/test": {
            "user": "INTEGER",
            "items": "INTEGER[]",
            "timestamps": "BIGINT[]",
            "targets": "INTEGER[]",
            "target_tied": "BOOLEAN[]",
        },
    }
    for name, expected in kinds.items():
        relation = duckdb.read_parquet(str(folder / f"{name}.parquet"))
        assert {
            column: str(kind) for column, kind in zip(relation.columns, relation.types, strict=True)
        } == expected
        ours = pyarrow.parquet.read_table(folder / f"{name}.parquet").to_pydict()
        assert (
            dict(
                zip(
                    relation.columns, map(list, zip(*relation.fetchall(), strict=True)), strict=True
                )
            )
            == ours
        )


def test_recommendations_carry_the_ids_of_the_log(finished: Path):
    """Ten items of the log for each user, best first, and the README's lines in Python
    give the same for the same history.
    """
    run = finished / "results/tiny/loo/sasrec/seed=3"
    log = pd.read_csv(finished / "data/tiny log.csv")
    found = pd.read_parquet(run / "recommendations.parquet").set_index("user_id")
    assert set(found.index) == set(log["who"])
    for user, row in found.iterrows():
        assert len(row["items"]) == 10 and set(row["items"]) <= set(log["what"])
        assert row["target"] == log.loc[log["who"] == user, "what"].iloc[-1]
        assert (np.diff(row["scores"]) <= 0).all()
    python, _ = readme_python(finished)
    user = found.index[0]
    history = log.loc[log["who"] == user, "what"].tolist()[:-1]
    python = python.replace('["50", "181", "172"]', repr(history)).replace(
        "count=10", "count=10, filter_seen=False"
    )
    assert str(found.loc[user, "items"].tolist()) in run_python(finished, python)


def readme_python(project: Path) -> list[str]:
    """The README's blocks of Python, for the tiny study."""
    blocks = (project / "README.md").read_text(encoding="utf-8").split("```python\n")[1:]
    return [
        block.split("```")[0].replace("ml-100k", "tiny").replace("seed=1", "seed=3")
        for block in blocks
    ]


def run_python(project: Path, code: str) -> str:
    """Run lines of Python in a project's folder with its package, and return what they
    print.
    """
    here = {**environment(), "PYTHONPATH": str(project / "src")}
    done = subprocess.run(
        ["python", "-c", code], cwd=project, env=here, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_diagnoses_from_python_as_the_workflow_does(finished: Path):
    """Its lines give the numbers that stand in the workflow's files."""
    code = "".join(readme_python(finished)).replace("filter_seen=True", "filter_seen=False")
    printed = run_python(
        finished, code.replace('"50", "181", "172"', '"item 5", "item 1", "item 2"')
    )
    run = finished / "results/tiny/loo/sasrec/seed=3"
    swept = pd.read_parquet(run / "rescale.parquet").query("part == 'test' and order == 'ordered'")
    effects = pd.read_parquet(run / "interventions.parquet").query("repeat == 0")

    def line(ranks: pd.DataFrame) -> str:
        ndcg = (
            (1 / np.log2(ranks["target_rank"].where(ranks["target_rank"].between(1, 10)) + 1))
            .fillna(0)
            .mean()
        )
        return f"NDCG@10 {ndcg:.4f}, HRLI@10 {(ranks['last_rank'] <= 10).mean():.4f}"

    lines = dict(re.findall(r"(.*): (NDCG.*)\n", printed))
    assert lines["as trained"] == line(swept.query("residual_scale == 1.0"))
    assert lines["residual halved"] == line(swept.query("residual_scale == 0.5"))
    for said, name in (("last item only", "last_only"), ("all but last shuffled", "partial")):
        assert lines[said] == line(effects[effects["intervention"] == name])
    mixing = (
        pd.read_parquet(run / "mixing_users.parquet")
        .query("layer == 1 and part == 'Attn'")["latest"]
        .mean()
    )
    assert float(re.search(r"\[\[\s*(\S+)", printed)[1]) == pytest.approx(mixing, abs=1e-6)


def test_models_without_attention_are_named_not_missing(finished: Path):
    """GRU4Rec has no attention block: its rows say n/a in tables 3 and 4."""
    for table in ("table3", "table4"):
        facts = pd.read_csv(finished / f"results/{table}.csv")
        assert facts.loc[facts["model"] == "gru4rec", "note"].str.startswith("n/a").all()
        assert "gru4rec" in (finished / f"results/{table}.md").read_text(encoding="utf-8")


def test_scaling_by_one_is_the_plain_model(finished: Path):
    """The ranks of the sweep at λ = 1 are those of the evaluation and of the ordered
    input among the interventions, row by row.
    """
    run = finished / "results/tiny/loo/sasrec/seed=3"
    plain = pd.read_parquet(run / "ranks.parquet")
    swept = pd.read_parquet(run / "rescale.parquet").query(
        "part == 'test' and order == 'ordered' and residual_scale == 1.0"
    )
    ordered = pd.read_parquet(run / "interventions.parquet").query("intervention == 'ordered'")
    for column in ("target_rank", "last_rank", "last_but_one_rank"):
        assert plain[column].tolist() == swept[column].tolist()
    for column in ("target_rank", "last_rank"):
        assert plain[column].tolist() == ordered[column].tolist()


def test_yardsticks_move_with_what_they_read_alone(finished: Path):
    """Markov ranks every target as before where the last item stays, popularity always;
    a model that reads more does not. They have a line of a learning curve, and no
    decomposition.
    """
    keeps_last = ("partial", "last_only", "strangers_context", "pooled_context")
    for model in ("markov", "popularity", "gru4rec"):
        run = finished / f"results/tiny/loo/{model}/seed=3"
        effects = pd.read_parquet(run / "interventions.parquet")
        plain = pd.read_parquet(run / "ranks.parquet").set_index("user")["target_rank"]
        same = effects["target_rank"].to_numpy() == plain.loc[effects["user"]].to_numpy()
        name = effects["intervention"].astype(str)
        assert set(name) == {"ordered", *yaml_of(finished)["interventions"]}
        kept = name.isin(keeps_last) | name.str.startswith("newest_")
        if model == "gru4rec":
            assert not same[kept].all()
            continue
        assert same[kept].all() and same.all() == (model == "popularity")
        assert (effects["common_target_rank"] == effects["common_ordered_rank"])[kept].all()
        assert len(pd.read_csv(run / "learning_curve.csv")) == 1
        assert not [*run.glob("mixing*"), *run.glob("rescale*"), *run.glob("maps*")]


def yaml_of(project: Path) -> dict[str, Any]:
    """The default config."""
    return yaml.safe_load((project / "config.yaml").read_text(encoding="utf-8"))


def test_each_run_knows_what_it_is(finished: Path):
    """The description of a model names its run, its settings and the versions; the
    learning curve marks one best round.
    """
    run = finished / "results/tiny/loo/sasrec/seed=3"
    description = json.loads((run / "model.json").read_text(encoding="utf-8"))
    assert description["run"] == {"dataset": "tiny", "split": "loo", "model": "sasrec", "seed": 3}
    assert (
        description["settings"]["hidden_size"] == 8
        and description["training"]["maximum_epochs"] == 3
    )
    curve = pd.read_csv(run / "learning_curve.csv")
    best = curve[curve["best"]]
    assert (run / "learning_curve.pdf").stat().st_size and (
        run / "learning_curve.png"
    ).stat().st_size
    assert len(curve) == 3 and best.iloc[-1]["validation_ndcg"] == curve["validation_ndcg"].max()


def commands_of_the_readme() -> list[str]:
    """Its snakemake lines, in blocks and in sentences. (--report has a test.)"""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    quoted = [
        line
        for block in readme.split("```")[1::2]
        for line in block.splitlines()
        if line.startswith("snakemake ")
    ]
    inline = re.findall(r"`(snakemake (?!--report)[^`]*(?:all|results/)[^`]*)`", readme)
    assert len(quoted) >= 5 and inline
    return list(
        dict.fromkeys(shlex.join(shlex.split(line, comments=True)) for line in quoted + inline)
    )


@pytest.mark.parametrize("line", commands_of_the_readme())
def test_a_command_of_the_readme_runs(tmp_path: Path, line: str):
    """As it stands, as a dry run; the own-log stanza is the README's too. The paper's
    study has the jobs of nine logs, five models and three seeds.
    """
    fresh = copy_project(tmp_path / "fresh")
    readme = (fresh / "README.md").read_text(encoding="utf-8")
    (fresh / "shop.yaml").write_text(readme.split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    with gzip.open(fresh / "data/clicks.csv.gz", "wt") as log:
        log.write("customer,sku,clicked_at\n1,2,1000000000\n")
    done = snakemake(fresh, *shlex.split(line)[1:], "-n", configfile=None)
    assert done.returncode == 0 and "Job stats" in done.stdout, done.stdout[-2000:]
    if "config/paper.yaml" in line:
        logs, runs, yardsticks = 9, 9 * 5 * 3, 9 * 6 * 3
        expected = dict.fromkeys(("download", "core_filter", "split"), logs)
        expected |= dict.fromkeys(("train", "evaluate", "intervene"), runs + yardsticks)
        expected |= dict.fromkeys(("decompose", "rescale", "learning_curve"), runs)
        expected |= dict.fromkeys((*TABLE_NAMES, *FIGURE_NAMES, "page", "all"), 1)
        # A grid of four points, with the first seed.
        expected |= {"train_grid_point": 4 * logs, "choose": logs, "summarize": 17}
        assert planned_rules(done.stdout) == expected
