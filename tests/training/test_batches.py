"""Groups with the fewest padded positions; an update that asks nothing of its
device.
"""

from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch

from lastitem.models.registry import build
from lastitem.study.settings import TrainingSettings
from lastitem.training.batches import length_groups
from lastitem.training.step import move_average, update
from tests.training.test_losses import sequences_of

MODELS = ["sasrec", "gru4rec", "bert4rec", "bsarec", "duorec"]


def padded_positions(lengths):
    return sum(len(group) * max(group) for group in lengths if len(group))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_no_other_groups_have_fewer_padded_positions(count):
    """Against all ways to cut the sorted lengths; each sequence is in one group."""
    random = np.random.default_rng(count)
    for _ in range(60):
        lengths = random.integers(1, random.integers(2, 12), random.integers(1, 9))
        groups = length_groups(lengths, count)
        assert sorted(np.concatenate(groups).tolist()) == list(range(len(lengths)))
        assert len(groups) <= count and all(map(len, groups))
        ordered = np.sort(lengths)
        assert padded_positions(lengths[group] for group in groups) == min(
            padded_positions(np.split(ordered, cuts))
            for cuts in combinations_with_replacement(range(len(lengths) + 1), count - 1)
        )


def test_groups_by_hand():
    """One long sequence stands alone; of equal lengths one group is enough."""
    lengths = np.array([3, 100, 2, 3, 2])
    assert [group.tolist() for group in length_groups(lengths, 2)] == [[2, 4, 0, 3], [1]]
    assert [group.tolist() for group in length_groups(lengths, 3)] == [[2, 4], [0, 3], [1]]
    assert [sorted(group) for group in length_groups(np.array([4, 4, 4]), 3)] == [[0, 1, 2]]
    assert [group.tolist() for group in length_groups(np.array([7]), 4)] == [[0]]


@pytest.mark.parametrize("loss", ["softmax", "gbce"])
@pytest.mark.parametrize("architecture", MODELS)
def test_an_update_does_not_wait_for_its_device(architecture, loss):
    """Tensors of the device ``meta`` have no values, so whatever asks for one fails: a
    number, a truth value, a shape that follows from values, a copy to the CPU.
    """
    sequences = sequences_of([[1, 2, 3, 4], [5, 6], [7, 8, 9, 1, 2, 3], [4, 2, 4]] * 3)
    model = build(architecture, 40, {"hidden_size": 8, "maximum_length": 5}).to("meta").train()
    optimizer = torch.optim.Adam(model.parameters())
    settings = TrainingSettings(loss=loss, num_negatives=3)
    generator = torch.Generator().manual_seed(0)
    examples = model.examples(sequences)
    for count in (1, 2):
        found, labels = update(
            model, optimizer, examples, np.arange(10), settings, generator, "meta"
        )
        move_average(optimizer, 0.9, count)
    assert found.device.type == "meta" and labels >= 10
    with pytest.raises(RuntimeError):
        float(found)
