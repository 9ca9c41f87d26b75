"""What a study makes: that every entry has its function and caption, and that a file's
hash changes with what can change the file and with nothing else.
"""

from __future__ import annotations

import copy
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lastitem.arguments import function_in
from lastitem.report import figures, summaries, tables
from lastitem.study.config import check
from lastitem.study.products import FIGURES, SUMMARIES, TABLES, study_of, study_of_run

ROOT = Path(__file__).parents[2]
SHOWN = TABLES | FIGURES


@pytest.fixture
def config():
    """The default study with one of tie orders, checked."""
    texts = (ROOT / name for name in ("config/datasets.yaml", "config.yaml"))
    merged = {}
    for path in texts:
        merged |= yaml.safe_load(path.read_text(encoding="utf-8"))
    merged["tie_order"]["datasets"] = ["ml-100k"]
    return checked(merged)


def checked(config):
    config = copy.deepcopy(config)
    check(config, ROOT / "workflow/schemas/config.schema.yaml")
    return config


def test_every_entry_has_a_function_that_takes_what_it_reads_and_its_settings():
    homes = ((SUMMARIES, summaries), (TABLES, tables), (FIGURES, figures))
    for products, module in homes:
        for name, entry in products.items():
            function = function_in(module)(getattr(entry, "function", name))
            given = [*entry.reads, *[getattr(entry, "published", "")] * ("published" in dir(entry))]
            frames = [None for read in given if read]
            told = dict.fromkeys(entry.settings)
            inspect.signature(function).bind(*frames, **told)


def test_every_table_and_figure_has_a_caption_and_reads_summaries():
    for name, shown in SHOWN.items():
        assert (ROOT / f"workflow/report/{name}.rst").is_file()
        assert set(shown.reads) <= set(SUMMARIES)
        assert not shown.published or (ROOT / "config/published" / shown.published).is_file()


def test_the_module_is_light():
    """The Snakefile imports it, in every cluster job anew."""
    code = "import sys, lastitem.study.products; print({*sys.modules} & {'torch','pandas','numpy'})"
    here = {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=here, capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


def test_what_looks_inside_of_a_model_is_folded_and_the_answer_is_not():
    folded = {name for name, shown in SHOWN.items() if shown.folded}
    assert folded == {"table3", "table4", "fig3", "fig4", "fig5", "fig6"}


def test_no_summary_is_made_that_nothing_shows():
    shown = [read for entry in SHOWN.values() for read in entry.reads]
    seen = set()
    while shown:
        name = shown.pop()
        seen.add(name)
        shown += [read for read in SUMMARIES[name].reads if read in SUMMARIES]
    assert seen == set(SUMMARIES)


def changed(before, after):
    """The tables and figures whose hash is another."""
    return {
        name for name, shown in SHOWN.items() if study_of(before, shown) != study_of(after, shown)
    }


#: What is bold in table2 is what the comparisons separate.
OF_COMPARISONS = {"comparisons", "table2"}
OF_SWEEP = {"table4", "comparisons", "claims", "fig4", "fig5", "fig6"}
#: What is made of interventions, in the study and in that of tie orders.
OF_WORTHS = {"worths", "claims", "fig1", "fig8"}
OF_INTERVENTIONS = {*OF_WORTHS, "comparisons", "table5", "fig7"}
OF_RUNS = {*SHOWN} - {"table1"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"residual_scales": [0.0, 1.0]}, OF_SWEEP),
        ({"cutoffs": [1, 10]}, {"table2", "worths"}),
        ({"shuffle_repeats": 3}, OF_INTERVENTIONS),
        ({"interventions": ["partial", "full"]}, OF_INTERVENTIONS),
        ({"interventions": ["partial", "full", "last_only", "newest_7"]}, OF_INTERVENTIONS),
        ({"shuffle_seed": 1}, OF_INTERVENTIONS | OF_SWEEP),
        ({"rescale_shuffle_repeats": 2}, OF_SWEEP),
        ({"map_positions": 5}, {"fig3"}),
        ({"accuracy_tolerances": [0.01]}, {"table4", "fig6"}),
        ({"permutations": 99}, {"table5", *OF_COMPARISONS, "fig7"}),
        ({"bootstrap": {"resamples": 500, "seed": 0}}, OF_RUNS - {"fig3"}),
        ({"seeds": [2]}, OF_RUNS),
        ({"splits": ["gts"]}, OF_RUNS),
        ({"models": ["sasrec"]}, OF_RUNS - {"table5", "fig7"}),
        ({"baselines": []}, OF_WORTHS | {"table2"}),
        ({"baselines": ["markov"]}, OF_WORTHS | {"table2"}),
        ({"exclude": [{"model": "gru4rec"}]}, OF_RUNS - {"table5", "fig7"}),
        ({"p_core": 3}, {*SHOWN}),
        ({"target": "first"}, OF_RUNS),
        ({"headline_cutoff": 5}, OF_RUNS),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else "",
)
def test_a_hash_changes_with_the_settings_that_can_change_the_file(config, change, expected):
    assert changed(config, checked({**unchecked(config), **change})) == expected


def unchecked(config):
    """Without the datasets that the check adds for the tie-order study."""
    registry = {name: log for name, log in config["registry"].items() if "log_of" not in log}
    return {**config, "registry": registry}


@pytest.mark.parametrize(
    "change",
    [
        {"threads": 4},
        {"device": "cuda"},
        {"recommendation_length": 3},
        {"data_seed": 7},
        {"gts": {"quantile": 0.8, "validation": "by_time", "validation_users": 5}},
    ],
    ids=lambda change: ", ".join(change),
)
def test_a_hash_stays_where_a_setting_has_no_influence(config, change):
    """The temporal split is none of this study, whose random order has its own seed."""
    assert changed(config, {**config, **change}) == set()


def test_a_hash_stays_where_a_log_lies_elsewhere_or_is_named_otherwise(config):
    other = copy.deepcopy(config)
    for name in [*other["registry"]]:
        other["registry"][name] |= {"title": "another", "licence": "another"}
        for source in other["registry"][name]["sources"].values():
            source["url"] = "https://example.org/elsewhere"
    assert changed(config, other) == set()
    other["registry"]["ml-100k"]["sources"]["grouplens"]["form"]["time"] = "ms"
    assert changed(config, other) == {*SHOWN} - {"table5", "fig7"}, "these have logs of their own"
    other = copy.deepcopy(config)
    other["registry"]["ml-100k"]["filter_seen"] = False
    assert changed(config, other) == {*SHOWN} - {"table1", "table5", "fig7"}


def test_a_hash_is_of_the_models_read(config):
    other = copy.deepcopy(config)
    other["model_settings"]["bsarec"]["dropout"] = 0.1
    assert changed(config, other) == set(), "it is not in the study"
    other["model_settings"]["popularity"]["training"] = {"patience": 3}
    assert changed(config, other) == OF_WORTHS | {"table2"}, "it is a yardstick"
    other = copy.deepcopy(config)
    other["model_settings"]["item-knn-chosen"]["grid"] = {"newest": [2]}
    assert changed(config, other) == OF_WORTHS | {"table2"}
    other = copy.deepcopy(config)
    other["training"]["num_negatives"] = 9
    assert changed(config, other) == set(), "its loss draws none"
    gbce = copy.deepcopy(config)
    gbce["training"]["loss"] = "gbce"
    other["training"]["loss"] = "gbce"
    assert changed(gbce, other) == OF_RUNS
    other = copy.deepcopy(config)
    other["training"]["loss"] = "bce"
    assert changed(config, other) == OF_RUNS


def test_another_order_of_keys_is_the_same_study(config):
    turned = json.loads(json.dumps(config, sort_keys=True))
    assert changed(config, turned) == set()
    assert all(len(study_of(config, shown)) == 12 for shown in SHOWN.values())
    assert all(set(study_of(config, shown)) <= set("0123456789abcdef") for shown in SHOWN.values())


def test_the_hash_of_a_training(config):
    """Of its own data, model and seed; at a point of a grid of that point alone."""
    run = {"dataset": "ml-100k", "split": "loo", "model": "sasrec", "seed": 1}
    own = study_of_run(config, run)
    assert own == study_of_run({**config, "seeds": [1, 2], "models": ["sasrec"]}, run)
    assert own == study_of_run(config, {**run, "seed": "1"}), "wildcards are text"
    assert own != study_of_run(config, {**run, "seed": 2})
    assert own != study_of_run({**config, "p_core": 3}, run)
    grids = [copy.deepcopy(config) for _ in range(2)]
    for grid, sizes in zip(grids, ([8], [8, 16]), strict=True):
        grid["model_settings"]["sasrec"]["grid"] = {"hidden_size": sizes}
    small, large = (study_of_run(grid, run, {"hidden_size": 8}) for grid in grids)
    assert small == large != study_of_run(grids[1], run, {"hidden_size": 16})
