"""Names of architectures, their settings, and model files that are either right or
refused with a message.
"""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from lastitem.data.sequences import HeldOut
from lastitem.errors import InputError
from lastitem.evaluation.ranking import rank
from lastitem.models.registry import ARCHITECTURES, build, load, save

ROOT = Path(__file__).parents[2]
SMALL = {
    "sasrec": {"hidden_size": 8, "maximum_length": 10, "block_order": "pre"},
    "gru4rec": {"hidden_size": 8, "maximum_length": 10},
    "bert4rec": {"hidden_size": 8, "maximum_length": 10},
    "bsarec": {"hidden_size": 8, "maximum_length": 10},
    "duorec": {"hidden_size": 8, "maximum_length": 10},
    "popularity": {},
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
def test_each_item_has_one_vector(architecture, items):
    model = build(architecture, items, SMALL[architecture])
    assert len(model.item_vectors()) == items


def test_every_model_of_the_shipped_config_can_be_built():
    config = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    for settings in config["model_settings"].values():
        own = {
            key: value for key, value in settings.items() if key not in ("architecture", "training")
        }
        assert build(settings["architecture"], 10, own).items == 10


@pytest.mark.parametrize(
    ("architecture", "settings", "words"),
    [
        ("sasrc", {}, ["sasrc", "sasrec, gru4rec, bert4rec, bsarec, duorec, popularity"]),
        ("sasrec", {"layers": 2}, ["layers", "hidden_size", "block_order"]),
        ("gru4rec", {"heads": 2}, ["heads", "layers"]),
        ("popularity", {"dropout": 0.1}, ["dropout", "maximum_length"]),
        ("sasrec", {"items": 5}, ["items"]),
        ("sasrec", {"block_order": "middle"}, ["middle", "post, pre"]),
        ("sasrec", {"hidden_size": 10, "heads": 3}, ["10", "3", "multiple"]),
        ("bert4rec", {"heads": 5}, ["64", "5", "multiple"]),
        ("sasrec", {"hidden_size": 63}, ["63", "2", "multiple"]),
        ("bert4rec", {"hidden_size": 9}, ["9", "2", "multiple"]),
    ],
)
def test_what_cannot_be_built_is_named(architecture, settings, words):
    """The last two rows: heads is left at its default of two, which does not divide an
    odd size either.
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
