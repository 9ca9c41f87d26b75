"""Interaction logs: reading and validating, encoding, the p-core filter, and the
statistics of Table 1.

An interaction is (user, item, time). Ratings and every other column are ignored: all
feedback is implicit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lastitem.data.ids import (
    NumberEncoder,
    TextEncoder,
    as_ids,
    is_given,
    look_alikes,
    words_for_nothing,
)
from lastitem.data.readers.reading import BadRows, Batch, read_batches
from lastitem.data.times import (
    NANOSECONDS,
    coarsest_unit,
    detect_unit,
    is_plausible,
    to_nanoseconds,
)
from lastitem.errors import InputError
from lastitem.files import write_parquet
from lastitem.progress import Progress
from lastitem.randomness import STREAM_TIES, hash_keys

TIE_ORDERS = ("file", "item", "random")
MAXIMUM_BAD_SHARE = 0.01
SECONDS_PER_DAY = 86_400
UNUSUAL_TIES_PERCENT = 10.0


@dataclass
class Interactions:
    """A log in file order, ids replaced by their rank among all sorted ids of the log.

    Attributes
    ----------
    user, item : int32 [n], indices into ``user_ids`` and ``item_ids``.
    time : int64 [n], since 1970-01-01 UTC, in units of ``unit``.
    unit : ``s``, ``ms``, ``us`` or ``ns``: the coarsest in which all times are whole
        numbers.
    user_ids, item_ids : arrays of text, sorted (see
        :func:`lastitem.data.ids.sorted_ids`).
    time_format : how the times stood in the file, given or detected (see
        :func:`lastitem.data.times.detect_unit`).
    bad_rows : number of unusable rows by cause.
    """

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    time: NDArray[np.int64]
    unit: str
    user_ids: pa.Array
    item_ids: pa.Array
    time_format: str = "s"
    bad_rows: dict[str, int] = field(default_factory=dict)


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

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    timestamp: NDArray[np.int64]
    tied: NDArray[np.bool_]
    user_ids: pa.Array
    item_ids: pa.Array
    rounds: list[dict[str, int]]

    @property
    def offsets(self) -> NDArray[np.int64]:
        """int64 [users + 1]: the events of user u are ``offsets[u]:offsets[u + 1]``."""
        return np.concatenate(
            ([0], np.cumsum(np.bincount(self.user, minlength=len(self.user_ids))))
        )


def read_interactions(path: str | Path, form: Mapping[str, Any]) -> Interactions:
    """Read a raw log into memory, 16 bytes an event beside the ids; the file itself is
    streamed.

    Parameters
    ----------
    path : the file as it was downloaded or as the user has it.
    form : how to take the file apart (see
        :func:`lastitem.data.readers.reading.read_batches`), and

        - ``time``: how the times are written (see
          :func:`lastitem.data.times.to_nanoseconds`); detected if not given;
        - ``columns.elapsed`` and ``elapsed_unit`` (default ``ms``): a column of times
          since the start of the user's sequence. Then ``timestamp`` is too coarse to
          order it, and an event's time is the earliest ``timestamp`` of its user plus
          ``elapsed``;
        - ``maximum_bad_share`` (default 0.01): share of rows that may be unusable.

    Raises
    ------
    InputError if the file cannot be read, or if more rows than tolerated are unusable:
    the message counts them by cause and quotes the first ones with their line.
    """
    encoders: dict[str, TextEncoder | NumberEncoder] = {}
    bad = BadRows()
    time_format = form.get("time")
    times: list[NDArray[np.int64]] = []
    elapsed: list[NDArray[np.int64]] = []
    read = 0
    # While two threads number the ids of a batch, this one reads and checks the next.
    with (
        ThreadPoolExecutor(max_workers=2) as pool,
        closing(Progress(str(path), total=_size(path))) as progress,
    ):
        numbering: list[Future[None]] = []
        for batch in read_batches(path, form, bad):
            progress.reach(batch.done)
            read += len(batch.lines)
            try:
                if time_format is None and len(batch.lines):
                    time_format = detect_unit(batch.columns["timestamp"])
                columns, nanoseconds, since_start = _usable_rows(
                    batch, time_format or "s", form.get("elapsed_unit", "ms"), bad
                )
            except InputError as error:
                raise InputError(f"{path}: {error}") from None
            for done in numbering:
                done.result()
            for role, column in columns.items():
                encoders.setdefault(
                    role, NumberEncoder() if pa.types.is_integer(column.type) else TextEncoder()
                )
            numbering = [
                pool.submit(encoders[role].add, column) for role, column in columns.items()
            ]
            times.append(nanoseconds)
            elapsed.append(since_start)
        for done in numbering:
            done.result()
    rows = read + bad.total - sum(bad.counts.get(cause, 0) for cause in _FOUND_IN_BATCH)
    _check_bad_rows(
        str(path), bad, rows, form.get("maximum_bad_share", MAXIMUM_BAD_SHARE), time_format or "s"
    )
    user, user_ids = encoders["user"].finish()
    item, item_ids = encoders["item"].finish()
    if "elapsed" in form["columns"]:
        start = np.full(len(user_ids), np.iinfo(np.int64).max)
        np.minimum.at(start, user, np.concatenate(times))
        times = [start[user] + np.concatenate(elapsed)]
        if not is_plausible(times[0]).all():
            raise InputError(
                f"{path}: with `elapsed` added, {int((~is_plausible(times[0])).sum()):,} times are"
                " outside 1990 to 2034"
            )
    unit = coarsest_unit(times)
    time = np.empty(len(user), dtype=np.int64)
    begin = 0
    for block in times:
        np.floor_divide(block, NANOSECONDS[unit], out=time[begin : begin + len(block)])
        begin += len(block)
    return Interactions(user, item, time, unit, user_ids, item_ids, time_format or "s", bad.counts)


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
    user, item, time = _sorted_sequences(log, ties, seed)
    counts = [
        np.diff(np.searchsorted(user, np.arange(len(log.user_ids) + 1))),
        _occurrences(item, len(log.item_ids)),
    ]

    def keep(mask: NDArray[np.bool_]) -> int:
        nonlocal user, item, time
        removed = len(mask) - int(np.count_nonzero(mask))
        if removed:
            gone = ~mask
            for count, code in zip(counts, (user, item), strict=True):
                np.subtract.at(count, code[gone], 1)
            user, item, time = (_compacted(column, mask) for column in (user, item, time))
        return removed

    def keep_frequent(code: NDArray[np.int32], count: NDArray[np.int64]) -> int:
        rare = (count < minimum_events) & (count > 0)
        return keep(~rare[code]) if rare.any() else 0

    rounds = [
        {
            "repeats": keep(_is_not_repeat(user, item)),
            "events_of_rare_users": 0,
            "events_of_rare_items": 0,
        }
    ]
    while True:
        removed = {
            "events_of_rare_users": keep_frequent(user, counts[0]),
            "events_of_rare_items": keep_frequent(item, counts[1]),
        }
        # Two events of a user become neighbours only where one between them went.
        removed["repeats"] = keep(_is_not_repeat(user, item)) if any(removed.values()) else 0
        if not any(removed.values()):
            break
        rounds.append(removed)
    if not len(user):
        raise InputError(
            f"the {minimum_events}-core is empty: of {len(log.user_ids):,} users and"
            f" {len(log.item_ids):,} items in {len(log.user):,} interactions, none is left with at"
            f" least {minimum_events} events each, where the same item several times in a row"
            f" counts once ({rounds[0]['repeats']:,} repeats); lower p_core or use a larger log"
        )
    users = _renumber(user, len(log.user_ids), first=0)
    items = _renumber(item, len(log.item_ids), first=1)
    tied = np.zeros(len(user), dtype=bool)
    tied[1:] = (user[1:] == user[:-1]) & (time[1:] == time[:-1])
    if log.unit != "s":
        time = time // (NANOSECONDS["s"] // NANOSECONDS[log.unit])
    return Core(
        user=user,
        item=item,
        timestamp=time,
        tied=tied,
        user_ids=log.user_ids.take(pa.array(users)),
        item_ids=log.item_ids.take(pa.array(items)),
        rounds=rounds,
    )


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
    same_user = core.user[1:] == core.user[:-1]
    last = np.append(~same_user, True)
    users, items, events = len(core.user_ids), len(core.item_ids), len(core.user)
    return {
        "users": users,
        "items": items,
        "interactions": events,
        "avg_length": events / users,
        "density_percent": 100.0 * events / (users * items),
        "days": int((core.timestamp.max() - core.timestamp.min()) // SECONDS_PER_DAY),
        "tied_transitions_percent": 100.0 * float(core.tied.sum()) / max(1, int(same_user.sum())),
        "tied_targets_percent": 100.0 * float(core.tied[last].sum()) / users,
    }


def raw_counts(log: Interactions) -> dict[str, Any]:
    """What was read: users, items, interactions, bad_rows by cause, look_alikes
    (:func:`lastitem.data.ids.look_alikes`), words_for_nothing
    (:func:`lastitem.data.ids.words_for_nothing`: id → its interactions), time_format,
    time_resolution.
    """
    return {
        "users": len(log.user_ids),
        "items": len(log.item_ids),
        "interactions": len(log.user),
        "bad_rows": log.bad_rows,
        "look_alikes": {"users": look_alikes(log.user_ids), "items": look_alikes(log.item_ids)},
        "words_for_nothing": {
            "users": _events_of_nothing(log.user_ids, log.user),
            "items": _events_of_nothing(log.item_ids, log.item),
        },
        "time_format": log.time_format,
        "time_resolution": log.unit,
    }


def _events_of_nothing(ids: pa.Array, codes: NDArray[np.int32]) -> dict[str, int]:
    return {
        ids[place].as_py(): int(np.count_nonzero(codes == place))
        for place in words_for_nothing(ids).tolist()
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
    rounds = f"{len(counts['rounds'])} round{'s' * (len(counts['rounds']) > 1)}"
    removed = {key: sum(found[key] for found in counts["rounds"]) for key in counts["rounds"][0]}
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
            f" {removed['events_of_rare_items']:,} of items with fewer than {p}, in {rounds}"
        ),
        (
            f"kept {core['interactions']:,} interactions of {core['users']:,} users with"
            f" {core['items']:,} items over {core['days']:,} days"
        ),
    ]
    for kind, count in raw["look_alikes"].items():
        if count:
            lines.append(
                f"warning: {count:,} {kind} have an id that another one equals but for blanks"
                " around it, the form of its letters (é as one sign or two) or a .0 behind a"
                " number; they count as different ones"
            )
    for kind, found in raw["words_for_nothing"].items():
        for word, events in found.items():
            lines.append(
                f"warning: {events:,} interactions have {word!r} for an id and are taken for those"
                f" of one of the {kind}; if the word says that there is none, drop these rows from"
                " the log"
            )
    shares = core["tied_transitions_percent"], core["tied_targets_percent"]
    if max(shares) > UNUSUAL_TIES_PERCENT:
        order = {
            "file": "the order of the file decides",
            "item": "item ids decide",
            "random": "chance decides",
        }[counts["ties"]]
        lines.append(
            f"warning: {shares[0]:.1f} % of the transitions and {shares[1]:.1f} % of the last"
            f" events have the time of the event before; there {order} (ties: {counts['ties']}). A"
            " model can learn an order that the users never had, and results change with it: in a"
            " trial on Amazon Beauty, accuracy by a tenth and the effect of a full shuffle by"
            " half. Compare the results under ties: item and ties: random"
        )
    lines = [f"{name}: {line}" for line in lines]
    return "\n".join(lines)


def write_core(core: Core, interactions: str | Path, users: str | Path, items: str | Path) -> None:
    """Write the events (user, item: int32; timestamp: int64 s; tied: bool) and the two
    id maps as Parquet.
    """
    maps = (
        (
            interactions,
            {"user": core.user, "item": core.item, "timestamp": core.timestamp, "tied": core.tied},
        ),
        (users, {"user": np.arange(len(core.user_ids), dtype=np.int32), "user_id": core.user_ids}),
        (
            items,
            {
                "item": np.arange(1, len(core.item_ids) + 1, dtype=np.int32),
                "item_id": core.item_ids,
            },
        ),
    )
    for path, columns in maps:
        write_parquet(path, pa.table(columns))


def _size(path: str | Path) -> int | None:
    try:
        return Path(path).stat().st_size
    except OSError:
        return None  # for the reader to report


_FOUND_IN_BATCH = (
    "empty user or item",
    "time cannot be read",
    "elapsed time cannot be read",
    "time outside 1990 to 2034",
    "elapsed time negative or above 45 years",
)


def _usable_rows(
    batch: Batch, time_format: str, elapsed_unit: str, bad: BadRows
) -> tuple[dict[str, pa.Array], NDArray[np.int64], NDArray[np.int64]]:
    """The ids of the rows that have a user, an item and a plausible time; their times
    and, if asked for, elapsed times in nanoseconds.
    """
    ids = {role: as_ids(batch.columns[role], role) for role in ("user", "item")}
    missing = ~(is_given(ids["user"]) & is_given(ids["item"]))
    nanoseconds, read = to_nanoseconds(batch.columns["timestamp"], time_format)
    since_start, elapsed_read = np.zeros(0, dtype=np.int64), np.ones(len(batch.lines), dtype=bool)
    beyond = np.zeros(len(batch.lines), dtype=bool)
    if "elapsed" in batch.columns:
        since_start, elapsed_read = to_nanoseconds(batch.columns["elapsed"], elapsed_unit)
        beyond = (since_start < 0) | (since_start > 45 * 366 * SECONDS_PER_DAY * NANOSECONDS["s"])
    wrong = np.zeros(len(batch.lines), dtype=bool)
    for cause, found in zip(
        _FOUND_IN_BATCH,
        (missing, ~read, ~elapsed_read, ~is_plausible(nanoseconds), beyond),
        strict=True,
    ):
        found &= ~wrong
        if found.any():
            first = [int(row) for row in np.flatnonzero(found)[:10]]
            texts = [
                ", ".join(
                    f"{role} {column[row].as_py()!r}" for role, column in batch.columns.items()
                )
                for row in first
            ]
            bad.add(cause, [int(batch.lines[row]) for row in first], texts, count=int(found.sum()))
            wrong |= found
    if not wrong.any():
        return ids, nanoseconds, since_start
    usable = ~wrong
    kept = {role: column.filter(pa.array(usable)) for role, column in ids.items()}
    return kept, nanoseconds[usable], since_start[usable] if len(since_start) else since_start


def _check_bad_rows(name: str, bad: BadRows, rows: int, tolerated: float, time_format: str) -> None:
    if not rows:
        raise InputError(f"{name}: holds no rows")
    # A quotient, unlike a product, is exactly the limit where it should be: 0.29 * 100
    # < 29.
    if bad.total / rows <= tolerated and bad.total < rows:
        return
    causes = "; ".join(f"{cause}: {count:,}" for cause, count in bad.counts.items())
    remedies = []
    if any("time" in cause for cause in bad.counts):
        remedies.append(
            f"times were read as {time_format!r}; if that is wrong, say how they are written with"
            " `time`: s, ms, us, ns, iso, or a pattern such as '%d.%m.%Y'"
        )
    if any(" is not " in cause for cause in bad.counts):
        remedies.append("name the file's `encoding`, such as latin-1")
    remedies.append("check `columns`, `separator`, `header`, `quotes` and `format`")
    quoted = "".join(f"\n  line {line}: {cause}: {text}" for line, cause, text in bad.examples)
    raise InputError(
        f"{name}: {bad.total:,} of {rows:,} rows cannot be used ({causes}); at most {tolerated:.3g}"
        f" of them may be (`maximum_bad_share`). Remedies: {'; '.join(remedies)}. The first"
        f" ones:{quoted}"
    )


def _sorted_sequences(
    log: Interactions, ties: str, seed: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """User, item and time of the events (new arrays), sorted by user, then time, then
    as ``ties`` says.
    """
    user, item, time = log.user, log.item, log.time
    if ties != "file":
        order = np.argsort(item, kind="stable")
        user, item, time = user[order], item[order], time[order]
    user, item, time = _sorted_by_user_and_time(user, item, time)
    if ties == "random":
        first = np.concatenate(([0], np.cumsum(np.bincount(user))))
        key = hash_keys(STREAM_TIES, seed, user, np.arange(len(user)) - first[user])
        order = np.argsort(key, kind="stable")
        user, item, time = _sorted_by_user_and_time(user[order], item[order], time[order])
    return user, item, time


def _sorted_by_user_and_time(
    user: NDArray[np.int32], item: NDArray[np.int32], time: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
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
    lost_bits = np.uint64(time_bits - kept_bits)
    user_shift, time_shift = np.uint64(kept_bits + position_bits), np.uint64(position_bits)
    packed = np.empty(len(user), dtype=np.uint64)
    for block in _blocks(len(user)):
        packed[block] = user[block].astype(np.uint64) << user_shift
        packed[block] |= (time[block] - earliest).astype(np.uint64) >> lost_bits << time_shift
        packed[block] |= np.arange(block.start, block.stop, dtype=np.uint64)
    packed.sort()
    if lost_bits:
        _sort_by_lost_bits(packed, time, time_shift)
    # The sorted times take the place of the packed keys.
    sorted_user, sorted_item, sorted_time = (
        np.empty_like(user),
        np.empty_like(item),
        packed.view(np.int64),
    )
    for block in _blocks(len(user)):
        sorted_user[block] = packed[block] >> user_shift
        position = (packed[block] & np.uint64((1 << position_bits) - 1)).view(np.int64)
        np.take(item, position, out=sorted_item[block], mode="clip")
        if lost_bits:
            np.take(time, position, out=sorted_time[block], mode="clip")
        else:
            sorted_time[block] = (
                packed[block] >> time_shift & np.uint64((1 << time_bits) - 1)
            ).view(np.int64) + earliest
    return sorted_user, sorted_item, sorted_time


def _sort_by_lost_bits(
    packed: NDArray[np.uint64], time: NDArray[np.int64], time_shift: np.uint64
) -> None:
    """Sort, in place, the runs of events that agree in user and kept bits of the time
    by the whole time, then position.
    """
    in_run = np.zeros(len(packed) + 1, dtype=bool)
    for block in _blocks(len(packed) - 1):
        equal = (
            packed[block] >> time_shift == packed[block.start + 1 : block.stop + 1] >> time_shift
        )
        in_run[block] |= equal
        in_run[block.start + 1 : block.stop + 1] |= equal
    places = np.flatnonzero(in_run)
    events = packed[places]
    position = events & np.uint64((1 << int(time_shift)) - 1)
    packed[places] = events[np.lexsort((time[position], events >> time_shift))]


def _blocks(length: int) -> Iterator[slice]:
    """Slices that cover ``length``, each small enough for its temporary arrays to stay
    in the cache.
    """
    for start in range(0, length, 1 << 16):
        yield slice(start, min(start + (1 << 16), length))


def _compacted(column: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[Any]:
    """``column[mask]``, in the memory of ``column``."""
    kept = 0
    for block in _blocks(len(column)):
        chosen = column[block][mask[block]]
        column[kept : kept + len(chosen)] = chosen
        kept += len(chosen)
    return column[:kept]


def _occurrences(code: NDArray[np.int32], total: int) -> NDArray[np.int64]:
    """How often each of ``total`` codes occurs; in parts, since bincount makes a copy
    of what it counts.
    """
    counts = np.zeros(total, dtype=np.int64)
    for start in range(0, len(code), 1 << 20):
        counts += np.bincount(code[start : start + (1 << 20)], minlength=total)
    return counts


def _renumber(code: NDArray[np.int32], total: int, first: int) -> NDArray[np.int64]:
    """Number codes anew, in place, without gaps from ``first``; returns the old numbers
    that are left.
    """
    present = np.zeros(total, dtype=bool)
    present[code] = True
    number = np.cumsum(present, dtype=np.int32) + np.int32(first - 1)
    for block in _blocks(len(code)):
        code[block] = number[code[block]]
    return np.flatnonzero(present)


def _is_not_repeat(user: NDArray[np.int32], item: NDArray[np.int32]) -> NDArray[np.bool_]:
    keep = np.ones(len(user), dtype=bool)
    keep[1:] = (user[1:] != user[:-1]) | (item[1:] != item[:-1])
    return keep
