"""Global temporal split and leave-one-out, and the choice of targets in held-out
sequences.

Every part of a split is a set of prefixes of users' sequences, so a part is told by one
length per user, and its targets by the half-open range of positions that is held out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lastitem.arrays import Bools, Codes, Ints
from lastitem.errors import InputError
from lastitem.randomness import STREAM_TARGET, STREAM_USERS, hash_keys

SPLITS = ("gts", "loo")
VALIDATION_KINDS = ("by_time", "by_user", "last_item")
TARGETS = ("last", "first", "random", "successive")


@dataclass
class Part:
    """Prefixes of users' sequences.

    Attributes
    ----------
    length : int64 [users]: events of each user in this part, counted from the first; 0
        leaves the user out.
    held_out_from : int64 [users]: position of the first event that is held out; equal
        to ``length`` in training.
    """

    length: Ints
    held_out_from: Ints

    @property
    def users(self) -> int:
        """Number of users in this part."""
        return int(np.count_nonzero(self.length))

    @property
    def events(self) -> int:
        """Number of events in this part."""
        return int(self.length.sum())

    def of_users(self, users: Ints) -> Part:
        """This part, all other users left out."""
        return _part(_among(users, len(self.length)), self.length, self.held_out_from)


@dataclass
class Split:
    """The three parts of a log and the thresholds (seconds since 1970)
    that made them.
    """

    train: Part
    validation: Part
    test: Part
    thresholds: dict[str, float]


def leave_one_out(offsets: Ints) -> Split:
    """Hold out the last event for test and the one before it for validation.

    Users with fewer than 3 events are in training only, with all their events.
    """
    length = np.diff(offsets)
    held = length >= 3
    fitted = np.where(held, length - 2, length)
    return Split(
        train=Part(fitted, fitted),
        validation=_part(held, length - 1, length - 2),
        test=_part(held, length, length - 1),
        thresholds={},
    )


def global_temporal_split(
    offsets: Ints,
    timestamp: Ints,
    *,
    quantile: float = 0.9,
    validation: str = "by_time",
    validation_users: int = 1024,
    seed: int = 0,
) -> Split:
    """Split at a point in time that is the same for all users.

    T_test is the ``quantile`` (linear interpolation) of all timestamps. The train part
    holds the events ≤ T_test of users whose second event is ≤ T_test; the test part the
    whole sequences of users whose last event is > T_test. Validation is taken from the
    train part: ``by_time`` repeats the procedure on it with its own quantile,
    ``by_user`` holds out ``validation_users`` users, drawn from (seed, user),
    ``last_item`` holds out every user's last training event.

    Parameters
    ----------
    offsets : int64 [users + 1]
    timestamp : int64 [events], seconds, ascending for each user.
    """
    total = np.diff(offsets)
    known, threshold = _events_until(offsets, timestamp, total, quantile)
    thresholds = {"test": threshold}
    in_train = known >= 2
    length = np.where(in_train, known, 0)
    held, train, held_from = in_train, length - in_train, length - 1
    if validation == "by_time":
        held_from, thresholds["validation"] = _events_until(offsets, timestamp, length, quantile)
        held = held_from < length
        train = np.where(held_from >= 2, held_from, 0)
    elif validation == "by_user":
        users = np.flatnonzero(in_train)
        if validation_users >= len(users):
            raise InputError(
                f"gts: by_user is to hold out {validation_users:,} users, but the train part has"
                f" only {len(users):,}; lower gts.validation_users"
            )
        held = _among(draw_users(users, validation_users, seed), len(total))
        train = np.where(held, 0, length)
    elif validation != "last_item":
        raise InputError(
            f"validation: {validation!r} is not known; allowed: {', '.join(VALIDATION_KINDS)}"
        )
    return Split(
        train=Part(train, train),
        validation=_part(held, length, held_from),
        test=_part(known < total, total, known),
        thresholds=thresholds,
    )


def target_positions(part: Part, target: str, seed: int) -> tuple[Ints, Ints, int]:
    """Choose the positions to predict in the held-out sequences of a part.

    Parameters
    ----------
    target : ``last`` event; ``first`` held-out event; ``random``: one held-out event
        drawn from (seed, user); ``successive``: every held-out event, each with its own
        true history.

    Returns
    -------
    users, positions : int64 arrays of equal length, sorted; position p is predicted
        from the p events before it.
    without_history : number of targets left out because nothing precedes them.
    """
    users = np.flatnonzero(part.length > part.held_out_from)
    end, start = part.length[users], part.held_out_from[users]
    if target == "last":
        positions = end - 1
    elif target == "first":
        positions = start
    elif target == "random":
        usable = np.maximum(start, 1)
        span = np.maximum(end - usable, 1).astype(np.uint64)
        drawn = (hash_keys(STREAM_TARGET, seed, users) % span).astype(np.int64)
        positions = np.where(usable < end, usable + drawn, 0)
    elif target == "successive":
        positions, users = consecutive(start, end - start), np.repeat(users, end - start)
    else:
        raise InputError(f"target: {target!r} is not known; allowed: {', '.join(TARGETS)}")
    # A first event has no input to predict it from; it is counted, not ranked.
    with_history = positions > 0
    return users[with_history], positions[with_history], int((~with_history).sum())


def part_table(
    items: Codes,
    timestamp: Ints,
    offsets: Ints,
    length: Ints,
    targets: tuple[Ints, Ints, Bools] | None = None,
) -> pa.Table:
    """Lay out one part of a split: a row per user with lists of items and times.

    Parameters
    ----------
    items, timestamp : all events of the log, by user, then time.
    offsets : int64 [users + 1].
    length : int64 [users], how many of each user's events the part holds; users with 0
        get no row.
    targets : what is to be predicted: user, position in the user's list, and whether
        the event has exactly the time of the one before it (whole seconds do not tell).
        Adds the columns ``targets`` and ``target_tied``.

    Returns
    -------
    columns ``user`` (int32), ``items`` (list of int32), ``timestamps`` (list of int64,
    seconds), and with targets ``targets`` (list of int32) and ``target_tied`` (list of
    bool).
    """
    users = np.flatnonzero(length)
    inner = np.concatenate(([0], np.cumsum(length[users])))
    inside = _prefixes(offsets, length)
    columns = {
        "user": pa.array(users.astype(np.int32)),
        "items": _lists(inner, items[inside]),
        "timestamps": _lists(inner, timestamp[inside]),
    }
    if targets is not None:
        user, position, tied = targets
        per_user = np.searchsorted(user, np.append(users, len(length)))
        columns["targets"] = _lists(per_user, position.astype(np.int32))
        columns["target_tied"] = _lists(per_user, tied)
    return pa.table(columns)


def consecutive(first: Ints, counts: Ints) -> Ints:
    """For each i ``counts[i]`` whole numbers from ``first[i]`` on, all in a row."""
    return np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts)


def draw_users(users: NDArray[Any], count: int, seed: int) -> NDArray[Any]:
    """Draw ``count`` of ``users`` (all, if there are fewer) by keys of (seed, user);
    sorted, independent of order.
    """
    keys = hash_keys(STREAM_USERS, seed, users)
    return np.sort(users[np.lexsort((users, keys))[:count]])


def _events_until(
    offsets: Ints, timestamp: Ints, length: Ints, quantile: float
) -> tuple[Ints, float]:
    """How many of each user's first ``length`` events are not after the quantile of all
    these, and that.
    """
    if not length.any():
        raise InputError(
            "gts: no user has two events before the test threshold; nothing is left to train on"
        )
    among = timestamp if length.sum() == len(timestamp) else timestamp[_prefixes(offsets, length)]
    threshold = float(np.quantile(among, quantile, overwrite_input=among is not timestamp))
    # Bisection in all sequences at once: their times ascend.
    low, high = offsets[:-1].copy(), offsets[:-1] + length
    while (open_ := np.flatnonzero(low < high)).size:
        middle = (low[open_] + high[open_]) // 2
        early = timestamp[middle] <= threshold
        low[open_[early]] = middle[early] + 1
        high[open_[~early]] = middle[~early]
    return low - offsets[:-1], threshold


def _prefixes(offsets: Ints, length: Ints) -> Bools:
    """Whether each event is among the first ``length`` of its user."""
    users = np.flatnonzero(length)
    change = np.zeros(int(offsets[-1]) + 1, dtype=np.int8)
    change[offsets[users]] += 1
    change[offsets[users] + length[users]] -= 1
    return np.cumsum(change[:-1], dtype=np.int8, out=change[:-1]).view(bool)


def _lists(offsets: Ints, values: NDArray) -> pa.Array:
    if offsets[-1] > np.iinfo(np.int32).max:
        return pa.LargeListArray.from_arrays(offsets, values)
    return pa.ListArray.from_arrays(offsets.astype(np.int32), values)


def _among(users: Ints, total: int) -> Bools:
    """Whether each of all users is one of ``users``."""
    return np.isin(np.arange(total), users)


def _part(held: Bools, length: Ints, held_out_from: Ints) -> Part:
    """The part of the users who are ``held``."""
    return Part(np.where(held, length, 0), np.where(held, held_out_from, 0))
