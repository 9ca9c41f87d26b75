"""The floor of every comparison: items ranked by how often they occur in training."""

import torch
from torch import Tensor

from lastitem.data.sequences import Sequences
from lastitem.models.interface import Recommender


class Popularity(Recommender):
    """An item's score is its number of training events, whatever the history."""

    counts: Tensor

    def __init__(self, items: int) -> None:
        super().__init__(items)
        self.register_buffer("counts", torch.zeros(items, dtype=torch.float64))

    def scores(self, items: Tensor, length: Tensor) -> Tensor:
        """float64 [B, items]: the counts, for each history."""
        return self.counts.repeat(len(items), 1)

    def fit(self, sequences: Sequences) -> None:
        """Count the events of each item."""
        flat = torch.from_numpy(sequences.flattened)
        self.counts.copy_(torch.bincount(flat, minlength=self.items + 1)[1:])
