"""The floor of every comparison: items ranked by how often they occur in training."""

from __future__ import annotations

import torch
from torch import Tensor

from lastitem.models.attention import BlockTrace
from lastitem.models.interface import SequenceModel


class Popularity(SequenceModel):
    """Every position's vector is (1), every item's vector is (number of training
    events).
    """

    objective = "counts"
    counts: Tensor

    def __init__(self, items: int, *, maximum_length: int = 1) -> None:
        super().__init__(items, maximum_length)
        self.register_buffer("counts", torch.zeros(items, dtype=torch.float64))

    def encode(
        self,
        items: Tensor,
        length: Tensor,
        *,
        residual_scale: float = 1.0,
        trace: list[BlockTrace] | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        """Ones of shape [B, L, 1], or [n, 1] at the positions ``at``."""
        return self.counts.new_ones((*items.shape, 1) if at is None else (len(at), 1))

    def item_vectors(self) -> Tensor:
        """float64 [items, 1]: the counts."""
        return self.counts[:, None]
