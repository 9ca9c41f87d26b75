"""Training batches with their negatives, and the groups a batch is computed in."""

import numpy as np
import torch
from torch import Tensor

from lastitem.arrays import Ints
from lastitem.data.padding import pad
from lastitem.data.sequences import Sequences
from lastitem.models.interface import SequenceModel, TrainingBatch

_REDRAWS = 16


def length_groups(sequences: Sequences, index: Ints, count: int) -> list[Ints]:
    """Part the sequences at ``index`` into ``count`` groups of similar length."""
    by_length = index[np.argsort(sequences.length[index], kind="stable")]
    return np.array_split(by_length, min(count, len(by_length)))


def make_batch(
    model: SequenceModel,
    sequences: Sequences,
    index: Ints,
    negatives: int,
    generator: torch.Generator,
) -> TrainingBatch:
    """The model's batch of the training examples at ``index``, with so many negatives
    for each label (or none); on the CPU.
    """
    batch = model.training_batch(sequences, index, generator)
    if negatives:
        seen, _ = pad(sequences, index, model.maximum_length + 1)
        row = batch.labelled.nonzero()[:, 0]
        batch.negative = draw_negatives(seen, row, batch.label, model.items, negatives, generator)
    return batch


def draw_negatives(
    seen: Tensor, row: Tensor, label: Tensor, items: int, count: int, generator: torch.Generator
) -> Tensor:
    """Draw items for each label, uniformly among those that are not in its row's
    sequence.

    Where a row has seen (nearly) the whole catalogue no such item may be found in 16
    draws; then the draw is uniform among all items but the label, so the loop always
    ends.

    Parameters
    ----------
    seen : int64 [B, S], the items of each sequence.
    row : int64 [T], whose each label is.
    label : int64 [T].
    items : catalogue size, at least 2.
    count : k, draws for each label.

    Returns
    -------
    int64 [T, k], 1 … items, never equal to their label.
    """
    width = items + 1
    known = (torch.arange(len(seen))[:, None] * width + seen).unique()

    def draw(label: Tensor) -> Tensor:
        other = torch.randint(1, items, label.shape, generator=generator)
        return other + (other >= label)

    negative = draw(label.repeat_interleave(count))
    place = torch.arange(len(negative))
    for _ in range(_REDRAWS):
        wanted = row[place // count] * width + negative[place]
        found = torch.searchsorted(known, wanted).clamp_(max=len(known) - 1)
        place = place[known[found] == wanted]
        if not len(place):
            break
        negative[place] = draw(label[place // count])
    return negative.view(-1, count)
