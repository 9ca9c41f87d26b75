"""Names of architectures, their settings, and model files that are either right or
refused with a message.
"""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from lastitem.data.sequences import HeldOut
from lastitem.errors import InputError
from lastitem.evaluation.ranking import rank
from lastitem.models.interface import SequenceModel
from lastitem.models.registry import build, load, save
from lastitem.models.settings import ARCHITECTURES
from lastitem.study.config import own_settings

ROOT = Path(__file__).parents[2]
SMALL = {
    "sasrec": {"hidden_size": 8, "maximum_length": 10, "block_order": "pre"},
    "gru4rec": {"hidden_size": 8, "maximum_length": 10},
    "bert4rec": {"hidden_size": 8, "maximum_length": 10},
    "bsarec": {"hidden_size": 8, "maximum_length": 10},
    "duorec": {"hidden_size": 8, "maximum_length": 10},
    "last-item": {"hidden_size": 8, "maximum_length": 10},
    "popularity": {},
    "markov": {},
    "item-knn": {"newest": 3},
}


def saved(folder, architecture="sasrec", items=20):
    torch.manual_seed(0)
    model = build(architecture, items, SMALL[architecture])
    weights, description = folder / "model.safetensors", folder / "model.json"
    save(
        model,
        {
            "architecture": architecture,
            "items": items,
            "settings": SMALL[architecture],
            "more": "é",
        },
        weights,
        description,
    )
    return model, weights, description


def one_case():
    return HeldOut(
        np.array([1, 2, 3], dtype=np.int32),
        np.array([0]),
        np.array([3]),
        np.array([0], dtype=np.int32),
        np.array([4], dtype=np.int32),
        np.array([False]),
    )


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_a_saved_model_comes_back_bit_for_bit(tmp_path, architecture):
    model, weights, description = saved(tmp_path, architecture)
    found, read = load(weights, description)
    assert type(found) is type(model)
    assert read["more"] == "é"
    assert not found.training
    assert found.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name
    assert (
        rank(found, one_case(), filter_seen=False).target[0, 0]
        == rank(model, one_case(), filter_seen=False).target[0, 0]
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "model.safetensors"]


@pytest.mark.parametrize("items", [126, 129, 32766, 32769])
@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_each_item_has_one_score_and_one_vector(architecture, items):
    model = build(architecture, items, SMALL[architecture]).eval()
    with torch.inference_mode():
        assert model.scores(torch.tensor([[1, items]]), torch.tensor([2])).shape == (1, items)
    if isinstance(model, SequenceModel):
        assert len(model.item_vectors()) == items


def test_every_model_of_the_shipped_config_can_be_built():
    config = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    for settings in config["model_settings"].values():
        assert build(settings["architecture"], 10, own_settings(settings)).items == 10


@pytest.mark.parametrize(
    ("architecture", "settings", "words"),
    [
        ("sasrc", {}, ["sasrc", "bsarec, duorec, last-item, popularity"]),
        ("sasrec", {"layers": 2}, ["layers", "hidden_size", "block_order"]),
        ("gru4rec", {"heads": 2}, ["heads", "layers"]),
        ("popularity", {"dropout": 0.1}, ["popularity", "dropout", "items"]),
        ("sasrec", {"hidden_sise": 8}, ["hidden_sise", "did you mean 'hidden_size'"]),
        ("sasrec", {"hidden_size": "8"}, ["hidden_size is '8'", "a whole number"]),
        ("sasrec", {"hidden_size": 8.0}, ["hidden_size is 8.0", "a whole number"]),
        ("sasrec", {"hidden_size": True}, ["hidden_size is True", "a whole number"]),
        ("sasrec", {"hidden_size": None}, ["hidden_size is None", "a whole number"]),
        ("sasrec", {"blocks": 0}, ["blocks is 0", "at least 1"]),
        ("gru4rec", {"dropout": "0.1"}, ["dropout is '0.1'", "a finite number"]),
        ("gru4rec", {"dropout": float("nan")}, ["dropout is nan", "a finite number"]),
        ("gru4rec", {"dropout": 1}, ["dropout is 1", "at least 0 and below 1"]),
        ("item-knn", {"newest": -1}, ["newest is -1", "at least 0"]),
        ("markov", {"newest": 1}, ["markov", "newest", "items"]),
        ("bert4rec", {"mask_probability": 0}, ["mask_probability is 0", "above 0 and below 1"]),
        ("bsarec", {"filter_share": 1.1}, ["filter_share is 1.1", "at least 0 and at most 1"]),
        ("duorec", {"temperature": float("inf")}, ["temperature is inf", "a finite number"]),
        ("sasrec", {"items": 5}, ["items"]),
        ("sasrec", {"block_order": "middle"}, ["middle", "post, pre"]),
        ("sasrec", {"hidden_size": 10, "heads": 3}, ["10", "3", "multiple"]),
        ("bert4rec", {"heads": 5}, ["64", "5", "multiple"]),
        ("sasrec", {"hidden_size": 63}, ["63", "2", "multiple"]),
        ("bert4rec", {"hidden_size": 9}, ["9", "2", "multiple"]),
    ],
)
def test_what_cannot_be_built_is_named(architecture, settings, words):
    """Also where heads is left at its default of two, which does not divide an odd size
    either.
    """
    with pytest.raises(InputError) as error:
        build(architecture, 10, settings)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("missing", ["model.safetensors", "model.json"])
def test_a_missing_file_is_named(tmp_path, missing):
    _, weights, description = saved(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(InputError, match=missing):
        load(weights, description)


def test_a_cut_weights_file_is_refused(tmp_path):
    _, weights, description = saved(tmp_path)
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(
        InputError, match=r"model\.safetensors.*delete it to have the model trained anew"
    ):
        load(weights, description)


def test_weights_of_another_model_are_refused(tmp_path):
    """Another size and another architecture."""
    _, weights, description = saved(tmp_path)
    text = json.loads(description.read_text(encoding="utf-8"))
    description.write_text(json.dumps({**text, "items": 21}), encoding="utf-8")
    with pytest.raises(InputError, match="not the weights"):
        load(weights, description)
    description.write_text(
        json.dumps({**text, "architecture": "gru4rec", "settings": {}}), encoding="utf-8"
    )
    with pytest.raises(InputError, match="not the weights"):
        load(weights, description)


def test_a_damaged_description_is_refused_with_its_name(tmp_path):
    _, weights, description = saved(tmp_path)
    description.write_text('{"architecture": "sasrec",', encoding="utf-8")
    with pytest.raises(InputError, match=r"model\.json"):
        load(weights, description)


def test_a_description_without_its_keys_is_refused_with_its_name(tmp_path):
    """JSON, but not one of ours: the message names the file instead of a
    bare KeyError.
    """
    _, weights, description = saved(tmp_path)
    description.write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match=r"model\.json"):
        load(weights, description)


@pytest.mark.parametrize("place", [0.5, 0.999])
def test_a_bit_that_flipped_in_the_weights_is_noticed(tmp_path, place):
    _, weights, description = saved(tmp_path)
    content = bytearray(weights.read_bytes())
    content[int(len(content) * place)] ^= 4
    weights.write_bytes(content)
    with pytest.raises(InputError, match=r"model\.safetensors.*sha256"):
        load(weights, description)


@pytest.mark.parametrize(
    "change",
    [
        {"items": "20"},
        {"items": -20},
        {"settings": {"hidden_size": "16"}},
        {"settings": {"heads": 0}},
        {"settings": {"maximum_length": 2.5}},
        {"settings": {"maximum_length": -1}},
        {"settings": 3},
        {"architecture": ["sasrec"]},
    ],
)
def test_a_description_of_what_cannot_be_built_is_refused_with_its_name(tmp_path, change):
    _, weights, description = saved(tmp_path)
    text = json.loads(description.read_text(encoding="utf-8"))
    description.write_text(json.dumps({**text, **change}), encoding="utf-8")
    with pytest.raises(InputError, match=r"model\.json: does not describe a model"):
        load(weights, description)


def test_a_description_in_another_encoding_is_refused_with_its_name(tmp_path):
    _, weights, description = saved(tmp_path)
    description.write_bytes(b'{"architecture": "sasr\xe9c"}')
    with pytest.raises(InputError, match=r"model\.json: not JSON in UTF-8"):
        load(weights, description)


def test_others_may_read_the_weights_where_they_may_read_the_rest(tmp_path):
    _, weights, description = saved(tmp_path)
    assert weights.stat().st_mode == description.stat().st_mode


def test_a_pickle_is_never_run(tmp_path):
    """A file that would make another file when unpickled."""
    _, weights, description = saved(tmp_path)
    mark = tmp_path / "pwned"

    class Trap:
        def __reduce__(self):
            return Path.touch, (mark,)

    weights.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputError):
        load(weights, description)
    assert not mark.exists()


def test_a_nan_weight_is_an_error_in_ranking(tmp_path):
    model, weights, description = saved(tmp_path)
    with torch.no_grad():
        model.embedding.weight[7, 0] = torch.nan
    save(model, json.loads(description.read_text(encoding="utf-8")), weights, description)
    with pytest.raises(InputError, match="NaN"):
        rank(load(weights, description)[0], one_case(), filter_seen=False)


OWN = """
from dataclasses import dataclass

import torch
from torch import nn

from lastitem.models.attention import positions_at
from lastitem.models.interface import Recommender, SequenceModel
from lastitem.study.settings import setting


@dataclass(frozen=True)
class Sizes:
    maximum_length: int = setting(9, "Newest items.", minimum=1)
    size: int = setting(4, "Of every vector.", minimum=2)


class Checked(SequenceModel):
    Settings = Sizes

    def __init__(self, items, **settings):
        super().__init__(items, **settings)
        self.embedding = nn.Embedding(items + 1, self.settings.size)

    def encode(self, items, length, at=None):
        return positions_at(self.embedding(items), at)

    def item_vectors(self):
        return self.embedding.weight[1:]


class Plain(Recommender):
    def __init__(self, items, seed, spread=1.0):
        super().__init__(items)
        self.register_buffer("kept", torch.full((items,), seed * spread))

    def scores(self, items, length):
        return self.kept.repeat(len(items), 1)


class Stranger(nn.Module):
    pass
"""


def built(folder, elsewhere, *asked):
    """What a process in a folder builds: of each class its name, its settings and how
    many numbers it holds.
    """
    program = (
        "from lastitem.models.registry import build\n"
        f"for architecture, settings in {asked!r}:\n"
        "    model = build(architecture, 5, settings)\n"
        "    count = sum(tensor.numel() for tensor in model.state_dict().values())\n"
        "    print(type(model).__name__, vars(model.settings), count)\n"
    )
    # As for a script, the working directory is none of Python's own places.
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(elsewhere)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_class_of_ones_own_is_found_where_the_process_works_and_on_the_path(tmp_path):
    """With a dataclass of settings and with a plain constructor; in the working
    directory first.
    """
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here / "mine", elsewhere):
        folder.mkdir(parents=True)
        (folder / "own.py").write_text(OWN, encoding="utf-8")
    (here / "own.py").write_text(OWN.replace("setting(4,", "setting(2,"), encoding="utf-8")
    small = "Checked {'maximum_length': 9, 'size': 3} 18"
    plain = "Plain {} 5"
    asked = ("own:Checked", {"size": 3}), ("own:Plain", {"seed": 2})
    assert built(tmp_path, elsewhere, *asked) == [small, plain]
    assert built(here, elsewhere, ("mine.own:Checked", {"size": 3}), ("own:Checked", {})) == [
        small,
        "Checked {'maximum_length': 9, 'size': 2} 12",
    ]


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The models above in the working directory, under a name of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_models.py").write_text(OWN, encoding="utf-8")
    yield tmp_path
    sys.modules.pop("own_models", None)


@pytest.mark.parametrize(
    ("path", "settings", "words"),
    [
        ("own_model:Checked", {}, ["own_model:Checked", "No module named 'own_model'"]),
        ("own_models.more:Checked", {}, ["own_models.more:Checked", "not a package"]),
        ("own_models:Chequed", {}, ["own_models has no Chequed", "Recommender"]),
        ("own_models:Stranger", {}, ["own_models has no Stranger that is a subclass"]),
        ("own_models:torch", {}, ["own_models has no torch that is a subclass"]),
        ("own_models:Checked", {"sise": 3}, ["Checked: no setting 'sise'", "did you mean 'size'"]),
        ("own_models:Checked", {"size": 1}, ["Checked: size is 1", "at least 2"]),
        ("own_models:Checked", {"size": "3"}, ["Checked: size is '3'", "a whole number"]),
        ("own_models:Checked", {"items": 3}, ["own_models:Checked", "'items'"]),
        ("own_models:Plain", {}, ["own_models:Plain", "'seed'", "(items, seed, spread=1.0)"]),
        ("own_models:Plain", {"seed": 1, "size": 3}, ["'size'", "(items, seed, spread=1.0)"]),
        ("Checked", {}, ["'Checked' is not known", "sasrec", "package.module:Class"]),
    ],
)
def test_what_is_wrong_with_a_model_of_ones_own_is_named(own, path, settings, words):
    with pytest.raises(InputError) as error:
        build(path, 5, settings)
    for word in words:
        assert word in str(error.value), error.value


def test_a_model_of_ones_own_comes_back_bit_for_bit(own):
    for kind, settings in (("Checked", {"size": 3}), ("Plain", {"seed": 7, "spread": 0.1})):
        architecture = f"own_models:{kind}"
        model = build(architecture, 5, settings)
        description = {"architecture": architecture, "items": 5, "settings": settings}
        save(model, description, own / "model.safetensors", own / "model.json")
        found, _ = load(own / "model.safetensors", own / "model.json")
        assert type(found) is type(model)
        for name, tensor in model.state_dict().items():
            assert torch.equal(found.state_dict()[name], tensor), name
    description["architecture"] = "own_models:Gone"
    save(model, description, own / "model.safetensors", own / "model.json")
    with pytest.raises(InputError, match=r"model\.json: architecture: own_models has no Gone"):
        load(own / "model.safetensors", own / "model.json")
    description["architecture"] = "gone_models:Plain"
    save(model, description, own / "model.safetensors", own / "model.json")
    with pytest.raises(InputError, match=r"model\.json: .*'gone_models'; work in.*PYTHONPATH$"):
        load(own / "model.safetensors", own / "model.json")
