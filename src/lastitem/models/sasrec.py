"""SASRec (Kang & McAuley, ICDM 2018): causal self-attention over the history."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lastitem.data.padding import PADDING
from lastitem.models.attention import AttentionBlock, AttentionBlocks, BlockTrace
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

    def __init__(
        self,
        items: int,
        *,
        maximum_length: int = 200,
        hidden_size: int = 64,
        blocks: int = 2,
        heads: int = 2,
        dropout: float = 0.2,
        block_order: str = "post",
    ) -> None:
        super().__init__(items, maximum_length)
        self.embedding = nn.Embedding(items + 1, hidden_size, padding_idx=PADDING)
        self.position = nn.Embedding(maximum_length, hidden_size)
        self.dropout = Dropout(dropout)
        self.input_norm = (
            nn.LayerNorm(hidden_size, eps=1e-8) if block_order == "post" else nn.Identity()
        )
        self.blocks = AttentionBlocks(
            AttentionBlock(hidden_size, heads, hidden_size, dropout, block_order)
            for _ in range(blocks)
        )
        self.output_norm = nn.LayerNorm(hidden_size, eps=1e-8)
        self.initialize()

    def encode(
        self,
        items: Tensor,
        length: Tensor,
        *,
        residual_scale: float = 1.0,
        trace: list[BlockTrace] | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        """See :meth:`SequenceModel.encode`; the output is [B, L, d]."""
        x = self.embedding(items) * self.embedding.embedding_dim**0.5
        x = self.input_norm(self.dropout(x + self.position(self.places(length, items.shape[1]))))
        return self.output_norm(self.blocks(x, None, residual_scale, trace, at))

    def places(self, length: Tensor, width: int) -> Tensor:
        """int64 [B, L]: the row of a position table for each position of right-padded
        inputs.

        The newest item has the last row, whatever the length, as in a left-padded
        input: so the next item is always predicted from the same place. Padding has the
        last row, too.
        """
        return (
            self.maximum_length - length[:, None] + torch.arange(width, device=length.device)
        ).clamp(max=self.maximum_length - 1)

    def item_vectors(self) -> Tensor:
        """See :meth:`SequenceModel.item_vectors`."""
        return self.embedding.weight[1:]
