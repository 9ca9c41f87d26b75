"""Training batches with their negatives, and the groups a batch is computed in."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lastitem.arrays import Ints
from lastitem.data.padding import pad
from lastitem.data.sequences import Sequences
from lastitem.models.interface import SequenceModel, TrainingBatch, on_device


def length_groups(length: Ints, count: int) -> list[Ints]:
    """Part a batch into at most ``count`` groups, padded each to its longest, so that
    they hold the fewest padded positions.

    Parameters
    ----------
    length : int64 [B].

    Returns
    -------
    Places in ``length``, those of each group, from short to long.
    """
    order = np.argsort(length, kind="stable")
    # Equal lengths stay together, so only the distinct ones count.
    longest, counts = np.unique(length, return_counts=True)
    ends = np.append(0, counts.cumsum())
    # Of each group [start, end) of the distinct lengths; an empty one has none.
    padded = (ends - ends[:, None]) * np.append(0.0, longest)
    padded[ends < ends[:, None]] = np.inf
    # The fewest of all lengths before an end in one group, in two, …, and where the
    # last of these groups starts (Bellman's dynamic programming).
    fewest, starts = padded[0], []
    for _ in range(count - 1):
        total = fewest[:, None] + padded
        starts.append(total.argmin(axis=0))
        fewest = total.min(axis=0)
    cuts = [len(longest)]
    for start in reversed(starts):
        cuts.insert(0, int(start[cuts[0]]))
    return [group for group in np.split(order, ends[cuts[:-1]]) if len(group)]


def make_batch(
    model: SequenceModel,
    sequences: Sequences,
    index: Ints,
    negatives: int,
    generator: torch.Generator,
    device: str = "cpu",
) -> TrainingBatch:
    """The model's batch of the training examples at ``index``, with so many negatives
    for each label (or none), on a device.

    The batch is formed on the CPU with ``generator``; negatives are drawn on the device
    with its own one.
    """
    batch = model.training_batch(sequences, index, generator)
    there = batch.to(device)
    if negatives:
        seen, _ = pad(sequences, index, model.maximum_length + 1)
        row = batch.labelled.nonzero()[:, 0]
        there.negative = draw_negatives(
            on_device(seen, device), on_device(row, device), there.label, model.items, negatives
        )
    return there


def draw_negatives(seen: Tensor, row: Tensor, label: Tensor, items: int, count: int) -> Tensor:
    """Draw items for each label, uniformly among those that are not in its row's
    sequence, from torch's generator of their device.

    Each draw is a number r, and the item is the r-th that the row has not seen: with
    its seen items s_0 < s_1 < … that is r + |{j : s_j − j ≤ r}|. Nothing depends on
    values that a GPU would have to be asked for. Where a row has seen the whole
    catalogue, the draw is uniform among all items but the label.

    Parameters
    ----------
    seen : int64 [B, S], the items of each sequence; 0 is none.
    row : int64 [T], whose each label is.
    label : int64 [T].
    items : catalogue size, at least 2.
    count : k, draws for each label.

    Returns
    -------
    int64 [T, k], 1 … items, never equal to their label.
    """
    width = seen.shape[1]
    ordered = seen.sort(dim=1).values
    first = ordered > functional.pad(ordered, (1, 0))[:, :-1]
    # s_j − j of each seen item, once; the rest stands behind the last item.
    bound = torch.where(first, ordered - first.cumsum(dim=1) + 1, items + 1).sort(dim=1).values
    unseen = items - first.sum(dim=1)
    choices = torch.where(unseen > 0, unseen, items - 1)[row, None]
    drawn = torch.randint(1 << 62, (len(label), count), device=label.device) % choices + 1
    # One sorted list of all rows: each has its own range of numbers.
    start = torch.arange(len(seen), device=seen.device)[:, None] * (items + 2)
    place = torch.searchsorted((start + bound).flatten(), start[row] + drawn, right=True)
    other = drawn + (drawn >= label[:, None])
    return torch.where(unseen[row, None] > 0, drawn + place - row[:, None] * width, other)
