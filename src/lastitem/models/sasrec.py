"""SASRec (Kang & McAuley, ICDM 2018): causal self-attention over the history."""

from typing import Any

import torch
from torch import Tensor, nn

from lastitem.data.padding import PADDING
from lastitem.models import settings
from lastitem.models.attention import AttentionBlock, AttentionBlocks
from lastitem.models.dropout import Dropout
from lastitem.models.interface import SequenceModel


class SASRec(SequenceModel):
    """Causal transformer with learned positions and item vectors tied to the input
    embedding.

    ``post`` (the order the RecSys '26 paper analyses): E·√d + P → dropout → LN → blocks
    → LN. ``pre`` (2018): E·√d + P → dropout → blocks → LN.

    Inputs are right-padded, so with the causal mask no real position attends to
    padding. Positions count from the newest item (:meth:`places`), as in the
    left-padded inputs of the original.
    """

    Settings = settings.SASRec

    def __init__(self, items: int, **settings: Any) -> None:
        super().__init__(items, **settings)
        own = self.settings
        size = own.hidden_size
        self.embedding = nn.Embedding(items + 1, size, padding_idx=PADDING)
        self.position = nn.Embedding(own.maximum_length, size)
        self.dropout = Dropout(own.dropout)
        post = own.block_order == "post"
        self.input_norm = nn.LayerNorm(size, eps=1e-8) if post else nn.Identity()
        self.blocks = AttentionBlocks(
            AttentionBlock(size, own.heads, size, own.dropout, own.block_order)
            for _ in range(own.blocks)
        )
        self.output_norm = nn.LayerNorm(size, eps=1e-8)
        self.initialize()

    def encode(self, items: Tensor, length: Tensor, at: Tensor | None = None) -> Tensor:
        """See :meth:`SequenceModel.encode`; the output is [B, L, d]."""
        x = self.embedding(items) * self.embedding.embedding_dim**0.5
        x = self.dropout(x + self.position(self.places(length, items.shape[1])))
        return self.output_norm(self.blocks(self.input_norm(x), None, at))

    def places(self, length: Tensor, width: int) -> Tensor:
        """int64 [B, L]: the row of a position table for each position of right-padded
        inputs.

        The newest item has the last row, whatever the length, as in a left-padded
        input: so the next item is always predicted from the same place. Padding has the
        last row, too.
        """
        step = torch.arange(width, device=length.device)
        return (self.maximum_length - length[:, None] + step).clamp(max=self.maximum_length - 1)
