"""From a raw log to its p-core: filtering, encoding, and the statistics of Table 1."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import Array

from lastitem.arrays import Bools, Codes, Ints
from lastitem.data.interactions import Interactions
from lastitem.data.times import NANOSECONDS, SECONDS_PER_DAY
from lastitem.errors import InputError
from lastitem.files import write_parquet
from lastitem.randomness import STREAM_TIES, hash_keys

#: User, item and time of each event.
Events = list[NDArray[Any]]
#: Order of a user's events with equal time → what decides there.
TIE_ORDERS = {
    "file": "the order of the file decides",
    "item": "item ids decide",
    "random": "chance decides",
}
#: Share of tied events above which a reader is warned of what they can do to results.
UNUSUAL_TIES_PERCENT = 10.0


@dataclass
class Core:
    """The filtered, encoded log, sorted by user, then time.

    Attributes
    ----------
    user : int32 [n], 0 … users − 1.
    item : int32 [n], 1 … items (0 is padding).
    timestamp : int64 [n], whole seconds since 1970-01-01 UTC, rounded down.
    tied : bool [n], whether the event has exactly the time of the user's event before
        it, in the log's own resolution.
    user_ids, item_ids : original ids; user u is ``user_ids[u]``, item i is ``item_ids[i
        - 1]``.
    rounds : what each pass of the filter removed.
    """

    user: Codes
    item: Codes
    timestamp: Ints
    tied: Bools
    user_ids: Array
    item_ids: Array
    rounds: list[dict[str, int]]

    @property
    def offsets(self) -> Ints:
        """int64 [users + 1]: the events of user u are ``offsets[u]:offsets[u + 1]``."""
        return offsets_of(self.user)


def offsets_of(user: NDArray[np.integer]) -> Ints:
    """int64 [users + 1]: among events sorted by user, those of user u are
    ``offsets[u]:offsets[u + 1]``.
    """
    return np.concatenate(([0], np.cumsum(np.bincount(user))))


def core_filter(
    log: Interactions, *, minimum_events: int, ties: str = "file", seed: int = 0
) -> Core:
    """Sort, drop consecutive repeats, and reduce a log to its p-core.

    The log is sorted by (user, time). Consecutive repeats of an item in a user's
    sequence are removed, the first kept. Then, until nothing changes: users with fewer
    than ``minimum_events`` events are dropped, then such items, then consecutive
    repeats again (p = 5 in the paper, Section 2.2.1).

    Parameters
    ----------
    ties : order of a user's events with equal time: ``file`` keeps the order of the
        file, ``item`` orders by original item id, ``random`` by a key drawn from (seed,
        user, place among the user's events). With the latter two the order of the file
        has no influence at all.

    Raises
    ------
    InputError if nothing is left.
    """
    if ties not in TIE_ORDERS:
        raise InputError(f"ties: {ties!r} is not known; allowed: {', '.join(TIE_ORDERS)}")
    events = _sorted_sequences(log, ties, seed)
    counts = [
        _occurrences(code, len(ids))
        for code, ids in zip(events, (log.user_ids, log.item_ids), strict=False)
    ]

    def drop(gone: Bools) -> int:
        removed = int(np.count_nonzero(gone))
        if removed:
            for count, code in zip(counts, events, strict=False):
                np.subtract.at(count, code[gone], 1)
            events[:] = [_compacted(column, ~gone) for column in events]
        return removed

    def drop_kind(kind: int) -> int:
        rare = (counts[kind] < minimum_events) & (counts[kind] > 0)
        return drop(rare[events[kind]]) if rare.any() else 0

    def drop_repeats() -> dict[str, int]:
        return {"repeats": drop(_equals_the_one_before(*events[:2]))}

    def drop_rare() -> dict[str, int]:
        return {"events_of_rare_users": drop_kind(0), "events_of_rare_items": drop_kind(1)}

    rounds = [drop_repeats() | {"events_of_rare_users": 0, "events_of_rare_items": 0}]
    # Two events of a user become neighbours only where one between them went.
    while any((removed := drop_rare()).values()):
        rounds.append(removed | drop_repeats())
    if not len(events[0]):
        raise InputError(
            f"the {minimum_events}-core is empty: of {len(log.user_ids):,} users and"
            f" {len(log.item_ids):,} items in {len(log.user):,} interactions, none is left with at"
            f" least {minimum_events} events each, where the same item several times in a row"
            f" counts once ({rounds[0]['repeats']:,} repeats); lower p_core or use a larger log"
        )
    return _encoded(log, events, rounds)


def _encoded(log: Interactions, events: Events, rounds: list[dict[str, int]]) -> Core:
    """The events of a log that are left, with codes of their own."""
    user, item, time = events
    users = _renumber(user, len(log.user_ids), first=0)
    items = _renumber(item, len(log.item_ids), first=1)
    tied = _equals_the_one_before(user, time)
    if log.unit != "s":
        time = time // (NANOSECONDS["s"] // NANOSECONDS[log.unit])
    return Core(user, item, time, tied, log.user_ids.take(users), log.item_ids.take(items), rounds)


def statistics(core: Core) -> dict[str, float]:
    """Compute the row of Table 1.

    Returns
    -------
    users, items, interactions; avg_length = interactions / users; density_percent = 100
    · interactions / (users · items); days between first and last event (whole days,
    rounded down); tied_transitions_percent: share of consecutive events of a user with
    equal time; tied_targets_percent: share of users whose last event has the same time
    as the one before it.
    """
    last = np.append(core.user[1:] != core.user[:-1], True)
    users, items, events = len(core.user_ids), len(core.item_ids), len(core.user)
    return {
        "users": users,
        "items": items,
        "interactions": events,
        "avg_length": events / users,
        "density_percent": 100.0 * events / (users * items),
        "days": int((core.timestamp.max() - core.timestamp.min()) // SECONDS_PER_DAY),
        "tied_transitions_percent": 100.0 * float(core.tied.sum()) / max(1, events - users),
        "tied_targets_percent": 100.0 * float(core.tied[last].sum()) / users,
    }


def describe(counts: Mapping[str, Any]) -> str:
    """Say in lines for a reader what was read, left out and kept, and warn of many
    ties.

    Parameters
    ----------
    counts : what core_filter.py writes: dataset, raw (:func:`raw_counts`),
        minimum_events, ties, rounds, core (:func:`statistics`).
    """
    name, raw, core, p = counts["dataset"], counts["raw"], counts["core"], counts["minimum_events"]
    bad = sum(raw["bad_rows"].values())
    causes = "; ".join(f"{cause}: {count:,}" for cause, count in raw["bad_rows"].items())
    rounds = counts["rounds"]
    removed = {key: sum(found[key] for found in rounds) for key in rounds[0]}
    lines = [
        f"read {raw['interactions'] + bad:,} rows, times as {raw['time_format']!r}; {bad:,}"
        " unusable" + (f" ({causes})" if bad else ""),
        (
            f"{raw['interactions']:,} interactions of {raw['users']:,} users with {raw['items']:,}"
            " items"
        ),
        (
            f"left out {removed['repeats']:,} consecutive repeats,"
            f" {removed['events_of_rare_users']:,} interactions of users and"
            f" {removed['events_of_rare_items']:,} of items with fewer than {p}, in"
            f" {len(rounds)} round{'s' * (len(rounds) > 1)}"
        ),
        (
            f"kept {core['interactions']:,} interactions of {core['users']:,} users with"
            f" {core['items']:,} items over {core['days']:,} days"
        ),
    ]
    lines += [
        f"warning: {count:,} {kind} have an id that another one equals but for blanks around it,"
        " the form of its letters (é as one sign or two) or a .0 behind a number; they count as"
        " different ones"
        for kind, count in raw["look_alikes"].items()
        if count
    ]
    lines += [
        f"warning: {events:,} interactions have {word!r} for an id and are taken for those of one"
        f" of the {kind}; if the word says that there is none, drop these rows from the log"
        for kind, found in raw["words_for_nothing"].items()
        for word, events in found.items()
    ]
    transitions, last_events = core["tied_transitions_percent"], core["tied_targets_percent"]
    if max(transitions, last_events) > UNUSUAL_TIES_PERCENT:
        ties = counts["ties"]
        lines.append(
            f"warning: {transitions:.1f} % of the transitions and {last_events:.1f} % of the last"
            f" events have the time of the event before; there {TIE_ORDERS[ties]} (ties: {ties}). A"
            " model can learn an order that the users never had, and results change with it: in a"
            " trial on Amazon Beauty, accuracy by a tenth and the effect of a full shuffle by"
            " half. Compare the results under ties: item and ties: random"
        )
    return "\n".join(f"{name}: {line}" for line in lines)


def write_core(core: Core, interactions: str | Path, users: str | Path, items: str | Path) -> None:
    """Write the events (user, item: int32; timestamp: int64 s; tied: bool) and the two
    id maps as Parquet.
    """
    columns = ("user", "item", "timestamp", "tied")
    write_parquet(interactions, pa.table({name: getattr(core, name) for name in columns}))
    for path, kind, ids, first in (
        (users, "user", core.user_ids, 0),
        (items, "item", core.item_ids, 1),
    ):
        codes = np.arange(first, first + len(ids), dtype=np.int32)
        write_parquet(path, pa.table({kind: codes, f"{kind}_id": ids}))


def _sorted_sequences(log: Interactions, ties: str, seed: int) -> Events:
    """User, item and time of the events (new arrays), sorted by user, then time, then
    as ``ties`` says.
    """
    events: Events = [log.user, log.item, log.time]
    if ties == "file":
        return _sorted_by_user_and_time(*events)

    def sorted_by(key: NDArray[Any]) -> Events:
        order = np.argsort(key, kind="stable")
        return _sorted_by_user_and_time(*(column[order] for column in events))

    events = sorted_by(log.item)
    if ties == "random":
        user = events[0]
        place = np.arange(len(user)) - offsets_of(user)[user]
        events = sorted_by(hash_keys(STREAM_TIES, seed, user, place))
    return events


def _sorted_by_user_and_time(user: Codes, item: Codes, time: Ints) -> Events:
    """Sort events by user, then time; equal ones stay in their order.

    numpy sorts values many times faster than it finds a stable order, so user, time and
    position are packed into one integer. Where they do not fit into 64 bits, the time
    loses its last bits, and the few events that this makes equal are put right
    afterwards. Memory is touched as little as possible: at this size it costs more than
    the arithmetic.
    """
    earliest = int(time.min())
    position_bits = (len(user) - 1).bit_length()
    time_bits = (int(time.max()) - earliest).bit_length()
    kept_bits = min(time_bits, 64 - position_bits - int(user.max()).bit_length())
    lost_bits, user_shift = time_bits - kept_bits, kept_bits + position_bits
    packed = np.empty(len(user), dtype=np.uint64)
    for block in _blocks(len(user)):
        packed[block] = user[block].astype(np.uint64) << user_shift
        packed[block] |= (time[block] - earliest).astype(np.uint64) >> lost_bits << position_bits
        packed[block] |= np.arange(block.start, block.stop, dtype=np.uint64)
    packed.sort()
    if lost_bits:
        _sort_by_lost_bits(packed, time, position_bits)
    # The sorted times take the place of the packed keys.
    sorted_user, sorted_item = np.empty_like(user), np.empty_like(item)
    sorted_time = packed.view(np.int64)
    for block in _blocks(len(user)):
        sorted_user[block] = packed[block] >> user_shift
        position = (packed[block] & ((1 << position_bits) - 1)).view(np.int64)
        np.take(item, position, out=sorted_item[block], mode="clip")
        if lost_bits:
            np.take(time, position, out=sorted_time[block], mode="clip")
        else:
            since = packed[block] >> position_bits & ((1 << time_bits) - 1)
            sorted_time[block] = since.view(np.int64) + earliest
    return [sorted_user, sorted_item, sorted_time]


def _sort_by_lost_bits(packed: NDArray[np.uint64], time: Ints, position_bits: int) -> None:
    """Sort, in place, the runs of events that agree in user and kept bits of the time
    by the whole time, then position.
    """
    in_run = np.zeros(len(packed) + 1, dtype=bool)
    for block in _blocks(len(packed) - 1):
        following = slice(block.start + 1, block.stop + 1)
        equal = packed[block] >> position_bits == packed[following] >> position_bits
        in_run[block] |= equal
        in_run[following] |= equal
    places = np.flatnonzero(in_run)
    events = packed[places]
    position = events & ((1 << position_bits) - 1)
    packed[places] = events[np.lexsort((time[position], events >> position_bits))]


def _blocks(length: int) -> Iterator[slice]:
    """Slices that cover ``length``, each small enough for its temporary arrays to stay
    in the cache.
    """
    for start in range(0, length, 1 << 16):
        yield slice(start, min(start + (1 << 16), length))


def _compacted(column: NDArray[Any], mask: Bools) -> NDArray[Any]:
    """``column[mask]``, in the memory of ``column``."""
    kept = 0
    for block in _blocks(len(column)):
        chosen = column[block][mask[block]]
        column[kept : kept + len(chosen)] = chosen
        kept += len(chosen)
    return column[:kept]


def _occurrences(code: Codes, total: int) -> Ints:
    """How often each of ``total`` codes occurs; in parts, since bincount makes a copy
    of what it counts.
    """
    counts = np.zeros(total, dtype=np.int64)
    for start in range(0, len(code), 1 << 20):
        counts += np.bincount(code[start : start + (1 << 20)], minlength=total)
    return counts


def _renumber(code: Codes, total: int, first: int) -> Ints:
    """Number codes anew, in place, without gaps from ``first``; returns the old numbers
    that are left.
    """
    present = np.zeros(total, dtype=bool)
    present[code] = True
    number = np.cumsum(present, dtype=np.int32) + (first - 1)
    for block in _blocks(len(code)):
        code[block] = number[code[block]]
    return np.flatnonzero(present)


def _equals_the_one_before(user: Codes, other: NDArray[Any]) -> Bools:
    equal = np.zeros(len(user), dtype=bool)
    equal[1:] = (user[1:] == user[:-1]) & (other[1:] == other[:-1])
    return equal
