"""The ranking under a residual scale, as the columns that go into rescale.parquet."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lastitem.data.sequences import HeldOut
from lastitem.evaluation import decomposition
from lastitem.evaluation.decomposition import decompose
from lastitem.evaluation.interventions import intervention
from lastitem.evaluation.ranking import rank
from lastitem.evaluation.rescaling import rank_scaled
from lastitem.models.registry import build
from lastitem.study.runs import PARTS


@pytest.fixture
def cases() -> HeldOut:
    """Six users with histories of one to six items, among twelve."""
    generator = np.random.default_rng(5)
    length = np.arange(1, 7)
    end = np.cumsum(length)
    items = generator.integers(1, 13, end[-1]).astype(np.int32)
    return HeldOut(
        items,
        end - length,
        end,
        np.arange(6, dtype=np.int32),
        generator.integers(1, 13, 6).astype(np.int32),
        np.zeros(6, dtype=bool),
    )


def scaled(model, cases, scale, order="ordered", repeat=0):
    ranks, ratios = rank_scaled(
        model,
        cases,
        residual_scale=scale,
        order=order,
        repeat=repeat,
        shuffle_seed=4,
        filter_seen=False,
    )
    assert ratios == {}
    return ranks


def model_of(architecture):
    torch.manual_seed(2)
    model = build(architecture, 12, {"hidden_size": 8, "heads": 2, "maximum_length": 5})
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


def test_scale_one_is_the_plain_model(cases):
    model = model_of("sasrec")
    plain = rank(model, cases, filter_seen=False, offsets=(0, 1, 2, 3))
    columns = scaled(model, cases, 1.0)
    assert columns["target_rank"].tolist() == plain.target[:, 0].tolist()
    assert columns["last_rank"].tolist() == plain.last.tolist()
    for offset in (1, 2, 3):
        assert columns[f"target_rank_back_{offset}"].tolist() == plain.target[:, offset].tolist()


def test_the_scale_and_the_order_reach_the_model(cases):
    model = model_of("sasrec")
    expected = rank(
        model,
        cases,
        filter_seen=False,
        residual_scale=0.3,
        change=intervention("full", cases, 99, seed=4, repeat=1),
    )
    columns = scaled(model, cases, 0.3, "full", 1)
    assert columns["target_rank"].tolist() == expected.target[:, 0].tolist()
    assert columns["target_rank"].tolist() != scaled(model, cases, 1.0)["target_rank"].tolist()


def test_the_readout_moves_back_only_where_r_is_fixed(cases):
    """At λ = 1 on the ordered input; and never for a model whose positions hold no
    earlier prediction.
    """
    for columns in (
        scaled(model_of("sasrec"), cases, 0.9),
        scaled(model_of("sasrec"), cases, 1.0, "partial"),
        scaled(model_of("bert4rec"), cases, 1.0),
    ):
        assert {int(columns[f"target_rank_back_{offset}"]) for offset in (1, 2, 3)} == {-1}


@pytest.mark.parametrize("architecture", ["sasrec", "bert4rec", "bsarec", "duorec"])
@pytest.mark.parametrize("scale", [0.0, 0.4, 1.0])
def test_mixing_comes_from_the_same_pass_and_leaves_it_as_it_is(cases, architecture, scale):
    """The ratios are those of the decomposition at the read-out, inputs with one item
    left out; the ranks are the same without them.
    """
    model = model_of(architecture)
    keywords = {
        "residual_scale": scale,
        "order": "ordered",
        "repeat": 0,
        "shuffle_seed": 4,
        "filter_seen": False,
    }
    ranks, ratios = rank_scaled(model, cases, **keywords, mixing=True)
    plain, _ = rank_scaled(model, cases, **keywords)
    for name, column in plain.items():
        assert np.array_equal(ranks[name], column), name
    expected = decompose(model, cases, residual_scale=scale, map_positions=0)
    _, layer, part = np.indices(expected.latest.shape)
    assert ratios["residual_scale"] == scale
    assert ratios["user"].tolist() == np.repeat(expected.user, expected.latest[0].size).tolist()
    assert ratios["layer"].tolist() == (layer.ravel() + 1).tolist()
    assert ratios["part"].tolist() == [PARTS[number] for number in part.ravel()]
    np.testing.assert_allclose(ratios["latest"], expected.latest.ravel(), atol=1e-5)


def test_parts_that_miss_the_output_end_the_sweep(cases, monkeypatch):
    monkeypatch.setattr(decomposition, "ADDITIVITY_TOLERANCE", -1.0)
    with pytest.raises(ArithmeticError, match="miss the block's output"):
        rank_scaled(
            model_of("sasrec"),
            cases,
            residual_scale=0.5,
            order="ordered",
            repeat=0,
            shuffle_seed=0,
            filter_seen=False,
            mixing=True,
        )
