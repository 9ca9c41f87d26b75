"""Looking into a model from outside leaves it as it is: same bits before, inside and
after, also where the look ends in an error.
"""

import math

import pytest
import torch

from lastitem.errors import InputError
from lastitem.evaluation.probing import attention_blocks, probing
from lastitem.models.registry import build
from tests.models.batches import draw_parameters, padded, scaled

HISTORIES = [[4, 8, 15, 16, 23], [7], [9, 1, 9]]
MODELS = {
    "sasrec": {},
    "sasrec-pre": {"block_order": "pre"},
    "bert4rec": {},
    "bsarec": {},
    "duorec": {},
}


def model_of(name, **settings):
    sizes = {"maximum_length": 7, "hidden_size": 8, "heads": 2, "dropout": 0.3}
    settings = sizes | MODELS.get(name, {}) | settings
    return draw_parameters(build(name.removesuffix("-pre"), 30, settings)).eval()


@pytest.mark.parametrize("name", MODELS)
def test_bits_are_the_same_before_inside_and_after(name):
    """With λ = 1, alone and with a query for each sequence, of all vectors and of those
    of the prediction position, in evaluation and under the dropout of one seed.
    """
    model, (items, length) = model_of(name), padded(HISTORIES)
    query = model.readout(length)

    def all_and_read():
        torch.manual_seed(5)
        return [model.encode(items, length), model.read(items, length), model.scores(items, length)]

    for training in (False, True):
        model.train(training)
        before = all_and_read()
        for asked in ({}, {"query": query}, {"residual_scale": 1.0, "query": query}):
            with probing(model, **asked) as traces:
                inside = all_and_read()
            assert len(traces) == (6 if asked else 0)
            for found, expected in zip((*inside, *all_and_read()), before * 2, strict=True):
                assert torch.equal(found, expected)
    assert not torch.equal(scaled(model, items, length, 0.5), before[0])


@pytest.mark.parametrize("name", MODELS)
def test_an_error_inside_leaves_the_model_as_it_was(name):
    model, batch = model_of(name), padded(HISTORIES)
    before = model.encode(*batch)
    with (
        pytest.raises(ArithmeticError, match="of the reader"),
        probing(model, residual_scale=0.2, query="every"),
    ):
        model.encode(*batch)
        raise ArithmeticError("of the reader")
    assert torch.equal(model.encode(*batch), before)
    with pytest.raises(IndexError), probing(model, residual_scale=0.2, query=batch[1] + 50):
        model.encode(*batch)
    assert torch.equal(model.encode(*batch), before)


def test_the_inner_of_two_probes_counts_and_the_outer_comes_back():
    model, batch = model_of("sasrec"), padded(HISTORIES)
    plain = model.encode(*batch)
    with probing(model, residual_scale=0.2):
        outer = model.encode(*batch)
        with probing(model, residual_scale=1.0):
            assert torch.equal(model.encode(*batch), plain)
        assert torch.equal(model.encode(*batch), outer)
    assert torch.equal(model.encode(*batch), plain)


@pytest.mark.parametrize("name", MODELS)
def test_a_trace_of_one_query_is_that_row_of_the_trace_of_all(name):
    """Also while λ acts: both traces are those of the path that it makes."""
    model, (items, length) = model_of(name).double(), padded(HISTORIES)
    query, rows = model.readout(length), torch.arange(len(length))
    with probing(model, residual_scale=0.4, query="every") as every:
        model.encode(items, length)
    with probing(model, residual_scale=0.4, query=query) as one:
        model.encode(items, length)
    assert len(one) == len(every) == len(attention_blocks(model)) == 2
    for found, whole in zip(one, every, strict=True):
        assert found.query is query and whole.query is None
        assert found.residual_scale == whole.residual_scale == 0.4
        torch.testing.assert_close(found.values, whole.values)
        for part in ("attention", "mixed"):
            of_query = getattr(whole, part)[rows, :, query]
            torch.testing.assert_close(getattr(found, part)[:, :, 0], of_query)
        for part in ("residual", "before_norm", "after_norm"):
            torch.testing.assert_close(
                getattr(found, part)[:, 0], getattr(whole, part)[rows, query]
            )


@pytest.mark.parametrize("name", ["gru4rec", "popularity"])
def test_a_model_without_attention_is_refused(name):
    settings = {"hidden_size": 8} if name == "gru4rec" else {}
    model = build(name, 30, settings)
    assert attention_blocks(model) == []
    for asked in ({}, {"residual_scale": 0.5}, {"query": "every"}):
        with pytest.raises(InputError, match=f"{type(model).__name__} has no attention block"):
            probing(model, **asked).__enter__()


@pytest.mark.parametrize("scale", [-0.1, math.inf, -math.inf, math.nan])
def test_a_scale_that_is_no_factor_is_refused(scale):
    with pytest.raises(InputError, match=r"residual_scale: .* must be a finite number"):
        probing(model_of("sasrec"), residual_scale=scale).__enter__()
