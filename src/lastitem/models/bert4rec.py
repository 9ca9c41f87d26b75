"""BERT4Rec (Sun et al., CIKM 2019): a bidirectional encoder trained to restore masked
items.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lastitem.data.padding import PADDING
from lastitem.models.attention import AttentionBlock, AttentionBlocks, BlockTrace
from lastitem.models.dropout import Dropout
from lastitem.models.interface import SequenceModel


class BERT4Rec(SequenceModel):
    """Post-LN transformer blocks without a causal mask, GELU feed-forward of inner size
    2·d.

    The next item is read at a [MASK] appended behind the history, so an input holds at
    most ``maximum_length`` − 1 items. Positions count from the oldest item: the place
    that is read then differs from user to user, and what is learned at a place in the
    middle of longer sequences serves there, too. The embedding has a row for padding
    (0), the items (1 … items) and the mask (items + 1).
    """

    objective = "cloze"
    reads_prefixes = False

    def __init__(
        self,
        items: int,
        *,
        maximum_length: int = 200,
        hidden_size: int = 64,
        blocks: int = 2,
        heads: int = 2,
        dropout: float = 0.2,
        mask_probability: float = 0.2,
    ) -> None:
        super().__init__(items, maximum_length)
        self.mask_probability = mask_probability
        self.mask = items + 1
        self.embedding = nn.Embedding(items + 2, hidden_size, padding_idx=PADDING)
        self.position = nn.Embedding(maximum_length, hidden_size)
        self.input_norm = nn.LayerNorm(hidden_size, eps=1e-12)
        self.dropout = Dropout(dropout)
        self.blocks = AttentionBlocks(
            AttentionBlock(
                hidden_size,
                heads,
                2 * hidden_size,
                dropout,
                "post",
                activation="gelu",
                epsilon=1e-12,
            )
            for _ in range(blocks)
        )
        self.output = nn.Sequential(
            nn.Linear(hidden_size, hidden_size), nn.GELU(), nn.LayerNorm(hidden_size, eps=1e-12)
        )
        self.initialize()

    @property
    def input_length(self) -> int:
        """One less than ``maximum_length``: the mask takes a position."""
        return self.maximum_length - 1

    def width(self, padded: int) -> int:
        """One more: the mask."""
        return padded + 1

    def readout(self, length: Tensor) -> Tensor:
        """The mask stands right behind the last item."""
        return length

    def encode(
        self,
        items: Tensor,
        length: Tensor,
        *,
        residual_scale: float = 1.0,
        trace: list[BlockTrace] | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        """See :meth:`SequenceModel.encode`; appends the mask, so the output is [B, L +
        1, d].
        """
        masked = torch.cat((items, items.new_full((len(items), 1), PADDING)), dim=1)
        masked.scatter_(1, length[:, None], self.mask)
        return self.restore(masked, length + 1, residual_scale=residual_scale, trace=trace, at=at)

    def forward(self, items: Tensor, length: Tensor, at: Tensor) -> Tensor:
        """float [n, d]: in training the masks already stand in the inputs."""
        return self.restore(items, length, at=at)

    def restore(
        self,
        items: Tensor,
        length: Tensor,
        *,
        residual_scale: float = 1.0,
        trace: list[BlockTrace] | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        """Encode inputs in which masks already stand: int64 [B, L] →
        float [B, L, d].
        """
        positions = torch.arange(items.shape[1], device=items.device)
        x = self.dropout(self.input_norm(self.embedding(items) + self.position(positions)))
        real = positions < length[:, None]
        # Without padding a smaller mask is faster in training; in a ranking it would
        # make the path depend on the other rows.
        allowed = (
            real.new_ones(1, 1, 1, 1)
            if self.training and bool(real.all())
            else real[:, None, None, :]
        )
        return self.output(self.blocks(x, allowed, residual_scale, trace, at))

    def item_vectors(self) -> Tensor:
        """See :meth:`SequenceModel.item_vectors`; the mask's row is left out."""
        return self.embedding.weight[1:-1]
