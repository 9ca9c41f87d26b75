"""The config is checked before any job starts, and each fault is named with its key,
value and what is allowed.

No resolver exists, so an expression is only a text, refused where a number or a name is
wanted.
"""

import copy
from dataclasses import asdict, fields
from pathlib import Path

import pytest
import yaml

from lastitem.errors import InputError
from lastitem.models.registry import build
from lastitem.models.settings import ARCHITECTURES
from lastitem.study.config import (
    _fill_in,
    check,
    own_settings,
    study_runs,
    tie_order_runs,
    unused_settings,
    why_no_tie_order,
)
from lastitem.study.settings import TrainingSettings, checked

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "workflow/schemas/config.schema.yaml"


def shipped():
    """config.yaml over config/datasets.yaml, as the Snakefile merges them."""
    parts = [
        yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
        for name in ("config/datasets.yaml", "config.yaml")
    ]
    return {**parts[0], **parts[1]}


def changed(place, value):
    """The shipped config with one value replaced (or added); ``...`` takes it away."""
    config = copy.deepcopy(shipped())
    *way, last = place
    container = config
    for step in way:
        container = container[step]
    if value is ...:
        del container[last]
    else:
        container[last] = value
    return config


def complaint(config):
    with pytest.raises(InputError) as error:
        check(config, SCHEMA)
    return str(error.value)


def test_the_shipped_config_is_valid():
    check(shipped(), SCHEMA)


def filled_schema():
    """The schema with what can be set of training and of each architecture."""
    rules = yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))
    _fill_in(rules["$defs"])
    return rules


def test_the_training_settings_of_the_schema_are_those_of_the_code():
    """A key that the schema allows and the code does not know would fail only when
    training starts.
    """
    known = set(TrainingSettings.__dataclass_fields__)
    assert set(filled_schema()["$defs"]["training"]["properties"]) == known
    assert set(shipped()["training"]) <= known


def test_the_models_of_the_schema_are_those_of_the_code():
    """Every setting that the schema allows can be built, and every setting of a model
    can be set.
    """
    branches = {
        branch["if"]["properties"]["architecture"]["const"]: branch["then"]
        for branch in filled_schema()["$defs"]["model"]["allOf"]
    }
    assert set(branches) == set(ARCHITECTURES)
    for name, (path, kind) in ARCHITECTURES.items():
        allowed = set(branches[name]["properties"]) - {"architecture", "training", "grid"}
        model = build(name, 5, asdict(kind()))
        assert allowed == set(asdict(model.settings)) == {field.name for field in fields(kind)}
        assert branches[name]["additionalProperties"] is False
        assert type(model).Settings is kind
        assert f"{type(model).__module__}:{type(model).__name__}" == path
        check(changed(["model_settings", "mine"], {"architecture": name, **asdict(kind())}), SCHEMA)


def test_every_key_has_a_description():
    """The schema is the manual: each property says what it is, itself or by what it
    refers to.
    """
    rules = filled_schema()
    without = []

    def resolved(node):
        while isinstance(node, dict) and "$ref" in node and "description" not in node:
            target = rules
            for step in node["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            node = target
        return node

    def walk(node, place):
        if isinstance(node, dict):
            for key, value in (
                node.get("properties", {}).items()
                if isinstance(node.get("properties"), dict)
                else ()
            ):
                # In an `if`, and where a branch repeats a key of its base as `true`,
                # nothing is defined.
                if (
                    value is not True
                    and "const" not in value
                    and "description" not in resolved(value)
                ):
                    without.append(f"{place}.{key}")
            for key, value in node.items():
                if key != "if":
                    walk(value, f"{place}.{key}")
        elif isinstance(node, list):
            for index, value in enumerate(node):
                walk(value, f"{place}[{index}]")

    walk(rules, "")
    assert without == []


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        # unknown and missing keys
        (
            ["modles"],
            ["sasrec"],
            ["top level", "unknown key 'modles'", "['sasrec']", "did you mean 'models'", "p_core"],
        ),
        (
            ["training", "batchsize"],
            8,
            ["training", "'batchsize'", "8", "did you mean 'batch_size'", "learning_rate"],
        ),
        (["gts", "quantil"], 0.9, ["gts", "'quantil'", "0.9", "'quantile'"]),
        (
            ["model_settings", "sasrec", "layers"],
            2,
            ["model_settings.sasrec", "'layers'", "2", "blocks"],
        ),
        (
            ["model_settings", "gru4rec", "heads"],
            2,
            ["model_settings.gru4rec", "'heads'", "layers"],
        ),
        (["registry", "ml-100k", "tie"], "file", ["registry.ml-100k", "'tie'", "'ties'"]),
        (["models"], ..., ["top level", "'models' is missing"]),
        (["gts", "quantile"], ..., ["gts", "'quantile' is missing"]),
        (
            ["registry", "ml-100k", "sources", "grouplens", "form", "columns"],
            ...,
            ["registry.ml-100k", "'columns' is missing"],
        ),
        # values
        (["p_core"], -1, ["p_core", "-1", "at least 1", "Users and items"]),
        (["p_core"], "five", ["p_core", "'five'", "integer"]),
        (["p_core"], True, ["p_core", "True", "integer"]),
        (["p_core"], 3.0, ["p_core", "3.0", "a whole number without a point"]),
        (["cutoffs"], [1, 10.0], ["cutoffs.1", "10.0", "a whole number without a point"]),
        (["seeds"], [1.0], ["seeds.0", "1.0", "a whole number without a point"]),
        (
            ["training", "maximum_epochs"],
            1.0e9,
            ["training.maximum_epochs", "1000000000.0", "a whole number without a point"],
        ),
        (["p_core"], None, ["p_core", "None", "integer"]),
        (["p_core"], "${calc:__import__('os').getpid()}", ["p_core", "__import__", "integer"]),
        (["device"], "gpu", ["device", "'gpu'", "cuda"]),
        (["splits"], ["loo", "temporal"], ["splits.1", "'temporal'", "gts, loo"]),
        (["splits"], [], ["splits", "[]", "1"]),
        (["seeds"], [1, 1], ["seeds", "[1, 1]", "not repeat"]),
        (["seeds"], [-1], ["seeds.0", "-1", "at least 0"]),
        (["seeds"], 1, ["seeds", "1", "array"]),
        (
            ["tie_order", "datasets"],
            ["beuty"],
            ["tie_order.datasets", "'beuty'", "did you mean 'beauty'"],
        ),
        (
            ["tie_order", "models"],
            ["sasrek"],
            ["tie_order.models", "'sasrek'", "did you mean 'sasrec'"],
        ),
        (["tie_order", "draws"], 0, ["tie_order.draws", "0", "at least 1"]),
        (["exclude"], [{}], ["exclude.0", "at least this many keys", "1"]),
        (["exclude"], [{"sed": 1}], ["exclude.0", "'sed'", "did you mean 'seed'"]),
        (
            ["exclude"],
            [{"model": ["sasrec", "sasrek"]}],
            ["exclude.0.model", "'sasrek'", "did you mean 'sasrec'", "allowed: sasrec"],
        ),
        (
            ["exclude"],
            [{"split": "gts"}],
            ["exclude.0.split", "'gts' is not in this study", "allowed: loo"],
        ),
        (["exclude"], [{"seed": 1}], ["exclude: leaves out every run"]),
        (
            ["interventions"],
            ["partial", "shuffled"],
            ["interventions: 'shuffled' is not known", "allowed: ordered, partial", "newest_k"],
        ),
        (["interventions"], ["newest_0"], ["interventions: 'newest_0' is not known"]),
        (["interventions"], [], ["interventions", "at least this many", "1"]),
        (
            ["interventions"],
            ["full", "full"],
            ["interventions: ['full', 'full']", "must not repeat an entry"],
        ),
        (
            ["target"],
            "lst",
            ["target", "'lst'", "did you mean 'last'", "last, first, random, successive"],
        ),
        (
            ["gts", "validation"],
            "by_tme",
            ["gts.validation", "'by_tme'", "by_time, by_user, last_item"],
        ),
        (["gts", "quantile"], 1, ["gts.quantile", "1", "below 1"]),
        (["residual_scales"], [0.0, 0.5], ["residual_scales", "[0.0, 0.5]", "must hold 1"]),
        (["residual_scales"], [], ["residual_scales", "[]", "1"]),
        (["residual_scales"], [-0.5, 1], ["residual_scales.0", "-0.5", "at least 0"]),
        (
            ["headline_tolerance"],
            0.03,
            ["headline_tolerance", "0.03", "accuracy_tolerances", "0.05"],
        ),
        (["headline_cutoff"], 7, ["headline_cutoff", "7", "cutoffs", "100"]),
        (["training", "loss"], "hinge", ["training.loss", "'hinge'", "softmax, bce"]),
        (["training", "learning_rate"], 0, ["training.learning_rate", "0", "above 0"]),
        (["training", "learning_rate"], float("nan"), ["training.learning_rate", "nan"]),
        (
            ["model_settings", "sasrec", "dropout"],
            1.0,
            ["model_settings.sasrec.dropout", "1.0", "below 1"],
        ),
        (
            ["model_settings", "sasrec", "block_order"],
            "mid",
            ["model_settings.sasrec.block_order", "'mid'", "post, pre"],
        ),
        (
            ["model_settings", "sasrec", "maximum_length"],
            1,
            ["model_settings.sasrec.maximum_length", "1", "at least 2"],
        ),
        (
            ["model_settings", "mine"],
            {"architecture": "sasrc"},
            ["model_settings.mine.architecture", "'sasrc'", "'sasrec'", "gru4rec"],
        ),
        (
            ["model_settings", "mine"],
            {"hidden_size": 8},
            ["model_settings.mine", "'architecture' is missing"],
        ),
        (
            ["registry", "ml-100k", "ties"],
            "none",
            ["registry.ml-100k.ties", "'none'", "file, item, random"],
        ),
        (
            ["registry", "ml-100k", "filter_seen"],
            "maybe",
            ["registry.ml-100k.filter_seen", "'maybe'", "boolean"],
        ),
        (["registry", "ml-100k", "sources"], {}, ["registry.ml-100k.sources", "{}"]),
        (
            ["registry", "ml-100k", "sources"],
            {"path": "x.csv", "bytes": 3},
            ["registry.ml-100k.sources.path: 'x.csv' must be of type object"],
        ),
        (
            ["registry", "ml-100k", "sources"],
            {"a": None},
            ["registry.ml-100k.sources.a: None must be of type object"],
        ),
        (
            ["model_settings", "sasrec", "grid"],
            {"dropout": [0.1, 1.5]},
            ["model_settings.sasrec.grid: dropout is 1.5", "below 1"],
        ),
        (
            ["model_settings", "sasrec", "grid"],
            {"droput": [0.1]},
            ["model_settings.sasrec.grid", "'droput'", "did you mean 'dropout'"],
        ),
        (
            ["model_settings", "sasrec", "grid"],
            {"heads": [2, 3]},
            ["model_settings.sasrec.grid", "64", "3"],
        ),
        (["model_settings", "sasrec", "grid"], {"dropout": []}, ["grid.dropout", "[]"]),
        # names against each other
        (["datasets"], ["ml-100"], ["datasets", "'ml-100'", "did you mean 'ml-100k'", "registry"]),
        (
            ["models"],
            ["sasrek"],
            ["models", "'sasrek'", "did you mean 'sasrec'", "model_settings", "bert4rec"],
        ),
        (["baselines"], ["random"], ["baselines", "'random'", "popularity"]),
        (["baselines"], ["sasrec"], ["baselines", "'sasrec'", "models"]),
        (["model_settings", "sasrec", "heads"], 3, ["model_settings.sasrec", "64", "3"]),
        (
            ["model_settings", "mine"],
            {"architecture": "sasrec", "hidden_size": 63},
            ["model_settings.mine", "hidden_size 63 is not a multiple of heads 2"],
        ),
        (
            ["model_settings", "mine"],
            {"architecture": "bert4rec", "heads": 5},
            ["model_settings.mine", "hidden_size 64 is not a multiple of heads 5"],
        ),
    ],
)
def test_each_fault_names_key_value_and_what_is_allowed(place, value, words):
    text = complaint(changed(place, value))
    for word in words:
        assert word in text, text


def test_a_missing_architecture_is_the_only_complaint():
    """Without it no setting can be called unknown: the message must not send the user
    after ``hidden_size``.
    """
    text = complaint(changed(["model_settings", "mine"], {"hidden_size": 8, "heads": 2}))
    assert "unknown key" not in text


def test_an_odd_size_of_a_model_without_heads_is_fine():
    """GRU4Rec has no heads to divide by."""
    check(
        changed(["model_settings", "mine"], {"architecture": "gru4rec", "hidden_size": 63}), SCHEMA
    )


def test_all_faults_are_listed_at_once():
    config = changed(["p_core"], -1)
    config["modles"] = config.pop("models")
    config["training"]["loss"] = "hinge"
    text = complaint(config)
    for word in ("p_core", "modles", "'models' is missing", "hinge"):
        assert word in text
    assert len(text.splitlines()) == 5


@pytest.mark.parametrize(
    "name",
    [
        "a/b",
        "a b",
        "../up",
        ".hidden",
        "-option",
        "_x",
        "",
        "a;b",
        "a{x}",
        "a'b",
        "a\nb",
        "a\n",
        "a*",
    ],
)
@pytest.mark.parametrize("place", ["registry", "model_settings"])
def test_a_name_that_cannot_be_a_folder_is_refused(place, name):
    """Names become folders, wildcards and words of a shell line."""
    config = shipped()
    config[place][name] = copy.deepcopy(next(iter(config[place].values())))
    text = complaint(config)
    assert repr(name) in text
    assert "folder" in text
    assert place in text


@pytest.mark.parametrize("name", ["table1.csv", "fig7.png", "claims.md", "index.html", "README.md"])
def test_a_dataset_is_not_named_like_a_result(name):
    """results/{dataset} is its folder."""
    config = shipped()
    config["registry"][name] = copy.deepcopy(config["registry"]["ml-100k"])
    assert f"registry.{name}: a file in results/ has this name" in complaint(config)


@pytest.mark.parametrize("name", ["ml-1m", "2024.log", "a_b+c", "Bücher", "é"])
def test_a_name_that_can_be_a_folder_is_taken(name):
    config = shipped()
    config["registry"][name] = copy.deepcopy(config["registry"]["ml-100k"])
    config["datasets"] = [name]
    check(config, SCHEMA)


def source(**changes):
    own = {"path": "my.csv", "form": {"columns": {"user": "u", "item": "i", "timestamp": "t"}}}
    own.update(changes)
    return {key: value for key, value in own.items() if value is not ...}


def with_source(**changes):
    return changed(
        ["registry", "mine"],
        {"filter_seen": True, "ties": "file", "sources": {"here": source(**changes)}},
    )


def test_a_short_stanza_is_a_path_and_columns():
    """It is written out as one source; a fault in it is named where its author wrote
    it, with all the keys that may stand there.
    """
    columns = {"user": "u", "item": "i", "timestamp": "t"}
    config = changed(["registry", "mine"], {"path": "my.csv", "columns": columns, "separator": "|"})
    check(config, SCHEMA)
    assert config["registry"]["mine"] == {
        "filter_seen": True,
        "ties": "file",
        "sources": {"own": {"path": "my.csv", "form": {"columns": columns, "separator": "|"}}},
    }
    text = complaint(changed(["registry", "mine"], {"path": "my.csv", "colums": columns}))
    assert "registry.mine: unknown key 'colums'" in text and "did you mean 'columns'" in text
    assert "registry.mine: key 'columns' is missing" in text
    text = complaint(
        changed(
            ["registry", "mine"],
            {
                "path": "my.csv",
                "columns": {**columns, "rating": "r"},
                "tie": "item",
                "header": "no",
            },
        )
    )
    assert (
        "registry.mine: unknown key 'tie'" in text
        and "did you mean 'time' or 'ties'" in text
        and ".own" not in text
    )
    assert (
        "registry.mine.columns: unknown key 'rating'" in text
        and "registry.mine.header: 'no' must be of type boolean" in text
    )


def test_an_own_log_needs_a_path_and_columns_only():
    check(with_source(), SCHEMA)
    check(
        with_source(form={"header": False, "columns": {"user": 0, "item": 1, "timestamp": 2}}),
        SCHEMA,
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"path": ...}, ["exactly one of url, share, package, by_hand, path"]),
        (
            {"url": "https://example.org/x.csv"},
            ["exactly one of url, share, package, by_hand, path", "url", "path"],
        ),
        (
            {"path": ..., "url": "ftp://example.org/x.csv"},
            [".url", "'ftp://example.org/x.csv'", "http or https"],
        ),
        ({"path": ..., "package": "recbole"}, [".package", "'recbole'", "pinned"]),
        ({"path": ..., "package": "--index-url==1"}, [".package", "--index-url==1"]),
        ({"sha256": "abc"}, [".sha256", "'abc'", "Checksum"]),
        ({"bytes": 0}, [".bytes", "0", "at least 1"]),
        ({"form": ...}, ["'form' is missing"]),
        (
            {"form": {"columns": {"user": "u", "item": "i"}}},
            [".form.columns", "'timestamp' is missing"],
        ),
        (
            {"form": {"separator": "", "columns": {"user": "u", "item": "i", "timestamp": "t"}}},
            [".form.separator", "''"],
        ),
        (
            {"form": {"time": "hours", "columns": {"user": "u", "item": "i", "timestamp": "t"}}},
            [".form.time", "'hours'", "strptime"],
        ),
        (
            {
                "form": {
                    "encoding": "utf8x",
                    "columns": {"user": "u", "item": "i", "timestamp": "t"},
                }
            },
            [".form.encoding", "'utf8x'", "latin-1"],
        ),
        (
            {"form": {"format": "jsonl", "columns": {"user": "u", "item": "i", "timestamp": "t"}}},
            [".form.format", "'jsonl'", "json-lines"],
        ),
        (
            {"path": ..., "share": {"api": "https://a.example", "key": "k", "file": "x.csv"}},
            [".share.file", "'x.csv'", "must match"],
        ),
        (
            {"path": ..., "by_hand": {"page": "https://a.example", "file": "../x.csv"}},
            [".by_hand.file", "'../x.csv'"],
        ),
        (
            {"path": ..., "by_hand": {"page": "https://a.example", "file": "raw"}},
            [".by_hand.file", "'raw'", "the pipeline itself uses"],
        ),
        (
            {"form": {"header": False, "columns": {"user": "u", "item": "i", "timestamp": "t"}}},
            [".form.columns", "0-based positions"],
        ),
        ({"form": {"columns": {"user": 0, "item": 1, "timestamp": 2}}}, [".form.columns", "names"]),
        (
            {"form": {"columns": {"user": "u", "item": "u", "timestamp": "t"}}},
            [".form.columns", "a column of its own for each"],
        ),
        (
            {"form": {"columns": {"user": "u", "item": "i", "timestamp": "t", "rating": "r"}}},
            ["'rating'", "timestamp"],
        ),
    ],
)
def test_faults_of_a_source_are_named(changes, words):
    text = complaint(with_source(**changes))
    for word in ["registry.mine.sources.here", *words]:
        assert word in text, text


def test_numbers_given_as_text_are_read():
    """``--config seeds='[1,2]'`` and the like arrive as text inside; they become what
    the schema wants, in place.
    """
    config = changed(["seeds"], ["1", "2"])
    config["training"]["learning_rate"] = "0.01"
    config["registry"]["ml-100k"]["filter_seen"] = "false"
    config["p_core"] = "3"
    check(config, SCHEMA)
    assert config["seeds"] == [1, 2]
    assert config["training"]["learning_rate"] == 0.01
    assert config["registry"]["ml-100k"]["filter_seen"] is False
    assert config["p_core"] == 3


@pytest.mark.parametrize("text", ["one", "1.5", "[1]", "", "NaN", "0x1"])
def test_text_that_is_no_such_number_is_refused(text):
    assert "seeds.0" in complaint(changed(["seeds"], [text]))


def test_text_stays_text_where_text_is_wanted():
    config = changed(["registry", "ml-100k", "title"], "100")
    config["datasets"] = ["1"]
    config["registry"]["1"] = copy.deepcopy(config["registry"]["ml-100k"])
    check(config, SCHEMA)
    assert config["registry"]["ml-100k"]["title"] == "100"
    assert config["datasets"] == ["1"]


def test_what_passes_can_be_built():
    """The settings of every shipped model, as the workflow hands them on, are accepted
    by the code.
    """
    config = shipped()
    for settings in config["model_settings"].values():
        assert build(settings["architecture"], 5, own_settings(settings)).items == 5
        training = config["training"] | settings.get("training", {})
        assert asdict(checked(TrainingSettings, training, "training")).items() >= training.items()


def test_runs_of_a_study():
    """Every combination in order; an entry of `exclude` leaves out what matches all its
    keys, given once or as a list.
    """
    study = {"datasets": ["a", "b"], "splits": ["loo"], "seeds": [1, 2], "exclude": []}
    every = [(dataset, model, seed) for dataset in "ab" for model in "xyz" for seed in (1, 2)]

    def left(*entries: dict) -> list[tuple]:
        return [
            (run["dataset"], run["model"], run["seed"])
            for run in study_runs({**study, "exclude": list(entries)}, "xyz")
        ]

    assert left() == every
    assert left({"dataset": "b", "model": ["x", "z"]}, {"seed": 2, "model": "y"}) == [
        *(("a", "x", 1), ("a", "x", 2), ("a", "y", 1), ("a", "z", 1), ("a", "z", 2)),
        ("b", "y", 1),
    ]
    assert left({"split": "loo"}) == []


def test_texts_of_an_entry_that_leaves_out_runs():
    """A list inside `--config` arrives as text."""
    config = changed(["seeds"], [1, 2])
    config["exclude"] = [{"seed": "2"}, {"seed": ["2"], "model": "sasrec"}]
    check(config, SCHEMA)
    assert config["exclude"] == [{"seed": 2}, {"seed": [2], "model": "sasrec"}]


def test_settings_that_a_loss_does_not_use_are_told_of():
    """Of each model for itself: what counts is its own loss."""
    config = shipped() | {"models": ["sasrec", "gru4rec", "bert4rec"]}
    assert unused_settings(config) == []
    config["training"] |= {"num_negatives": 9, "calibration": 0.5}
    losses = {"sasrec": "sampled_softmax", "gru4rec": "gbce"}
    for model, loss in losses.items():
        config["model_settings"][model]["training"] = {"loss": loss, "num_negatives": 7}
    assert unused_settings(config) == [
        "model sasrec: training.calibration is set to 0.5, but the loss sampled_softmax does not"
        " use it; gbce does",
        "model bert4rec: training.num_negatives is set to 9, but the loss softmax does not use it;"
        " sampled_softmax and gbce do",
        "model bert4rec: training.calibration is set to 0.5, but the loss softmax does not use it;"
        " gbce does",
    ]


def test_the_tie_order_study_adds_its_datasets():
    """One with ties by item id, one for each random order, all of the log they are made
    of; of named logs only those of the study.
    """
    config = changed(
        ["tie_order"],
        {"datasets": ["toys", "beauty"], "splits": ["gts"], "models": ["sasrec"], "draws": 2},
    )
    config["datasets"] = ["ml-100k", "beauty"]
    before = copy.deepcopy(config["registry"]["beauty"])
    check(config, SCHEMA)
    made = {name: stanza for name, stanza in config["registry"].items() if "log_of" in stanza}
    assert {
        name: (stanza["log_of"], stanza["ties"], stanza.get("ties_seed"))
        for name, stanza in made.items()
    } == {
        "beauty.ties-item": ("beauty", "item", None),
        "beauty.ties-random-1": ("beauty", "random", 1),
        "beauty.ties-random-2": ("beauty", "random", 2),
    }
    assert all(stanza["sources"] == before["sources"] for stanza in made.values())
    assert config["registry"]["beauty"]["ties"] == before["ties"]
    assert [(run["dataset"], run["seed"]) for run in tie_order_runs(config)] == []
    config = changed(
        ["tie_order"],
        {"datasets": ["toys", "beauty"], "splits": ["gts"], "models": ["sasrec"], "draws": 2},
    )
    config |= {"datasets": ["ml-100k", "beauty"], "splits": ["gts"], "seeds": [1, 2]}
    check(config, SCHEMA)
    assert [(run["dataset"], run["seed"]) for run in tie_order_runs(config)] == [
        (name, seed) for name in made for seed in (1, 2)
    ]
    config["exclude"] = [{"dataset": "beauty", "seed": 2}]
    assert [(run["dataset"], run["seed"]) for run in tie_order_runs(config)] == [
        (name, 1) for name in made
    ]
    config["models"] = ["gru4rec"]
    assert tie_order_runs(config) == []


@pytest.mark.parametrize(
    ("named", "study", "why"),
    [
        ([], {}, "name its logs, splits and models under tie_order in the config"),
        (
            ["toys", "beauty"],
            {},
            "tie_order.datasets (toys, beauty) and datasets (ml-100k) have no name in common",
        ),
        (
            ["ml-100k"],
            {"splits": ["gts"], "models": ["gru4rec", "bert4rec"]},
            "tie_order.splits (loo) and splits (gts) have no name in common; tie_order.models"
            " (sasrec) and models (gru4rec, bert4rec) have no name in common",
        ),
        (
            ["ml-100k"],
            {"exclude": [{"model": "sasrec"}]},
            "exclude leaves out every run that tie_order names",
        ),
    ],
)
def test_it_is_said_why_there_is_no_tie_order_study(named, study, why):
    """Which key has nothing in common with the study, with what both name."""
    config = changed(
        ["tie_order"], {"datasets": named, "splits": ["loo"], "models": ["sasrec"], "draws": 1}
    )
    config |= study
    check(config, SCHEMA)
    assert tie_order_runs(config) == [] and why_no_tie_order(config) == why


def test_a_dataset_of_ones_own_is_not_overwritten_by_the_tie_order_study():
    config = changed(
        ["registry", "ml-100k.ties-item"],
        {"path": "mine.csv", "columns": {"user": "u", "item": "i", "timestamp": "t"}},
    )
    config["tie_order"]["datasets"] = ["ml-100k"]
    with pytest.raises(
        InputError,
        match=(
            r"registry\.ml-100k\.ties-item: the tie-order study of 'ml-100k' makes a dataset of"
            r" this name"
        ),
    ):
        check(config, SCHEMA)


@pytest.fixture
def own_model(tmp_path, monkeypatch):
    """A model of one's own in the working directory; never imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("raise SystemExit\nclass Model: ...", encoding="utf-8")
    return {"architecture": "mine:Model", "size": 8}


def with_own_model(settings):
    config = changed(["model_settings", "own"], settings)
    config["models"] = ["own"]
    return config


def test_a_model_of_ones_own_is_found_by_its_import_path(own_model):
    config = with_own_model(own_model)
    check(config, SCHEMA)
    assert config["model_settings"]["own"] == own_model


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("mien:Model", "there is no module mien in "),
        ("mine.model:Model", "there is no module mine.model in "),
        ("mine:Modle", "mine.py defines no Modle; found: Model"),
    ],
)
def test_a_missing_module_or_class_stops_with_its_place(own_model, path, words):
    """Where no run needs it, as in a study of other models, it may be missing."""
    own = own_model | {"architecture": path}
    assert f"model_settings.own.architecture: {path}: {words}" in complaint(with_own_model(own))
    check(changed(["model_settings", "own"], own), SCHEMA)


def test_settings_of_ones_own_given_as_text_become_what_they_say(own_model):
    """``--config`` gives everything inside a dictionary as text."""
    given = {"size": "16", "rate": "0.5", "wide": "true", "kind": "a b", "grid": {"size": ["1"]}}
    config = with_own_model(own_model | given)
    check(config, SCHEMA)
    assert config["model_settings"]["own"] == {
        "architecture": "mine:Model",
        "size": 16,
        "rate": 0.5,
        "wide": True,
        "kind": "a b",
        "grid": {"size": [1]},
    }


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_a_misspelt_architecture_is_suggested_its_name(name):
    text = complaint(changed(["model_settings", "mine"], {"architecture": name[:-1]}))
    assert f"model_settings.mine.architecture: {name[:-1]!r} is not allowed — did you" in text
    assert repr(name) in text
    assert "package.module:Class" in text
