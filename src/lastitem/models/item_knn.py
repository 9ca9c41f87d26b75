"""Items that the same users have: nearest neighbours of the items of a history."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastitem.arrays import Codes, Floats, Ints
from lastitem.data.padding import PADDING
from lastitem.data.sequences import Sequences
from lastitem.models import settings
from lastitem.models.interface import Recommender
from lastitem.models.sparse_rows import SparseRows

#: Most neighbours that are kept of an item.
NEIGHBOURS = 1000
#: Numbers of a block of co-occurrences at most: some hundred megabytes while it is
#: sorted.
_BLOCK = 1 << 22
#: Similarities are multiples of its inverse: the sum of 4,096 of them is exact.
_GRID = 2.0**40
#: What the popularity adds: less than a quarter of the distance to the next float32,
#: and where nothing is similar far less than any similarity (1 / users at least).
_AMONG_EQUAL, _AMONG_ZEROS = 2.0**-26, 2.0**-100


class ItemKNN(Recommender):
    """Score of j: Σ sim(i, j) over the distinct items i of the newest ``newest`` ones,
    with sim the cosine of the items' binary user vectors, n_ij / √(n_i n_j).

    Item-based collaborative filtering (Sarwar et al., WWW 2001; Deshpande and Karypis,
    TOIS 2004). An item has similarity 0 to itself, and to all but its 1,000 most
    similar ones. A yardstick: with ``newest: 1`` it reads the last item alone, with
    more or all of them it knows no order among them.

    Equal scores go by the number of training events, then by id. The ranking orders
    equal scores by id, so the popularity is part of the score f (1 + q 2⁻²⁶) + q 2⁻¹⁰⁰:
    f is the sum rounded to float32, so that sums that differ by rounding alone are
    equal, and q in [0, 1) is the place of j among the different numbers of events. That
    moves no f past another: they are at least 2⁻²⁴ f apart.

    Attributes
    ----------
    similarities : sim(i, j).
    popularity : float64 [items], q.
    """

    Settings = settings.ItemKNN
    popularity: Tensor

    def __init__(self, items: int, **settings: Any) -> None:
        super().__init__(items, **settings)
        self.reads_last_item_only = self.settings.newest == 1
        self.similarities = SparseRows(items)
        self.register_buffer("popularity", torch.zeros(items, dtype=torch.float64))

    def fit(self, sequences: Sequences) -> None:
        """Count who has which items, and keep each item's nearest neighbours."""
        events = np.bincount(sequences.flattened, minlength=self.items + 1)[1:]
        different, place = np.unique(events, return_inverse=True)
        self.popularity.copy_(torch.from_numpy(place / len(different)))
        counts = np.zeros(self.items, dtype=np.int64)
        columns, values = [np.zeros(0, dtype=np.int32)], [np.zeros(0)]
        for row, column, value in similar_items(sequences, self.items):
            kept = nearest(row, column, value, events)
            counts += np.bincount(row[kept], minlength=self.items)
            columns.append(column[kept])
            values.append(value[kept])
        self.similarities.fill(counts, np.concatenate(columns), np.concatenate(values))

    def scores(self, items: Tensor, length: Tensor) -> Tensor:
        """float64 [B, items], see :meth:`Recommender.scores`; the same bits in whatever
        order the items stand.
        """
        if self.reads_last_item_only:
            scores = self.popularity.new_zeros(len(items), self.items)
            self.similarities.add_to(scores, items.gather(1, length[:, None] - 1)[:, 0])
        else:
            scores = self.similarities.sums(newest_items(items, length, self.settings.newest))
        scores.copy_(scores.float())
        scores.mul_(1 + _AMONG_EQUAL * self.popularity)
        return scores.add_(_AMONG_ZEROS * self.popularity)


def newest_items(items: Tensor, length: Tensor, newest: int) -> Tensor:
    """int64 [B, L]: the newest items of an input (0: all), 0 in the other places."""
    step = torch.arange(items.shape[1], device=items.device)
    read = step < length[:, None]
    if newest:
        read &= step >= length[:, None] - newest
    return torch.where(read, items, PADDING)


def similar_items(sequences: Sequences, items: int) -> Iterator[tuple[Ints, Codes, Floats]]:
    """Pairs of different items that share a user, in blocks of whole rows: row (int64),
    column (int32), both item − 1 and in rising order, and their cosine (float64,
    rounded to a multiple of 2⁻⁴⁰, so that sums are exact in any order).
    """
    from scipy import sparse  # A fifth of a second, for whoever only scores.

    flat = sequences.flattened.astype(np.int64) - 1
    user = np.repeat(np.unique(sequences.user, return_inverse=True)[1], sequences.length)
    shape = (int(user.max(initial=-1)) + 1, items)
    # A user who has an item twice has it.
    user, item = np.divmod(np.unique(user * items + flat), items)
    has = sparse.csr_array((np.ones(len(item), dtype=np.int32), (user, item)), shape=shape)
    had = has.T.tocsr()
    users = np.diff(had.indptr).astype(np.int64)
    # A row has at most so many pairs: all items of its users, or all there are.
    most = np.minimum(had.astype(np.int64) @ np.diff(has.indptr).astype(np.int64), items)
    block = np.cumsum(most) // _BLOCK
    ends = np.append(np.flatnonzero(np.diff(block)) + 1, items)
    begin = 0
    for end in ends.tolist():
        together = (had[begin:end] @ has).tocsr()
        together.sort_indices()
        row = np.repeat(np.arange(begin, end), np.diff(together.indptr))
        others = together.indices != row
        row, column = row[others], together.indices[others].astype(np.int32)
        cosine = together.data[others] / np.sqrt(users[row] * users[column])
        yield row, column, np.round(cosine * _GRID) / _GRID
        begin = end


def nearest(row: Ints, column: Codes, value: Floats, events: Ints) -> Ints:
    """int64 [kept]: which pairs are among the 1,000 of their row with the largest
    value, in rising order.

    Of values that are one number in float32 (they may differ by rounding alone) those
    with more events come first, then the lower ids.
    """
    places = np.bincount(row)[row]
    long = np.flatnonzero(places > NEIGHBOURS)
    if not len(long):
        return np.arange(len(row))
    keys = (column[long], -events[column[long]], -value[long].astype(np.float32), row[long])
    ordered = long[np.lexsort(keys)]
    # Rows are in order, so the place in a row is that behind the row's first pair.
    first = np.searchsorted(row[long], row[ordered])
    kept = places <= NEIGHBOURS
    kept[ordered[np.arange(len(ordered)) - first < NEIGHBOURS]] = True
    return np.flatnonzero(kept)
