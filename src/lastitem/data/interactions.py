"""Interaction logs, read and validated.

An interaction is (user, item, time). Ratings and every other column are ignored: all
feedback is implicit.
"""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import Array

from lastitem.arrays import Codes, Ints
from lastitem.data.ids import (
    NumberEncoder,
    TextEncoder,
    as_ids,
    encoder_of,
    is_given,
    look_alikes,
    words_for_nothing,
)
from lastitem.data.readers.reading import read_rows
from lastitem.data.readers.rows import QUOTED_EXAMPLES, BadRows, Rows
from lastitem.data.times import (
    NANOSECONDS,
    SECONDS_PER_DAY,
    coarsest_unit,
    detect_unit,
    is_plausible,
    to_nanoseconds,
)
from lastitem.errors import InputError
from lastitem.progress import Progress

MAXIMUM_BAD_SHARE = 0.01


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

    user: Codes
    item: Codes
    time: Ints
    unit: str
    user_ids: Array
    item_ids: Array
    time_format: str = "s"
    bad_rows: dict[str, int] = field(default_factory=dict)


def read_interactions(path: str | Path, form: Mapping[str, Any]) -> Interactions:
    """Read a raw log into memory, 16 bytes an event beside the ids; the file itself is
    streamed.

    Parameters
    ----------
    path : the file as it was downloaded or as the user has it.
    form : how to take the file apart (see
        :func:`lastitem.data.readers.reading.read_rows`), and

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
    times: list[Ints] = []
    elapsed: list[Ints] = []
    size = os.path.getsize(path) if os.path.isfile(path) else None
    # While two threads number the ids of some rows, this one reads and checks the next.
    with (
        ThreadPoolExecutor(max_workers=2) as pool,
        closing(Progress(str(path), total=size)) as progress,
    ):
        numbering: Iterator[None] = iter(())
        for rows in read_rows(path, form, bad):
            progress.reach(rows.done)
            try:
                if time_format is None and len(rows.lines):
                    time_format = detect_unit(rows.columns["timestamp"])
                columns, nanoseconds, since_start = _usable_rows(
                    rows, time_format or "s", form.get("elapsed_unit", "ms"), bad
                )
            except InputError as error:
                raise InputError(f"{path}: {error}") from None
            times.append(nanoseconds)
            if "elapsed" in form["columns"]:
                elapsed.append(since_start)
            list(numbering)  # wait
            encoders = encoders or {role: encoder_of(column) for role, column in columns.items()}
            numbering = pool.map(
                lambda encoder, column: encoder.add(column), encoders.values(), columns.values()
            )
        list(numbering)
    time_format = time_format or "s"
    tolerated = form.get("maximum_bad_share", MAXIMUM_BAD_SHARE)
    _check_bad_rows(path, bad, sum(map(len, times)), tolerated, time_format)
    user, user_ids = encoders["user"].finish()
    item, item_ids = encoders["item"].finish()
    if "elapsed" in form["columns"]:
        # The earliest time of each event's user, plus its elapsed time.
        start = np.full(len(user_ids), np.iinfo(np.int64).max)
        np.minimum.at(start, user, np.concatenate(times))
        times = [start[user] + np.concatenate(elapsed)]
        if beyond := np.count_nonzero(~is_plausible(times[0])):
            raise InputError(
                f"{path}: with `elapsed` added, {beyond:,} times are outside 1990 to 2034"
            )
    unit = coarsest_unit(times)
    for block in times:
        block //= NANOSECONDS[unit]
    time = np.concatenate(times)
    return Interactions(user, item, time, unit, user_ids, item_ids, time_format, bad.counts)


def raw_counts(log: Interactions) -> dict[str, Any]:
    """What was read: users, items, interactions, bad_rows by cause, look_alikes
    (:func:`lastitem.data.ids.look_alikes`), words_for_nothing
    (:func:`lastitem.data.ids.words_for_nothing`: id → its interactions), time_format,
    time_resolution.
    """
    kinds = {"users": (log.user_ids, log.user), "items": (log.item_ids, log.item)}
    return {
        "users": len(log.user_ids),
        "items": len(log.item_ids),
        "interactions": len(log.user),
        "bad_rows": log.bad_rows,
        "look_alikes": {kind: look_alikes(ids) for kind, (ids, _) in kinds.items()},
        "words_for_nothing": {
            kind: {
                ids[place].as_py(): int(np.count_nonzero(codes == place))
                for place in words_for_nothing(ids).tolist()
            }
            for kind, (ids, codes) in kinds.items()
        },
        "time_format": log.time_format,
        "time_resolution": log.unit,
    }


def _usable_rows(
    rows: Rows, time_format: str, elapsed_unit: str, bad: BadRows
) -> tuple[dict[str, Array], Ints, Ints]:
    """The ids of the rows that have a user, an item and a plausible time; their times
    and elapsed times (0 if not asked for) in nanoseconds.
    """
    ids = {role: as_ids(rows.columns[role], role) for role in ("user", "item")}
    nanoseconds, read = to_nanoseconds(rows.columns["timestamp"], time_format)
    since_start, elapsed_read = np.zeros_like(nanoseconds), np.ones_like(read)
    if "elapsed" in rows.columns:
        since_start, elapsed_read = to_nanoseconds(rows.columns["elapsed"], elapsed_unit)
    usable = np.ones_like(read)
    for cause, good in {
        "empty user or item": is_given(ids["user"]) & is_given(ids["item"]),
        "time cannot be read": read,
        "elapsed time cannot be read": elapsed_read,
        "time outside 1990 to 2034": is_plausible(nanoseconds),
        "elapsed time negative or above 45 years": (since_start >= 0)
        & (since_start <= 45 * 366 * SECONDS_PER_DAY * NANOSECONDS["s"]),
    }.items():
        found = usable & ~good
        if found.any():
            first = np.flatnonzero(found)[:QUOTED_EXAMPLES].tolist()
            texts = [
                ", ".join(
                    f"{role} {column[row].as_py()!r}" for role, column in rows.columns.items()
                )
                for row in first
            ]
            bad.add(cause, [rows.lines[row] for row in first], texts, count=int(found.sum()))
            usable &= good
    if usable.all():
        return ids, nanoseconds, since_start
    kept = {role: column.filter(usable) for role, column in ids.items()}
    return kept, nanoseconds[usable], since_start[usable]


def _check_bad_rows(
    path: str | Path, bad: BadRows, usable: int, tolerated: float, time_format: str
) -> None:
    rows = usable + bad.total
    if not rows:
        raise InputError(f"{path}: holds no rows")
    # A quotient, unlike a product, is exactly the limit where it should be: 0.29 * 100
    # < 29.
    if bad.total / rows <= tolerated and usable:
        return
    causes = "; ".join(f"{cause}: {count:,}" for cause, count in bad.counts.items())
    remedies = []
    if "time" in causes:
        remedies.append(
            f"times were read as {time_format!r}; if that is wrong, say how they are written with"
            " `time`: s, ms, us, ns, iso, or a pattern such as '%d.%m.%Y'"
        )
    if " is not " in causes:
        remedies.append("name the file's `encoding`, such as latin-1")
    remedies.append("check `columns`, `separator`, `header`, `quotes` and `format`")
    quoted = "".join(f"\n  line {line}: {cause}: {text}" for line, cause, text in bad.examples)
    raise InputError(
        f"{path}: {bad.total:,} of {rows:,} rows cannot be used ({causes}); at most {tolerated:.3g}"
        f" of them may be (`maximum_bad_share`). Remedies: {'; '.join(remedies)}. The first"
        f" ones:{quoted}"
    )
