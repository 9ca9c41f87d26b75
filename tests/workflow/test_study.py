"""The whole workflow, run for real; what triggers a rerun; kills. Cases H1, H3, H5, H7, H11."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from ..typesetting import typeset
from .conftest import CONFIG, copy_project, environment, planned_rules, snakemake

TABLE_NAMES = [*(f"table{number}" for number in range(1, 5)), "comparisons", "claims"]
TABLES = [f"results/{name}.{ending}" for name in TABLE_NAMES for ending in ("csv", "md", "tex")]
FIGURES = [f"results/fig{number}.{ending}" for number in range(1, 7) for ending in ("pdf", "png", "csv")]
EVERY_FIGURE_AND_TABLE = {f"fig{number}" for number in range(1, 7)} | set(TABLE_NAMES)


def digests(project: Path, pattern: str) -> dict[str, str]:
    """Relative path → sha256 of the files that match."""
    return {str(path.relative_to(project)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(project.glob(pattern))}


def start_endless_training(project: Path) -> subprocess.Popen[bytes]:
    """The study with trainings that do not end by themselves, in a process group of its own."""
    command = ["snakemake", "all", "--configfile", "tiny.yaml", "--config", 'training={"maximum_epochs":100000,"patience":100000}']
    return subprocess.Popen(
        command, cwd=project, env=environment(), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )


def test_all_outputs_are_there_and_a_second_run_does_nothing(finished: Path):
    """Also H5: the path holds a space and an é, the log's name a space, the ids both."""
    for path in TABLES + FIGURES:
        assert (finished / path).stat().st_size > 0, path
    again = snakemake(finished, "all")
    assert again.returncode == 0 and "Nothing to be done" in again.stdout


def test_results_say_what_they_stand_on(finished: Path):
    """Table 1 agrees with the log that was written; n, seeds and spread are in every table's facts."""
    log = pd.read_csv(finished / "data/tiny log.csv")
    row = pd.read_csv(finished / "results/table1.csv").iloc[0]
    assert (row["users"], row["items"], row["interactions"]) == (log["who"].nunique(), log["what"].nunique(), len(log))
    accuracy = pd.read_csv(finished / "results/table2.csv")
    assert set(accuracy["model"]) == {"sasrec", "gru4rec", "bert4rec", "popularity"}
    assert (accuracy["users"] == 40).all() and (accuracy["seeds"] == 1).all()
    assert accuracy.loc[accuracy["metric"] != "coverage", ["ci_low", "ci_high"]].notna().all(axis=None)
    users = pyarrow.parquet.read_table(finished / "results/tiny/core/users.parquet").to_pydict()
    assert set(users["user_id"]) == set(log["who"])


def test_the_page_says_what_the_files_say(finished: Path):
    """Every number of its sentences is one of fig1.csv or fig2.csv, rounded; every table and figure of the study is on it."""
    html = (finished / "results/index.html").read_text(encoding="utf-8")
    effects, rates = (pd.read_csv(finished / f"results/{name}.csv") for name in ("fig1", "fig2"))
    sentences = re.findall(r'<p class="answer"><strong>[^<]+</strong> ([^<]+)</p>', html)
    assert len(sentences) == 3
    for sentence in sentences:
        model = sentence.split(" ")[0]
        change = effects[(effects["model"] == model) & (effects["measure"] == "change_percent")].set_index("order")
        rate = rates[rates["model"] == model].set_index("measure")
        numbers = [f"{row[side]:+.1f}" for _, row in change.loc[["partial", "full"]].iterrows() for side in ("value", "ci_low", "ci_high")]
        numbers += [
            f"{100 * row[side]:.1f}" for _, row in rate.loc[["HRLI", "HRL2I"]].iterrows() for side in ("value", "ci_low", "ci_high")
        ]
        assert re.findall(r"[+-]?\d+\.\d", sentence) == numbers
    for name in [*TABLE_NAMES, *(f"fig{number}" for number in range(1, 7))]:
        assert f'id="{name}"' in html
    assert html.count("data:image/png;base64,") == 6 and f"snakemake {version('snakemake')}" in html


def test_every_table_compiles(finished: Path, tmp_path: Path):
    """In LaTeX, within the width of a page."""
    typeset(tmp_path, sorted((finished / "results").glob("*.tex")))


def test_b13_another_engine_reads_the_data_files(finished: Path):
    """DuckDB, which shares no code with pyarrow, finds plain integers and the same lists."""
    folder = finished / "results/tiny"
    kinds = {
        "core/interactions": {"user": "INTEGER", "item": "INTEGER", "timestamp": "BIGINT", "tied": "BOOLEAN"},
        "core/users": {"user": "INTEGER", "user_id": "VARCHAR"},
        "core/items": {"item": "INTEGER", "item_id": "VARCHAR"},
        "loo/train": {"user": "INTEGER", "items": "INTEGER[]", "timestamps": "BIGINT[]"},
        "loo/test": {"user": "INTEGER", "items": "INTEGER[]", "timestamps": "BIGINT[]", "targets": "INTEGER[]", "target_tied": "BOOLEAN[]"},
    }
    for name, expected in kinds.items():
        relation = duckdb.read_parquet(str(folder / f"{name}.parquet"))
        assert {column: str(kind) for column, kind in zip(relation.columns, relation.types, strict=True)} == expected
        ours = pyarrow.parquet.read_table(folder / f"{name}.parquet").to_pydict()
        assert dict(zip(relation.columns, map(list, zip(*relation.fetchall(), strict=True)), strict=True)) == ours


def test_recommendations_carry_the_ids_of_the_log(finished: Path):
    """Ten items of the log for each user, best first, and the README's lines in Python give the same for the same history."""
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
    python = python.replace('["50", "181", "172"]', repr(history)).replace("count=10", "count=10, filter_seen=False")
    assert str(found.loc[user, "items"].tolist()) in run_python(finished, python)


def readme_python(project: Path) -> list[str]:
    """The README's blocks of Python, for the tiny study."""
    blocks = (project / "README.md").read_text(encoding="utf-8").split("```python\n")[1:]
    return [block.split("```")[0].replace("ml-100k", "tiny").replace("seed=1", "seed=3") for block in blocks]


def run_python(project: Path, code: str) -> str:
    """Run lines of Python in a project's folder with its package, and return what they print."""
    here = {**environment(), "PYTHONPATH": str(project / "src")}
    done = subprocess.run(["python", "-c", code], cwd=project, env=here, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_diagnoses_from_python_as_the_workflow_does(finished: Path):
    """Its lines give the numbers that stand in the workflow's files."""
    code = "".join(readme_python(finished)).replace("filter_seen=True", "filter_seen=False")
    printed = run_python(finished, code.replace('"50", "181", "172"', '"item 5", "item 1", "item 2"'))
    run = finished / "results/tiny/loo/sasrec/seed=3"
    swept = pd.read_parquet(run / "rescale.parquet").query("part == 'test' and order == 'ordered'")
    shuffled = pd.read_parquet(run / "shuffle.parquet").query("order == 'partial' and repeat == 0")

    def line(ranks: pd.DataFrame) -> str:
        ndcg = (1 / np.log2(ranks["target_rank"].where(ranks["target_rank"].between(1, 10)) + 1)).fillna(0).mean()
        # The workflow keeps the last item's rank for the plain order only.
        return f"NDCG@10 {ndcg:.4f}, HRLI@10 " + (f"{(ranks['last_rank'] <= 10).mean():.4f}" if "last_rank" in ranks else "")

    lines = dict(re.findall(r"(.*): (NDCG.*)\n", printed))
    assert lines["as trained"] == line(swept.query("residual_scale == 1.0"))
    assert lines["residual halved"] == line(swept.query("residual_scale == 0.5"))
    assert lines["all but last shuffled"].startswith(line(shuffled))
    mixing = pd.read_parquet(run / "mixing_users.parquet").query("layer == 1 and part == 'Attn'")["latest"].mean()
    assert float(re.search(r"\[\[\s*(\S+)", printed)[1]) == pytest.approx(mixing, abs=1e-6)


def test_models_without_attention_are_named_not_missing(finished: Path):
    """GRU4Rec has no attention block: its rows say n/a in tables 3 and 4."""
    for table in ("table3", "table4"):
        facts = pd.read_csv(finished / f"results/{table}.csv")
        assert facts.loc[facts["model"] == "gru4rec", "note"].str.startswith("n/a").all()
        assert "gru4rec" in (finished / f"results/{table}.md").read_text(encoding="utf-8")


def test_scaling_by_one_is_the_plain_model(finished: Path):
    """G17: the ranks of the sweep at λ = 1 are those of the evaluation and of the ordered shuffle, row by row."""
    run = finished / "results/tiny/loo/sasrec/seed=3"
    plain = pd.read_parquet(run / "ranks.parquet")
    swept = pd.read_parquet(run / "rescale.parquet").query("part == 'test' and order == 'ordered' and residual_scale == 1.0")
    ordered = pd.read_parquet(run / "shuffle.parquet").query("order == 'ordered'")
    for column in ("target_rank", "last_rank", "last_but_one_rank"):
        assert plain[column].tolist() == swept[column].tolist()
    assert plain["target_rank"].tolist() == ordered["target_rank"].tolist()


def test_two_runs_give_the_same_bytes(finished: Path, tmp_path: Path):
    """Same config, same seed, same machine: equal tables, figures and result files, also with another number of cores."""
    other = copy_project(tmp_path / "other")
    done = snakemake(other, "--cores", "1", "all")
    assert done.returncode == 0, done.stdout[-6000:]
    for pattern in ("results/*.*", "results/*/*/*.parquet", "results/*/*/*/*/*"):
        assert digests(other, pattern) == digests(finished, pattern)


def test_one_figure_makes_only_what_it_needs(tmp_path: Path):
    """A bare target, cores from the default profile."""
    fresh = copy_project(tmp_path / "fresh")
    planned = planned_rules(snakemake(fresh, "-n", "results/fig1.pdf").stdout)
    assert planned == {"download": 1, "core_filter": 1, "split": 1, "train": 3, "shuffle": 3, "fig1": 1}


def test_an_edit_of_the_training_script_reruns_training_and_what_follows(changed: Path):
    """Convention 1: scripts and the modules they import are inputs."""
    script = changed / "src/train.py"
    script.write_text(script.read_text(encoding="utf-8").replace("torch.manual_seed(this.seed)", "torch.manual_seed(this.seed + 1)"))
    planned = planned_rules(snakemake(changed, "-n", "all").stdout)
    assert planned["train"] == 4 and planned["evaluate"] == 4 and planned["rescale"] == 3
    assert "core_filter" not in planned and "split" not in planned and "table1" not in planned


def test_an_edit_of_a_module_reruns_what_imports_it(changed: Path):
    """Figures' style is not the training's business."""
    module = changed / "src/lastitem/figures.py"
    module.write_text(module.read_text(encoding="utf-8").replace('"font.size": 9', '"font.size": 10'))
    planned = planned_rules(snakemake(changed, "-n", "all").stdout)
    assert set(planned) == {f"fig{number}" for number in range(1, 7)} | {"learning_curve", "page", "all"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("residual_scales=[0.0,1.0]", {"rescale", "table4", "comparisons", "claims", "fig4", "fig5", "fig6"}),
        ("cutoffs=[1,10]", {"evaluate", "table2", "comparisons", "claims", "fig2"}),
        ("shuffle_repeats=3", {"shuffle", "comparisons", "claims", "fig1"}),
        ("map_positions=5", {"decompose", "table3", "claims", "fig3"}),
        ("seeds=[4]", {"train", "learning_curve", "evaluate", "shuffle", "decompose", "rescale"} | EVERY_FIGURE_AND_TABLE - {"table1"}),
    ],
)
def test_a_changed_setting_reruns_what_depends_on_it(finished: Path, change: str, expected: set[str]):
    """H3: and nothing else; a λ grid leaves the training alone."""
    planned = planned_rules(snakemake(finished, "-n", "all", "--config", change).stdout)
    assert set(planned) - {"all", "page"} == expected


def test_a_touched_file_reruns_nothing(changed: Path):
    """H3: the content decides, not the time."""
    for path in ("src/train.py", "config.yaml", "results/tiny/loo/train.parquet"):
        os.utime(changed / path)
    assert planned_rules(snakemake(changed, "-n", "all").stdout) == {}


def test_a_changed_log_reruns_everything(changed: Path):
    """A user's own file is an input of the download rule."""
    log = changed / "data/tiny log.csv"
    log.write_text(log.read_text(encoding="utf-8").replace("item 3,", "item 4,"), encoding="utf-8")
    planned = planned_rules(snakemake(changed, "-n", "all").stdout)
    assert planned["download"] == 1 and planned["train"] == 4


def test_an_import_outlives_its_origin_and_edits_of_the_downloader(changed: Path):
    """Snakemake deletes outputs before a rerun: neither a log that has gone nor new code may cost what was imported."""
    (changed / "data/tiny log.csv").unlink()
    module = changed / "src/lastitem/downloading.py"
    module.write_text(module.read_text(encoding="utf-8") + "# a comment\n", encoding="utf-8")
    assert planned_rules(snakemake(changed, "-n", "all").stdout) == {}


def test_an_older_file_in_the_place_of_a_log_is_noticed(changed: Path):
    log = changed / "data/tiny log.csv"
    log.write_text(log.read_text(encoding="utf-8").replace("item 3,", "item 4,"), encoding="utf-8")
    os.utime(log, (1_500_000_000, 1_500_000_000))
    assert planned_rules(snakemake(changed, "-n", "results/table1.csv").stdout)["download"] == 1


@pytest.mark.parametrize("name", ["a {x}.csv", "a } b.csv", "n{input}.csv"])
def test_h5_braces_in_the_name_of_a_log(tmp_path: Path, name: str):
    fresh = copy_project(tmp_path / "fresh")
    (fresh / "data/tiny log.csv").rename(fresh / "data" / name)
    (fresh / "tiny.yaml").write_text(CONFIG.replace("data/tiny log.csv", f'"data/{name}"'), encoding="utf-8")
    done = snakemake(fresh, "results/tiny/core/statistics.json")
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"(data/{name})" in done.stdout


def test_settings_without_influence_rerun_nothing(finished: Path):
    """The temporal split's quantile is nothing to leave-one-out, nor a seed to what draws nothing."""
    for change in ("gts={quantile: 0.8}", "data_seed=5"):
        planned = planned_rules(snakemake(finished, "-n", "all", "--config", change).stdout)
        assert planned == {"page": 1, "all": 1}, "the page shows the settings"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("modles: [sasrec]", ["modles", "sasrec", "did you mean 'models'", "allowed:"]),
        ("p_core: -1", ["p_core", "-1", "at least 1"]),
        ("datasets: [ml-10k]", ["datasets", "'ml-10k'", "did you mean 'ml-100k'", "allowed: ml-100k"]),
        ("registry: {mine: {path: data/mine/raw, columns: {user: u, item: i, timestamp: t}}}", ["data/mine/raw", "pipeline itself writes"]),
        ("registry: {mine: {path: a.csv, seperator: ';'}}", ["'seperator'", "did you mean 'separator'", "'columns' is missing"]),
        ("device: ${calc:__import__('os').system('touch pwned')}", ["device", "pwned", "must match"]),
    ],
)
def test_a_wrong_config_stops_before_any_job(tmp_path: Path, config: str, told: list[str]):
    """Key, value and what is allowed are named; H11: nothing in a config is evaluated."""
    fresh = copy_project(tmp_path / "fresh")
    (fresh / "wrong.yaml").write_text(config)
    done = snakemake(fresh, "all", configfile="wrong.yaml")
    assert done.returncode != 0
    for words in told:
        assert words in done.stdout
    assert "Traceback" not in done.stdout and not (fresh / "results").exists() and not (fresh / "pwned").exists()


def test_a_kill_in_training_loses_nothing(finished: Path, tmp_path: Path):
    """H1: SIGKILL of the whole group while a model trains; `make results` clears the stale lock, waits for nobody, completes."""
    project = copy_project(tmp_path / "killed")
    for name in ("data", "results"):
        shutil.copytree(finished / name, project / name, dirs_exist_ok=True)
    shutil.copytree(finished / ".snakemake", project / ".snakemake")
    run = start_endless_training(project)
    try:
        deadline = time.monotonic() + 300
        # Which of the trainings the scheduler takes first is its affair.
        while not (begun := [log for log in project.glob("logs/train/*.log") if "epoch" in log.read_text()]):
            assert time.monotonic() < deadline and run.poll() is None
            time.sleep(0.2)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    for log in begun:
        assert not (project / f"results/tiny/loo/{log.name.split('.')[2]}/seed=3/model.safetensors").exists()
    locked = snakemake(project, "all")
    assert locked.returncode != 0 and "lock" in locked.stdout.lower()
    command = ["python", "src/wait_for_lock.py"]
    waited = subprocess.run(command, cwd=project, env=environment(), text=True, capture_output=True, timeout=120)
    assert waited.returncode == 0 and "clearing the lock" in waited.stdout
    done = snakemake(project, "all")
    assert done.returncode == 0, done.stdout[-4000:]
    assert digests(project, "results/*.csv") == digests(finished, "results/*.csv")
    assert not list(project.glob("results/**/.*partial*"))


def test_two_runs_at_once(finished: Path, tmp_path: Path):
    """H7: the second Snakemake says that the folder is locked; `make results` would wait for the first one instead."""
    project = Path(shutil.copytree(finished, tmp_path / "busy"))
    first = start_endless_training(project)
    waiting = None
    try:
        deadline = time.monotonic() + 300
        while not list(project.glob(".snakemake/locks/*")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        second = snakemake(project, "all")
        assert second.returncode != 0 and "lock" in second.stdout.lower()
        command = ["python", "-u", "src/wait_for_lock.py"]
        waiting = subprocess.Popen(command, cwd=project, env=environment(), text=True, stdout=subprocess.PIPE)
        assert waiting.stdout is not None and str(first.pid) in waiting.stdout.readline()
        assert waiting.poll() is None
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        if waiting is not None:
            assert waiting.wait(timeout=60) == 0


def test_each_run_knows_what_it_is(finished: Path):
    """The description of a model names its run, its settings and the versions; the learning curve marks one best round."""
    run = finished / "results/tiny/loo/sasrec/seed=3"
    description = json.loads((run / "model.json").read_text(encoding="utf-8"))
    assert description["run"] == {"dataset": "tiny", "split": "loo", "model": "sasrec", "seed": 3}
    assert description["settings"]["hidden_size"] == 8 and description["training"]["maximum_epochs"] == 3
    curve = pd.read_csv(run / "learning_curve.csv")
    best = curve[curve["best"]]
    assert (run / "learning_curve.pdf").stat().st_size and (run / "learning_curve.png").stat().st_size
    assert len(curve) == 3 and best.iloc[-1]["validation_ndcg"] == curve["validation_ndcg"].max()


def test_a_grid_is_chosen_on_validation_with_the_first_seed(changed: Path):
    """Each point trained once, the best on validation taken: its own model for the first seed, its settings for the others."""
    grid = "model_settings={gru4rec: {grid: {hidden_size: [4, 8], dropout: [0.0, 0.5]}}}"
    arguments = ("results/table2.csv", "--config", grid, "seeds=[3,4]", "models=[gru4rec]", "baselines=[]")
    planned = planned_rules(snakemake(changed, "-n", *arguments).stdout)
    assert (planned["train_grid_point"], planned["choose"], planned["train"]) == (4, 1, 2)
    done = snakemake(changed, *arguments)
    assert done.returncode == 0, done.stdout[-4000:]
    model = changed / "results/tiny/loo/gru4rec"
    choice = json.loads((model / "choice.json").read_text(encoding="utf-8"))
    curves = {path.parts[-3]: pd.read_csv(path)["validation_ndcg"].max() for path in model.glob("grid/*/seed=3/learning_curve.csv")}
    assert choice["validation_ndcg"] == pytest.approx(curves) and len(curves) == 4
    assert choice["point"] == max(choice["validation_ndcg"], key=lambda name: choice["validation_ndcg"][name])
    taken = model / "grid" / choice["point"] / "seed=3/model.safetensors"
    assert taken.read_bytes() == (model / "seed=3/model.safetensors").read_bytes()
    other = json.loads((model / "seed=4/model.json").read_text(encoding="utf-8"))["settings"]
    assert {key: other[key] for key in choice["settings"]} == choice["settings"]
    assert planned_rules(snakemake(changed, "-n", *arguments).stdout) == {}


@pytest.mark.parametrize("model", ["gru4rec", "bert4rec"])
def test_a_study_without_an_answer_to_some_questions_completes(changed: Path, model: str):
    """No attention, or no earlier prediction to go back to: tables say n/a, figures say why they are empty."""
    done = snakemake(changed, "all", "--config", f"models=[{model}]", "baselines=[]")
    assert done.returncode == 0, done.stdout[-4000:]
    assert f"| {model}" in (changed / "results/table4.md").read_text(encoding="utf-8")


def test_the_tie_order_study(changed: Path):
    """The log with two orders of its ties and one of its own file: three cores of one download, own trainings, table5 and fig7."""
    log = pd.read_csv(changed / "data/tiny log.csv")
    log.assign(when=log["when"] // 200 * 200).to_csv(changed / "data/tiny log.csv", index=False)
    study = "tie_order={datasets: [tiny], splits: [loo], models: [sasrec], draws: 2}"
    arguments = ("results/table5.csv", "results/fig7.pdf", "--config", study, "seeds=[3,4]", "map_positions=4")
    planned = planned_rules(snakemake(changed, "-n", *arguments).stdout)
    assert {name: planned[name] for name in ("download", "core_filter", "train")} == {"download": 1, "core_filter": 3, "train": 6}
    done = snakemake(changed, *arguments)
    assert done.returncode == 0, done.stdout[-4000:]
    table = pd.read_csv(changed / "results/table5.csv")
    assert set(table["dataset"]) == {"tiny"} and len(table) == 2 * 3 * 5
    assert table.groupby("ties")["seeds"].unique().map(list).to_dict() == {"item": [2], "random": [4]}
    cores = {
        name: pd.read_parquet(changed / f"results/tiny.ties-{name}/core/interactions.parquet") for name in ("item", "random-1", "random-2")
    }
    assert len({tuple(core["item"]) for core in cores.values()}) == 3, "three orders"
    assert len({tuple(sorted(zip(core["user"], core["item"], strict=True))) for core in cores.values()}) == 1, "of the same events"


def test_runs_that_are_left_out(changed: Path):
    """`exclude` is heeded by training, tables and figures; what is left of an uneven study completes."""
    left_out = "exclude=[{model: gru4rec, split: gts}, {model: [sasrec, popularity], seed: 4}]"
    arguments = ("all", "--config", "splits=[loo, gts]", "seeds=[3,4]", "models=[sasrec, gru4rec]", left_out)
    assert planned_rules(snakemake(changed, "-n", *arguments).stdout)["train"] == 6 - 3, "three are there from the study before"
    done = snakemake(changed, *arguments)
    assert done.returncode == 0, done.stdout[-4000:]
    table = pd.read_csv(changed / "results/table2.csv").query("metric == 'ndcg' and cutoff == 10")
    wanted = {("loo", "sasrec"): 1, ("gts", "sasrec"): 1, ("loo", "gru4rec"): 2, ("loo", "popularity"): 1, ("gts", "popularity"): 1}
    assert table.set_index(["split", "model"])["seeds"].to_dict() == wanted
    bars = pd.read_csv(changed / "results/fig1.csv")
    assert set(zip(bars["split"], bars["model"], strict=True)) == {study for study in wanted if study[1] != "popularity"}


def test_the_commands_of_the_readme_run(tmp_path: Path):
    """Each snakemake line of the README as it stands, as a dry run; the own-log stanza is the README's too."""
    fresh = copy_project(tmp_path / "fresh")
    readme = (fresh / "README.md").read_text(encoding="utf-8")
    (fresh / "shop.yaml").write_text(readme.split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    with gzip.open(fresh / "data/clicks.csv.gz", "wt") as log:
        log.write("customer,sku,clicked_at\n1,2,1000000000\n")
    quoted = [line for block in readme.split("```")[1::2] for line in block.splitlines() if line.startswith("snakemake ")]
    inline = re.findall(r"`(snakemake [^`]*(?:all|results/)[^`]*)`", readme)
    assert len(quoted) >= 5 and inline
    for line in quoted + inline:
        command = shlex.split(line, comments=True)
        done = subprocess.run([*command, "-n"], cwd=fresh, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0 and "Job stats" in done.stdout, line + done.stdout[-2000:]
