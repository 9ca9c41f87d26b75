"""What a change reruns and what not, and what stops before any job."""

from __future__ import annotations

import copy
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from lastitem.study.products import SUMMARIES

from .conftest import CONFIG, copy_project, planned_rules, snakemake

EVERY_FIGURE_AND_TABLE = {
    "comparisons",
    "claims",
    "worths",
    *(f"table{number}" for number in range(1, 5)),
    *(f"fig{number}" for number in (*range(1, 7), 8)),
}


def test_one_figure_makes_only_what_it_needs(tmp_path: Path):
    """A bare target, cores from the default profile."""
    fresh = copy_project(tmp_path / "fresh")
    planned = planned_rules(snakemake(fresh, "-n", "results/fig1.pdf").stdout)
    assert planned == {
        "download": 1,
        "core_filter": 1,
        "split": 1,
        "train": 5,
        "intervene": 5,
        "summarize": 1,
        "fig1": 1,
    }


def test_an_edit_of_the_training_script_reruns_training_and_what_follows(changed: Path):
    """scripts and the modules they import are inputs."""
    script = changed / "src/train.py"
    script.write_text(
        script.read_text(encoding="utf-8").replace(
            "torch.manual_seed(this.seed)", "torch.manual_seed(this.seed + 1)"
        )
    )
    planned = planned_rules(snakemake(changed, "-n", "all").stdout)
    assert planned["train"] == 5 and planned["evaluate"] == 5 and planned["rescale"] == 3
    assert "core_filter" not in planned and "split" not in planned and "table1" not in planned


def test_an_edit_of_a_module_reruns_what_imports_it(changed: Path):
    """Figures' style is not the training's business."""
    module = changed / "src/lastitem/report/drawing.py"
    module.write_text(
        module.read_text(encoding="utf-8").replace('"font.size": 9', '"font.size": 10')
    )
    planned = planned_rules(snakemake(changed, "-n", "all").stdout)
    assert set(planned) == {f"fig{number}" for number in (*range(1, 7), 8)} | {
        "learning_curve",
        "page",
        "all",
    }


@pytest.mark.parametrize(
    ("change", "expected", "summaries"),
    [
        (
            "residual_scales=[0.0,1.0]",
            {"rescale", "table4", "comparisons", "claims", "fig4", "fig5", "fig6"},
            {"residual_sweep", "mixing_by_scale", "recovery_sweep", "recovery_curves"}
            | {"chosen_scales", "at_the_choice", "comparisons", "claims"},
        ),
        (
            "cutoffs=[1,10]",
            {"evaluate", "table2", "worths", "comparisons", "claims", "fig2"},
            {"accuracy", "yardsticks", "last_item_hit_rates", "model_comparisons"}
            | {"comparisons", "claims"},
        ),
        (
            "shuffle_repeats=3",
            {"intervene", "worths", "comparisons", "claims", "fig1", "fig8"},
            {"worths", "comparisons", "claims"},
        ),
        (
            "map_positions=5",
            {"decompose", "table3", "claims", "fig3"},
            {"attention_maps", "mixing_ratios", "mixing_at_readout", "claims"},
        ),
        (
            "seeds=[4]",
            {"train", "learning_curve", "evaluate", "intervene", "decompose", "rescale"}
            | EVERY_FIGURE_AND_TABLE - {"table1"},
            {*SUMMARIES} - {"statistics", "tie_order"},
        ),
    ],
)
def test_a_changed_setting_reruns_what_depends_on_it(
    finished: Path, change: str, expected: set[str], summaries: set[str]
):
    """And nothing else; a λ grid leaves the training alone."""
    said = snakemake(finished, "-n", "all", "--config", change).stdout
    assert set(planned_rules(said)) - {"all", "page", "summarize"} == expected
    found = re.findall(r"^    output: results/summaries/(\w+)\.parquet$", said, re.MULTILINE)
    assert set(found) == summaries


def test_files_of_two_studies_are_not_put_on_one_page(changed: Path):
    """A table made with other settings stands beside the rest: the page names it and
    both studies, and the command it gives makes it anew.
    """
    # Both, for they share a summary.
    targets = ("results/table2.csv", "results/comparisons.csv")
    done = snakemake(changed, *targets, "--config", "bootstrap={resamples: 300}")
    assert done.returncode == 0, done.stdout[-3000:]
    kept = ("--rerun-triggers", "mtime")
    done = snakemake(changed, "results/index.html", *kept)
    assert done.returncode != 0, "Snakemake was told not to mind the settings"
    refused = r"results/table2\.csv: is of another study \(\w{12}; wanted is \w{12}\); make it"
    assert re.search(refused, done.stdout), done.stdout[-3000:]
    assert "snakemake results/table2.csv --force" in done.stdout
    done = snakemake(changed, "results/table2.csv", "--force", *kept)
    refused = r"results/summaries/accuracy\.parquet: is of another study"
    assert done.returncode != 0 and re.search(refused, done.stdout), done.stdout[-3000:]
    done = snakemake(changed, "results/index.html")
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_touched_file_reruns_nothing(changed: Path):
    """The content decides, not the time."""
    for path in ("src/train.py", "config.yaml", "results/tiny/loo/train.parquet"):
        os.utime(changed / path)
    assert planned_rules(snakemake(changed, "-n", "all").stdout) == {}


def test_a_changed_log_reruns_everything(changed: Path):
    """A user's own file is an input of the download rule."""
    log = changed / "data/tiny log.csv"
    log.write_text(log.read_text(encoding="utf-8").replace("item 3,", "item 4,"), encoding="utf-8")
    planned = planned_rules(snakemake(changed, "-n", "all").stdout)
    assert planned["download"] == 1 and planned["train"] == 5


def test_an_import_outlives_its_origin_and_edits_of_the_downloader(changed: Path):
    """Snakemake deletes outputs before a rerun: neither a log that has gone nor new
    code may cost what was imported.
    """
    (changed / "data/tiny log.csv").unlink()
    module = changed / "src/lastitem/data/download/sources.py"
    module.write_text(module.read_text(encoding="utf-8") + "# a comment\n", encoding="utf-8")
    assert planned_rules(snakemake(changed, "-n", "all").stdout) == {}


def test_another_wording_of_the_licence_fetches_nothing(changed: Path):
    config = (changed / "tiny.yaml").read_text(encoding="utf-8")
    (changed / "tiny.yaml").write_text(
        config.replace("filter_seen: false", "filter_seen: false\n    licence: mine, é"),
        encoding="utf-8",
    )
    assert planned_rules(snakemake(changed, "-n", "all").stdout) == {
        "page": 1,
        "all": 1,
    }, "the page shows the settings"


def test_more_known_of_a_source_does_not_cost_what_was_fetched_from_it(changed: Path):
    """Its size, and another source, are new parameters, so Snakemake deletes the log
    before it asks for it again; its origin has gone.
    """
    log = (changed / "data/tiny/raw").read_bytes()
    (changed / "data/tiny log.csv").unlink()
    config = (changed / "tiny.yaml").read_text(encoding="utf-8")
    more = f"bytes: {len(log)}, path: data/tiny log.csv"
    (changed / "tiny.yaml").write_text(
        config.replace("path: data/tiny log.csv", more), encoding="utf-8"
    )
    done = snakemake(changed, "data/tiny/raw")
    assert done.returncode == 0 and "rule download" in done.stdout, done.stdout[-3000:]
    assert "taken from the earlier download of data/tiny log.csv" in done.stdout
    assert (changed / "data/tiny/raw").read_bytes() == log


def test_an_older_file_in_the_place_of_a_log_is_noticed(changed: Path):
    log = changed / "data/tiny log.csv"
    log.write_text(log.read_text(encoding="utf-8").replace("item 3,", "item 4,"), encoding="utf-8")
    os.utime(log, (1_500_000_000, 1_500_000_000))
    assert planned_rules(snakemake(changed, "-n", "results/table1.csv").stdout)["download"] == 1


def test_braces_in_the_name_of_a_log(tmp_path: Path):
    fresh = copy_project(tmp_path / "fresh")
    config = yaml.safe_load(CONFIG)
    names = {"one": "a {x}.csv", "other": "a } b.csv", "third": "n{input}.csv"}
    for dataset, name in names.items():
        shutil.copy(fresh / "data/tiny log.csv", fresh / "data" / name)
        config["registry"][dataset] = copy.deepcopy(config["registry"]["tiny"])
        config["registry"][dataset]["sources"]["own"]["path"] = f"data/{name}"
    config["datasets"] = [*names]
    (fresh / "tiny.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    done = snakemake(fresh, *(f"results/{dataset}/core/statistics.json" for dataset in names))
    assert done.returncode == 0, done.stdout[-3000:]
    for name in names.values():
        assert f"(data/{name})" in done.stdout


def test_settings_without_influence_rerun_nothing(finished: Path):
    """The temporal split's quantile is nothing to leave-one-out, nor a seed to what
    draws nothing.
    """
    changes = ("gts={quantile: 0.8}", "data_seed=5")
    planned = planned_rules(snakemake(finished, "-n", "all", "--config", *changes).stdout)
    assert planned == {"page": 1, "all": 1}, "the page shows the settings"


def test_saying_the_same_in_another_way_reruns_nothing(changed: Path):
    """Another order of keys, a setting that is the default's, and a release: what is
    computed is the same.
    """
    for name, old, new in (
        (
            "config.yaml",
            "sasrec: { architecture: sasrec, block_order: post, hidden_size: 64, blocks: 2,",
            "sasrec: { blocks: 2, architecture: sasrec, block_order: post, hidden_size: 64,",
        ),
        ("src/lastitem/__init__.py", '__version__ = "', '__version__ = "9.'),
    ):
        text = (changed / name).read_text(encoding="utf-8")
        assert old in text
        (changed / name).write_text(text.replace(old, new), encoding="utf-8")
    default = ("--config", "training={patience: 20}")
    assert set(planned_rules(snakemake(changed, "-n", "all", *default).stdout)) <= {"page", "all"}


def test_a_setting_that_nothing_uses_is_named_and_trains_nothing(changed: Path):
    """Where the study begins, and on its page."""
    changes = ("all", "--config", "training={num_negatives: 5}")
    assert planned_rules(snakemake(changed, "-n", *changes).stdout) == {"page": 1, "all": 1}
    done = snakemake(changed, *changes)
    assert done.returncode == 0, done.stdout[-3000:]
    begin, _, _ = done.stdout.partition("rule page:")
    page = (changed / "results/index.html").read_text(encoding="utf-8")
    for model in ("sasrec", "gru4rec", "bert4rec"):
        told = f"model {model}: training.num_negatives is set to 5, but the loss softmax does not"
        assert f"warning: {told} use it" in begin and f"<li>{told} use it" in page


def test_what_a_study_is_for_is_made_again_when_it_has_gone(changed: Path):
    """The recommendations of one run; the model of another, and its recommendations
    with it.
    """
    (changed / "results/tiny/loo/sasrec/seed=3/recommendations.parquet").unlink()
    (changed / "results/tiny/loo/gru4rec/seed=3/model.safetensors").unlink()
    planned = planned_rules(snakemake(changed, "-n", "all").stdout)
    assert (planned["train"], planned["evaluate"]) == (1, 2)


def test_a_tie_order_study_that_is_not_there_is_not_begun(finished: Path):
    """Asked for by name, it stops before Snakemake deletes what lies there of another
    study.
    """
    done = snakemake(finished, "-n", "results/table5.csv", "results/fig7.pdf")
    assert (
        done.returncode != 0 and "this study has no tie-order study: name its logs" in done.stdout
    )


def test_the_cutoff_of_the_validation_may_be_set_for_all_models(tmp_path: Path):
    fresh = copy_project(tmp_path / "fresh")
    said = snakemake(
        fresh, "-n", "-p", "results/fig1.pdf", "--config", "training={validation_cutoff: 5}"
    ).stdout
    assert '"validation_cutoff": 5' in said and '"validation_cutoff": 10' not in said


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            """
            modles: [sasrec]
            p_core: -1
            registry:
              mine: {path: a.csv, seperator: ';'}
              ml-1m: {path: a.csv}
            device: "${calc:__import__('os').system('touch pwned')}"
            """,
            [
                ["modles", "sasrec", "did you mean 'models'", "allowed:"],
                ["p_core", "-1", "at least 1"],
                ["'seperator'", "did you mean 'separator'"],
                ["mine", "'columns' is missing"],
                ["this dataset has sources already", "take another name for yours"],
                ["device", "pwned", "must match"],
            ],
        ),
        (
            """
            datasets: [ml-10k]
            registry:
              mine: {path: data/mine/raw, columns: {user: u, item: i, timestamp: t}}
            """,
            [
                ["datasets", "'ml-10k'", "did you mean 'ml-100k'", "allowed: "],
                ["data/mine/raw", "pipeline itself writes"],
            ],
        ),
    ],
    ids=["what the schema forbids", "names"],
)
def test_a_wrong_config_stops_before_any_job(tmp_path: Path, config: str, told: list[list[str]]):
    """Each fault on a line of its own, with key, value and what is allowed; nothing in
    a config is evaluated.
    """
    fresh = copy_project(tmp_path / "fresh")
    (fresh / "wrong.yaml").write_text(config)
    done = snakemake(fresh, "all", configfile="wrong.yaml")
    assert done.returncode != 0
    for words in told:
        assert any(all(word in line for word in words) for line in done.stdout.splitlines()), words
    assert (
        "Traceback" not in done.stdout
        and not (fresh / "results").exists()
        and not (fresh / "pwned").exists()
    )
