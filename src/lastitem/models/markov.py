"""What follows the last item, counted: a Markov chain of first order."""

import numpy as np
import torch
from torch import Tensor

from lastitem.data.sequences import Sequences
from lastitem.models.interface import Recommender
from lastitem.models.sparse_rows import SparseRows

#: μ: the popularity counts as much as so many events behind an item.
SMOOTHING = 1.0


class Markov(Recommender):
    """Score of j after i: (c_ij + μ p_j) / (c_i + μ), with c_ij how often j came right
    behind i in training, c_i = Σ_j c_ij, p_j the share of the training events that are
    of j, and μ = 1.

    Counted transitions, smoothed towards the popularity (Dirichlet smoothing; Zhai and
    Lafferty, SIGIR 2001). A yardstick: the last item is all it reads.

    Attributes
    ----------
    followers : c_ij, the pairs that occur.
    followed : float64 [items], c_i.
    share : float64 [items], p_j.
    """

    reads_last_item_only = True
    followed: Tensor
    share: Tensor

    def __init__(self, items: int) -> None:
        super().__init__(items)
        self.followers = SparseRows(items)
        self.register_buffer("followed", torch.zeros(items, dtype=torch.float64))
        self.register_buffer("share", torch.zeros(items, dtype=torch.float64))

    def fit(self, sequences: Sequences) -> None:
        """Count the pairs of neighbours within a sequence, and the events."""
        flat = sequences.flattened.astype(np.int64) - 1
        row = np.repeat(np.arange(len(sequences)), sequences.length)
        together = row[1:] == row[:-1]
        # One number for a pair: they sort by the first item, then by the second.
        pairs, count = np.unique(
            flat[:-1][together] * self.items + flat[1:][together], return_counts=True
        )
        before, after = np.divmod(pairs, self.items)
        kept = np.bincount(before, minlength=self.items)
        self.followers.fill(kept, after.astype(np.int32), count.astype(np.float64))
        followed = np.bincount(before, weights=count, minlength=self.items)
        self.followed.copy_(torch.from_numpy(followed))
        events = np.bincount(flat, minlength=self.items)
        self.share.copy_(torch.from_numpy(events / len(flat)))

    def scores(self, items: Tensor, length: Tensor) -> Tensor:
        """float64 [B, items], see :meth:`Recommender.scores`."""
        last = items.gather(1, length[:, None] - 1)[:, 0]
        scores = (SMOOTHING * self.share).repeat(len(items), 1)
        self.followers.add_to(scores, last)
        return scores.div_((self.followed[last - 1] + SMOOTHING)[:, None])
