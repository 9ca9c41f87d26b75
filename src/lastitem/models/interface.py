"""What ranking, training and the diagnostics ask of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lastitem.models.attention import AttentionBlock, BlockTrace


class SequenceModel(nn.Module):
    """Items in, one vector per position out; a score is the dot product with an item's
    vector.

    Attributes
    ----------
    objective : ``next_item`` (every position predicts the item after it), ``prefix``
        (only the last position does, so that each prefix is a sample of its own),
        ``cloze`` (masked items are predicted) or ``counts`` (nothing is trained by
        gradient).
    reads_prefixes : whether position i holds a prediction made from the items up to i
        alone (a causal model), so that moving the read-out back reads an earlier
        prediction.
    """

    objective: str = "next_item"
    reads_prefixes: bool = True

    def __init__(self, items: int, maximum_length: int) -> None:
        super().__init__()
        self.items = items
        self.maximum_length = maximum_length

    @property
    def input_length(self) -> int:
        """How many of the newest items an input may hold."""
        return self.maximum_length

    def _attention_blocks(self) -> list[AttentionBlock]:
        return [module for module in self.modules() if isinstance(module, AttentionBlock)]

    @property
    def attention_blocks(self) -> int:
        """How many attention blocks the model is made of."""
        return len(self._attention_blocks())

    @property
    def attention_heads(self) -> int:
        """How many heads each of them has."""
        return max((block.attention.heads for block in self._attention_blocks()), default=0)

    @property
    def has_other_branch(self) -> bool:
        """Whether something besides attention mixes positions in a block."""
        return any(block.other_branch is not None for block in self._attention_blocks())

    @property
    def has_attention(self) -> bool:
        """Whether the decomposition and the residual scale have a meaning."""
        return self.attention_blocks > 0

    def encode(
        self,
        items: Tensor,
        length: Tensor,
        *,
        residual_scale: float = 1.0,
        trace: list[BlockTrace] | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        """Encode right-padded inputs.

        Parameters
        ----------
        items : int64 [B, L], 0 behind the end.
        length : int64 [B].
        residual_scale : λ of every attention block.
        trace : a list to which each attention block appends its trace; a
            :class:`~lastitem.models.attention.QueryTrace` for single queries.
        at : int64 [n], positions of the output, numbered row by row
            (:func:`lastitem.models.attention.positions_at`): what only other positions
            need is not computed. Not together with a trace of all positions.

        Returns
        -------
        float [B, L', d] with L' ≥ L, the read-out at :meth:`readout`; with ``at`` the
        vectors [n, d] of these positions.
        """
        raise TypeError(f"{type(self).__name__} does not encode")

    def forward(self, items: Tensor, length: Tensor, at: Tensor) -> Tensor:
        """float [n, d]: what training asks of a model, the vectors of the labelled
        positions; see :meth:`encode`.
        """
        return self.encode(items, length, at=at)

    def read(
        self, items: Tensor, length: Tensor, offsets: Sequence[int] = (0,), **keywords: Any
    ) -> Tensor:
        """float [offsets, B, d]: the vectors of the read-out, and of the read-out moved
        back by each further offset (at most to position 0); nothing else is computed in
        the last block. The arguments are those of :meth:`encode`.
        """
        moved = torch.stack([(self.readout(length) - offset).clamp(min=0) for offset in offsets])
        row = torch.arange(len(items), device=items.device) * self.width(items.shape[1])
        return self.encode(items, length, at=(row + moved).flatten(), **keywords).unflatten(
            0, moved.shape
        )

    def width(self, padded: int) -> int:
        """L' of the output of :meth:`encode` for inputs padded to L."""
        return padded

    def readout(self, length: Tensor) -> Tensor:
        """int64 [B]: the position of ``encode``'s output from which the next item is
        predicted.
        """
        return length - 1

    def input_start(self, length: Tensor) -> Tensor:
        """int64 [B]: the position of ``encode``'s output that belongs to the first
        item.
        """
        return torch.zeros_like(length)

    def item_vectors(self) -> Tensor:
        """float [items, d]: row i − 1 is item i. Padding and mask have no row, so they
        cannot be recommended.
        """
        raise TypeError(f"{type(self).__name__} has no item vectors")

    def initialize(self, embedding_deviation: float = 0.02) -> None:
        """Draw linear weights from N(0, 0.02²) and embeddings with their own deviation;
        zero biases and the padding row.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(
                    module.weight,
                    std=embedding_deviation if isinstance(module, nn.Embedding) else 0.02,
                )
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                with torch.no_grad():
                    module.weight[module.padding_idx].zero_()
