"""What a model is given in place of its input: its items in another order, fewer of
them, or items of another user.

The input is the history cut to the model's window. What is drawn depends on (seed,
repeat, user) alone, never on the batch, the order of the file or the number of
workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lastitem.arrays import Bools, Codes, Ints
from lastitem.data.padding import PADDING
from lastitem.data.sequences import HeldOut
from lastitem.data.splits import consecutive
from lastitem.evaluation.ranking import Change
from lastitem.randomness import STREAM_DONORS, STREAM_POOL, STREAM_SHUFFLE, hash_keys
from lastitem.study.interventions import known, newest_count

#: Draws of a pooled item after which a place is left out: only where nearly all there
#: is to draw is the target or the own last item.
_MOST_DRAWS = 64

#: Items [B, L], right-padded, and lengths [B]; a length of 0 means that the
#: intervention has no meaning for this input.
Inputs = tuple[NDArray[np.int64], Ints]


@dataclass(frozen=True)
class Draw:
    """One repeat: the test cases, the model's window, and what is drawn.

    Attributes
    ----------
    window : newest items that an input holds.
    seed, repeat : with the user they decide what is drawn.
    """

    cases: HeldOut
    window: int
    seed: int
    repeat: int

    @cached_property
    def donors(self) -> Donors:
        """The test users on their ring."""
        return Donors.on_a_ring(self)

    @cached_property
    def pool(self) -> Codes:
        """int32 [events], sorted: the earlier items of all test users."""
        return np.sort(self.donors.earlier)


@dataclass(frozen=True)
class Donors:
    """Test users on a ring, in the order of hash(seed, repeat, user); the donor of a
    user is the next one, and where that does not suffice the one after it.

    Of a user with several targets the latest case gives.

    Attributes
    ----------
    place : int64 [cases], where the user of a case stands on the ring.
    last : int32 [users], last item of each, along the ring.
    earlier : int32 [events], the items before it of all inputs, against the ring: what
        stands in front of a user's own is what the next one gives.
    start, end : int64 [users], where those of each begin and end, along the ring.
    """

    place: Ints
    last: Codes
    earlier: Codes
    start: Ints
    end: Ints

    @classmethod
    def on_a_ring(cls, draw: Draw) -> Donors:
        """The ring of the cases of a draw."""
        cases = draw.cases
        users, of_case = np.unique(cases.user, return_inverse=True)
        latest = np.zeros(len(users), dtype=np.int64)
        by_time = np.argsort(cases.end - cases.start, kind="stable")
        latest[of_case[by_time]] = by_time
        ring = np.argsort(hash_keys(STREAM_DONORS, draw.seed, draw.repeat, users), kind="stable")
        place = np.empty_like(ring)
        place[ring] = np.arange(len(ring))
        chosen = latest[ring]
        count = np.minimum(cases.length[chosen], draw.window) - 1
        stop = cases.end[chosen] - 1
        end = np.cumsum(count[::-1])[::-1]
        earlier = cases.items[consecutive((stop - count)[::-1], count[::-1])]
        return cls(place[of_case], cases.items[stop], earlier, end - count, end)

    def lasts(self, place: Ints, unwanted: NDArray[np.int64]) -> Codes:
        """int32 [B]: for users at these places the last item of the first donor whose
        last item is none of ``unwanted`` [B, …]; 0 where all are.
        """
        found = np.zeros(len(place), dtype=np.int32)
        for step in range(1, len(self.last)):
            waiting = np.flatnonzero(found == 0)
            if not len(waiting):
                break
            offered = self.last[(place[waiting] + step) % len(self.last)]
            wanted = (offered[:, None] != unwanted[waiting]).all(axis=1)
            found[waiting[wanted]] = offered[wanted]
        return found

    def contexts(self, place: Ints, count: Ints, unwanted: NDArray[np.int64]) -> Inputs:
        """For users at these places the newest ``count`` [B] items of the donor that
        are none of ``unwanted`` [B, …], those of further donors in front; fewer where
        the whole ring has no more.
        """
        total = len(self.earlier)
        available = total - (self.end - self.start)[place]
        taken = np.minimum(count + unwanted.shape[1], available)
        while True:
            back = np.arange(int(taken.max(initial=0)), 0, -1)
            at = self.start[place][:, None] - back
            items = self.earlier[at % max(total, 1)] if total else np.zeros_like(at, np.int32)
            chosen = (back <= taken[:, None]) & (items[:, :, None] != unwanted[:, None]).all(axis=2)
            short = (chosen.sum(axis=1) < count) & (taken < available)
            if not short.any():
                break
            taken = np.where(short, np.minimum(2 * taken, available), taken)
        # Of these the newest.
        chosen &= chosen[:, ::-1].cumsum(axis=1)[:, ::-1] <= count[:, None]
        return _packed(items, chosen)


def intervention(
    name: str, cases: HeldOut, window: int, *, seed: int = 0, repeat: int = 0
) -> Change:
    """The function that :func:`lastitem.evaluation.ranking.rank` applies to each input.

    Parameters
    ----------
    name : one of :data:`lastitem.study.interventions.INTERVENTIONS`, or ``newest_k``.
    cases : all test cases; those that are ranked, with others to take items from.
    window : newest items that an input of the model holds (``model.input_length``).
    seed, repeat : with the user they alone decide what is drawn.

    Raises
    ------
    InputError for an unknown name.
    """
    known(name)
    return _change(name, Draw(cases, window, seed, repeat))


def interventions(
    ways: list[tuple[str, int]], cases: HeldOut, window: int, seed: int
) -> Mapping[tuple[str, int], Change]:
    """:func:`intervention` of each name and repeat; a repeat has one ring of donors."""
    draws = {repeat: Draw(cases, window, seed, repeat) for _, repeat in ways}
    return {(name, repeat): _change(name, draws[repeat]) for name, repeat in ways}


def _change(name: str, draw: Draw) -> Change:
    count = newest_count(name)
    function = FUNCTIONS[name] if count is None else partial(newest, count=count)

    def change(items: Tensor, length: Tensor, case: Ints) -> tuple[Tensor, Tensor]:
        changed, of_length = function(draw, items.numpy(), length.numpy(), case)
        return torch.from_numpy(changed.astype(np.int64)), torch.from_numpy(of_length)

    return change


def ordered(draw: Draw, items: NDArray[np.int64], length: Ints, case: Ints) -> Inputs:
    """The input as it is."""
    return items, length


def permuted(
    draw: Draw, items: NDArray[np.int64], length: Ints, case: Ints, *, keep_last: bool
) -> Inputs:
    """The items in random order, each order with equal chance; with ``keep_last`` the
    last item stays in its place.
    """
    position = np.arange(items.shape[1])
    movable = position < (length - int(keep_last))[:, None]
    user = draw.cases.user[case][:, None]
    key = hash_keys(STREAM_SHUFFLE, draw.seed, draw.repeat, user, position) >> np.uint64(1)
    # Keys above every random one, ascending: what may not move sorts behind, in its own
    # order.
    key = np.where(movable, key, np.uint64(1 << 63) + position.astype(np.uint64))
    order = np.argsort(key, axis=1, kind="stable")
    return np.take_along_axis(items, order, axis=1), length


def newest(draw: Draw, items: NDArray[np.int64], length: Ints, case: Ints, *, count: int) -> Inputs:
    """The newest ``count`` items."""
    kept = np.minimum(length, count)
    step = np.arange(min(count, items.shape[1]))
    at = np.minimum((length - kept)[:, None] + step, items.shape[1] - 1)
    return np.where(step < kept[:, None], np.take_along_axis(items, at, axis=1), PADDING), kept


def without_last(draw: Draw, items: NDArray[np.int64], length: Ints, case: Ints) -> Inputs:
    """All items but the last; an input of one item has no other."""
    kept = length - 1
    return np.where(np.arange(items.shape[1]) < kept[:, None], items, PADDING), kept


def strangers_context(draw: Draw, items: NDArray[np.int64], length: Ints, case: Ints) -> Inputs:
    """The own last item behind as many earlier items of the donor, in their order, as
    the user has: the newest that are neither the user's target nor own last item.
    """
    own, last = _own(draw, items, length, case), _last(items, length)
    earlier = draw.donors.contexts(draw.donors.place[case], length - 1, own)
    return _behind(earlier, last, items.shape[1])


def strangers_last(draw: Draw, items: NDArray[np.int64], length: Ints, case: Ints) -> Inputs:
    """The own earlier items, and behind them the last item of the first donor whose
    last item is neither the user's target nor own last item.
    """
    given = draw.donors.lasts(draw.donors.place[case], _own(draw, items, length, case))
    changed = items.copy()
    changed[np.arange(len(items)), length - 1] = given
    return changed, np.where(given == PADDING, 0, length)


def stranger(draw: Draw, items: NDArray[np.int64], length: Ints, case: Ints) -> Inputs:
    """Both: the donor's earlier items, and a stranger's last item behind them."""
    own, place = _own(draw, items, length, case), draw.donors.place[case]
    given = draw.donors.lasts(place, own)
    earlier = draw.donors.contexts(place, length - 1, own)
    changed, of_length = _behind(earlier, given, items.shape[1])
    return changed, np.where(given == PADDING, 0, of_length)


def pooled_context(draw: Draw, items: NDArray[np.int64], length: Ints, case: Ints) -> Inputs:
    """The own last item behind items drawn one by one from the earlier items of all
    test users, each occurrence with equal chance: as frequent as they are, and nobody's
    taste. As from a donor, the user's target and own last item are left out: what is
    drawn of them is drawn again.
    """
    own, last = _own(draw, items, length, case), _last(items, length)
    user, pool = draw.cases.user[case][:, None], draw.pool
    position = np.arange(items.shape[1] - 1)
    wanted = position < (length - 1)[:, None]
    drawn = np.zeros(wanted.shape, dtype=np.int64)
    waiting = wanted.copy()
    for attempt in range(_MOST_DRAWS if len(pool) else 0):
        key = hash_keys(STREAM_POOL, draw.seed, draw.repeat, user, position, attempt)
        drawn = np.where(waiting, pool[(key % np.uint64(len(pool))).astype(np.int64)], drawn)
        waiting &= (drawn[:, :, None] == own[:, None]).any(axis=2)
        if not waiting.any():
            break
    else:
        wanted &= ~waiting & bool(len(pool))
    return _behind(_packed(drawn, wanted), last, items.shape[1])


#: Name → function of a draw and a batch: items int64 [B, L], lengths [B], cases [B].
FUNCTIONS: dict[str, Callable[[Draw, NDArray[np.int64], Ints, Ints], Inputs]] = {
    "ordered": ordered,
    "partial": partial(permuted, keep_last=True),
    "full": partial(permuted, keep_last=False),
    "last_only": partial(newest, count=1),
    "without_last": without_last,
    "strangers_context": strangers_context,
    "strangers_last": strangers_last,
    "stranger": stranger,
    "pooled_context": pooled_context,
}


def _last(items: NDArray[np.int64], length: Ints) -> NDArray[np.int64]:
    return items[np.arange(len(items)), length - 1]


def _own(draw: Draw, items: NDArray[np.int64], length: Ints, case: Ints) -> NDArray[np.int64]:
    """int64 [B, 2]: what no stranger may give, the target and the own last item."""
    return np.column_stack([draw.cases.target[case], _last(items, length)])


def _packed(items: NDArray[np.integer], chosen: Bools) -> Inputs:
    """The chosen items of each row, in their order, moved to its beginning."""
    order = np.argsort(~chosen, axis=1, kind="stable")
    length = chosen.sum(axis=1)
    moved = np.take_along_axis(items, order, axis=1)
    return np.where(np.arange(items.shape[1]) < length[:, None], moved, PADDING), length


def _behind(earlier: Inputs, last: NDArray[np.integer], width: int) -> Inputs:
    """One item behind the earlier ones, padded to a width: what a model computes for a
    case hinges on the shape of its batch.
    """
    items, length = earlier
    longer = np.full((len(items), width), PADDING, dtype=np.int64)
    longer[:, : items.shape[1]] = items[:, :width]
    longer[np.arange(len(items)), length] = last
    return longer, length + 1
