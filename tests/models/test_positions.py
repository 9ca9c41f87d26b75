"""Vectors at chosen positions: the same numbers and gradients as among all positions,
with less computed.
"""

from contextlib import nullcontext

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lastitem.evaluation.probing import probing
from lastitem.models.registry import build
from tests.models.batches import draw_parameters, padded

HISTORIES = [[4, 8, 15, 16, 23], [7], [9, 1, 9]]
SETTINGS = {
    "sasrec": {"block_order": "post"},
    "sasrec-pre": {"block_order": "pre"},
    "gru4rec": {},
    "bert4rec": {},
    "bsarec": {},
    "duorec": {},
}


def model_of(name):
    settings = {"maximum_length": 7, "hidden_size": 8, **SETTINGS[name]}
    if name != "gru4rec":
        settings |= {"heads": 2}
    return draw_parameters(build(name.removesuffix("-pre"), 30, settings)).double().eval()


@pytest.mark.parametrize("name", SETTINGS)
def test_chosen_positions_equal_those_among_all(name):
    """One position per row, several, none of a row, the same one twice; λ acts in the
    last block as in the others.
    """
    items, length = padded(HISTORIES)
    model = model_of(name)
    width = model.encode(items, length).shape[1]
    row, column = torch.tensor([0, 0, 2, 2, 1]), torch.tensor([4, 1, 2, 2, 0])
    gradients, vectors = [], []
    for at in (row * width + column, None):
        model.zero_grad()
        with nullcontext() if name == "gru4rec" else probing(model, residual_scale=0.3):
            out = model.encode(items, length, at)
        vectors.append(out if at is not None else out[row, column])
        (vectors[-1] ** 2).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.testing.assert_close(vectors[0], vectors[1], rtol=0, atol=1e-12)
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", SETTINGS)
def test_fewer_positions_take_fewer_operations(name):
    items, length = padded(HISTORIES)
    model = model_of(name)
    counts = []
    for keywords in ({}, {"at": torch.tensor([3])}):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model.encode(items, length, **keywords)
        counts.append(counter.get_total_flops())
    assert counts[1] < counts[0]


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "gru4rec"])
def test_a_trace_is_of_all_positions(name):
    model = model_of(name)
    with (
        probing(model, query="every"),
        pytest.raises(ValueError, match="a trace of every position needs the vectors of every"),
    ):
        model.encode(*padded(HISTORIES), torch.tensor([0]))
