"""Training batches: what a model reads, where it is asked, and the answers, for each of
the objectives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lastitem.data.padding import PADDING, pad
from lastitem.data.sequences import Sequences
from lastitem.models.bert4rec import BERT4Rec
from lastitem.models.interface import SequenceModel
from lastitem.training.losses import draw_negatives


@dataclass
class Batch:
    """A padded group: what the model reads, where it is asked, and the answers (with
    negatives for the sampled losses).
    """

    items: Tensor
    length: Tensor
    labelled: Tensor
    label: Tensor
    negative: Tensor | None

    def to(self, device: str) -> Batch:
        """The same batch on a device. To a GPU it is copied from pinned memory, while
        the GPU still works on what came before.
        """
        pinned = torch.device(device).type == "cuda"

        def move(part: Tensor) -> Tensor:
            return part.pin_memory().to(device, non_blocking=True) if pinned else part.to(device)

        negative = None if self.negative is None else move(self.negative)
        return Batch(
            move(self.items), move(self.length), move(self.labelled), move(self.label), negative
        )


def next_item_batch(
    sequences: Sequences, index: NDArray[np.int64], maximum_length: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The newest ``maximum_length`` + 1 items: all but the last are read, all but the
    first are labels.

    Returns
    -------
    items, length, labelled (bool [B, L]), label (int64 [B, L], 0 where not labelled).
    """
    items, length = pad(sequences, index, maximum_length + 1)
    label = items[:, 1:]
    return items[:, :-1] * (label != PADDING), length - 1, label != PADDING, label


def last_item_batch(
    model: SequenceModel, sequences: Sequences, index: NDArray[np.int64]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All but the last item are read; only the read-out position is labelled, with the
    last item.

    Returns
    -------
    items, length, labelled, label as :func:`next_item_batch`, the latter two of the
    model's fixed length.
    """
    items, length = pad(sequences, index, model.maximum_length + 1)
    rows = torch.arange(len(items))
    last = items[rows, length - 1]
    items[rows, length - 1] = PADDING
    label = torch.zeros(len(items), model.maximum_length, dtype=torch.int64)
    label[rows, model.readout(length - 1)] = last
    return items[:, :-1], length - 1, label != PADDING, label


def cloze_batch(
    sequences: Sequences, index: NDArray[np.int64], model: BERT4Rec, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Each item is replaced by the mask with the model's probability; a sequence with
    none masked has one of its items masked, any of them with equal chance.

    Returns
    -------
    items, length, labelled, label as :func:`next_item_batch`; the labels are the items
    under the masks.
    """
    items, length = pad(sequences, index, model.maximum_length)
    real = items != PADDING
    draws = torch.rand(items.shape, generator=generator).masked_fill(~real, torch.inf)
    masked = draws < model.mask_probability
    lowest = torch.arange(items.shape[1]) == draws.argmin(dim=1, keepdim=True)
    masked |= lowest & ~masked.any(dim=1, keepdim=True)
    return (
        items.masked_fill(masked, model.mask),
        length,
        masked,
        items.masked_fill(~masked, PADDING),
    )


def make_batch(
    model: SequenceModel,
    sequences: Sequences,
    index: NDArray[np.int64],
    negatives: int,
    generator: torch.Generator,
) -> Batch:
    """Form one group for the model's objective, with so many negatives for each label
    (or none); on the CPU.
    """
    if isinstance(model, BERT4Rec):
        items, length, labelled, label = cloze_batch(sequences, index, model, generator)
    elif model.objective == "prefix":
        items, length, labelled, label = last_item_batch(model, sequences, index)
    else:
        items, length, labelled, label = next_item_batch(sequences, index, model.maximum_length)
    negative = None
    if negatives:
        seen, _ = pad(sequences, index, model.maximum_length + 1)
        negative = draw_negatives(
            seen, labelled.nonzero()[:, 0], label[labelled], model.items, negatives, generator
        )
    return Batch(items, length, labelled, label[labelled], negative)
