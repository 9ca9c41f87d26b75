"""BERT4Rec (Sun et al., CIKM 2019): a bidirectional encoder trained to restore masked
items.
"""

from typing import Any

import torch
from torch import Tensor, nn

from lastitem.arrays import Ints
from lastitem.data.padding import PADDING, pad
from lastitem.data.sequences import Sequences
from lastitem.models import settings
from lastitem.models.attention import AttentionBlock, AttentionBlocks
from lastitem.models.dropout import Dropout
from lastitem.models.interface import SequenceModel, TrainingBatch, on_device
from lastitem.study.settings import FEW_LABELS

#: Of the waves that positions start as: large enough beside items (0.02) that attention
#: soon finds the neighbours of a mask, small enough that it sees the items.
_DEVIATION = 0.05


def waves(places: int, size: int) -> Tensor:
    """float [places, size]: sines and cosines with mean square 1 over a period, so that
    a step to the neighbour is one and the same rotation at each place, also where
    training has few labels.

    Their periods go from 2π to nearly 2π·``places`` (Vaswani et al. 2017, Section 3.5,
    with 10,000 for ``places``).
    """
    frequency = float(places) ** (-torch.arange(0, size, 2) / size)
    angle = torch.arange(places)[:, None] * frequency
    return 2**0.5 * torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :size]


class BERT4Rec(SequenceModel):
    """Post-LN transformer blocks without a causal mask, GELU feed-forward of inner size
    2·d.

    The next item is read at a [MASK] appended behind the history, so an input holds at
    most ``maximum_length`` − 1 items. Positions count from the oldest item: the place
    that is read then differs from user to user, and what is learned at a place in the
    middle of longer sequences serves there, too. They are learned, and start as
    :func:`waves`. Where training reached fewer places, an input holds fewer items
    (:attr:`input_length`). The embedding has a row for padding (0), the items (1 …
    items) and the mask (items + 1).

    Attributes
    ----------
    labels : int64 [maximum_length], how many labels of the training stood at each
        place.
    """

    Settings = settings.BERT4Rec
    reads_prefixes = False

    def __init__(self, items: int, **settings: Any) -> None:
        super().__init__(items, **settings)
        own = self.settings
        size = own.hidden_size
        self.mask = items + 1
        self.embedding = nn.Embedding(items + 2, size, padding_idx=PADDING)
        self.position = nn.Embedding(own.maximum_length, size)
        self.input_norm = nn.LayerNorm(size, eps=1e-12)
        self.dropout = Dropout(own.dropout)
        self.blocks = AttentionBlocks(
            AttentionBlock(
                size, own.heads, 2 * size, own.dropout, "post", activation="gelu", epsilon=1e-12
            )
            for _ in range(own.blocks)
        )
        self.output = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.LayerNorm(size, eps=1e-12))
        self.labels: Tensor
        self.register_buffer("labels", torch.zeros(own.maximum_length, dtype=torch.int64))
        self.initialize()
        with torch.no_grad():
            self.position.weight.copy_(_DEVIATION * waves(own.maximum_length, size))

    @property
    def input_length(self) -> int:
        """One less than the places that training reached, as the mask takes one: at a
        place behind them nothing was learned.

        A place counts as reached with :data:`FEW_LABELS`, in a short training with half
        of the labels of the place that has most.
        """
        enough = (self.labels.max() / 2).clamp(max=FEW_LABELS)
        return max(int((self.labels >= enough).nonzero().max()), 1)

    @property
    def is_cut_short(self) -> bool:
        """Whether some places were not reached."""
        return self.input_length < self.maximum_length - 1

    def readout_labels(self, length: Tensor) -> Tensor:
        """Those of the place where the mask stands."""
        return self.labels[self.readout(length)]

    def width(self, padded: int) -> int:
        """One more: the mask."""
        return padded + 1

    def readout(self, length: Tensor) -> Tensor:
        """The mask stands right behind the last item."""
        return length

    def encode(self, items: Tensor, length: Tensor, at: Tensor | None = None) -> Tensor:
        """See :meth:`SequenceModel.encode`; appends the mask, so the output is
        [B, L + 1, d].
        """
        longer = nn.functional.pad(items, (0, 1), value=PADDING)
        return self.forward(longer.scatter(1, length[:, None], self.mask), length + 1, at)

    def forward(self, items: Tensor, length: Tensor, at: Tensor | None = None) -> Tensor:
        """Encode inputs in which masks already stand, as they do in training: int64
        [B, L] → float [B, L, d], or [n, d] at the positions ``at``.
        """
        positions = torch.arange(items.shape[1], device=items.device)
        x = self.dropout(self.input_norm(self.embedding(items) + self.position(positions)))
        real = positions < length[:, None]
        return self.output(self.blocks(x, real[:, None, None, :], at))

    def training_batch(
        self, sequences: Sequences, index: Ints, generator: torch.Generator
    ) -> TrainingBatch:
        """The cloze task: each item is replaced by the mask with ``mask_probability``;
        a sequence with none masked has one of its items masked, any of them with equal
        chance. The labels are the items under the masks, counted in ``labels``.
        """
        items, length = pad(sequences, index, self.maximum_length)
        real = items != PADDING
        draws = torch.rand(items.shape, generator=generator).masked_fill(~real, torch.inf)
        masked = draws < self.settings.mask_probability
        lowest = torch.arange(items.shape[1]) == draws.argmin(dim=1, keepdim=True)
        masked |= lowest & ~masked.any(dim=1, keepdim=True)
        self.labels[: masked.shape[1]] += on_device(masked.sum(dim=0), str(self.labels.device))
        return TrainingBatch(items.masked_fill(masked, self.mask), length, masked, items[masked])
