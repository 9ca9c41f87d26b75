"""Interaction logs: reading, the p-core filter, encoding and the statistics of Table 1.

An interaction is (user, item, time). Ratings and every other column are ignored: all feedback is implicit.
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from lastitem.errors import InputError
from lastitem.files import write_parquet
from lastitem.randomness import STREAM_TIES, hash_keys

TIE_ORDERS = ("file", "item", "random")
MAXIMUM_BAD_SHARE = 0.01
EARLIEST_PLAUSIBLE = 631_152_000  # 1990-01-01, in seconds since 1970
LATEST_PLAUSIBLE = 2_051_222_400  # 2035-01-01
SECONDS_PER_DAY = 86_400


@dataclass
class Interactions:
    """A log in file order, ids replaced by their rank among all sorted ids of the log.

    Attributes
    ----------
    user, item : int64 [n], indices into ``user_ids`` and ``item_ids``.
    timestamp : int64 [n], seconds since 1970-01-01 UTC.
    user_ids, item_ids : string arrays, sorted (see :func:`sorted_ids`).
    bad_rows : number of unusable rows by cause.
    """

    user: NDArray[np.int64]
    item: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    user_ids: pa.Array
    item_ids: pa.Array
    bad_rows: dict[str, int] = field(default_factory=dict)


@dataclass
class Core:
    """The filtered, encoded log, sorted by user, then time.

    Attributes
    ----------
    user : int32 [n], 0 … users − 1.   item : int32 [n], 1 … items (0 is padding).   timestamp : int64 [n], seconds.
    user_ids, item_ids : original ids; user u is ``user_ids[u]``, item i is ``item_ids[i - 1]``.
    rounds : what each pass of the filter removed.
    """

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    timestamp: NDArray[np.int64]
    user_ids: pa.Array
    item_ids: pa.Array
    rounds: list[dict[str, int]]

    @property
    def offsets(self) -> NDArray[np.int64]:
        """int64 [users + 1]: the events of user u are ``offsets[u]:offsets[u + 1]``."""
        return np.searchsorted(self.user, np.arange(len(self.user_ids) + 1)).astype(np.int64)


def read_interactions(path: str | Path, form: Mapping[str, Any]) -> Interactions:
    """Read a delimited text log, plain, gzipped or as a member of a zip archive.

    Parameters
    ----------
    path : the file as it was downloaded or as the user has it.
    form : how to read it: ``columns`` (``user``, ``item``, ``timestamp`` → a column name, or its 0-based position
        if ``header`` is false), ``separator`` (one character, default a comma), ``header`` (default true),
        ``member`` (the file inside a zip archive).

    Raises
    ------
    InputError if the file, member or a column is missing (the message lists what there is), if a time is not
    plausible, or if more than 1 % of the rows are unusable (the message quotes the first ones).
    """
    path = Path(path)
    name = f"{path}" + (f" ({form['member']})" if form.get("member") else "")
    header = form.get("header", True)
    bad_lines: list[tuple[int | None, str]] = []

    def remember_bad_line(row: Any) -> str:
        bad_lines.append((row.number, row.text))
        return "skip"

    columns = {key: (value if header else f"f{value}") for key, value in form["columns"].items()}
    with ExitStack() as stack:
        stream = _open(path, form.get("member"), stack)
        try:
            table = pyarrow.csv.read_csv(
                stream,
                read_options=pyarrow.csv.ReadOptions(autogenerate_column_names=not header, use_threads=False, block_size=8 << 20),
                parse_options=pyarrow.csv.ParseOptions(delimiter=form.get("separator", ","), invalid_row_handler=remember_bad_line),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types={column: pa.string() for column in columns.values()}, strings_can_be_null=False
                ),
            )
        except pa.ArrowInvalid as error:
            remedy = "; convert it to UTF-8, for example with iconv" if "UTF8" in str(error) else ""
            raise InputError(f"{name}: cannot be read as delimited text: {error}{remedy}") from None
        except (gzip.BadGzipFile, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(
                f"{name}: the archive is damaged ({error}); replace it at its source, or delete this copy to have it fetched again"
            ) from None
    for key, column in columns.items():
        if column not in table.column_names:
            found = ", ".join(table.column_names) if header else f"{table.num_columns} columns, numbered from 0"
            raise InputError(f"{name}: no column {form['columns'][key]!r} for {key}; found: {found}")
        if table.column_names.count(column) > 1:
            raise InputError(f"{name}: the column {column!r} for {key} occurs more than once in the header; rename all but one")

    user, item, time = (table[columns[key]] for key in ("user", "item", "timestamp"))
    whole_number = pc.match_substring_regex(time, r"^-?\d{1,18}(\.0*)?$")
    filled = pc.and_(pc.not_equal(user, ""), pc.not_equal(item, ""))
    good = pc.and_(whole_number, filled)
    bad_rows = {
        "wrong number of fields": len(bad_lines),
        "empty user or item": int(pc.sum(pc.invert(filled)).as_py() or 0),
        "time is not a whole number of seconds": int(pc.sum(pc.and_(filled, pc.invert(whole_number))).as_py() or 0),
    }
    _check_bad_rows(name, bad_rows, bad_lines, table.select(list(columns.values())), good, first_row=2 if header else 1)
    table = table.select(list(columns.values())).filter(good)
    seconds = pc.cast(pc.replace_substring_regex(table[columns["timestamp"]], r"\..*$", ""), pa.int64()).to_numpy()
    _check_plausible(name, seconds)
    user_code, user_ids = sorted_ids(table[columns["user"]])
    item_code, item_ids = sorted_ids(table[columns["item"]])
    return Interactions(user_code, item_code, seconds, user_ids, item_ids, bad_rows)


def sorted_ids(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], pa.Array]:
    """Replace text ids by their rank among the sorted distinct ids.

    Ids sort as text by code point, unless every one is a whole number written without leading zeros: then they
    sort by value, so that item 9 comes before item 10.

    Returns
    -------
    int64 codes [n] and the sorted distinct ids (string array).
    """
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    distinct = encoded.dictionary
    if pc.all(pc.match_substring_regex(distinct, r"^(0|[1-9][0-9]*)$")).as_py():
        table = pa.table({"length": pc.utf8_length(distinct), "id": distinct})
        order = pc.sort_indices(table, sort_keys=[("length", "ascending"), ("id", "ascending")])
    else:
        order = pc.sort_indices(distinct)
    order = order.to_numpy()
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[encoded.indices.to_numpy()], distinct.take(pa.array(order))


def core_filter(log: Interactions, *, minimum_events: int, ties: str = "file", seed: int = 0) -> Core:
    """Sort, drop consecutive repeats, and reduce a log to its p-core.

    The log is sorted by (user, time). Consecutive repeats of an item in a user's sequence are removed, the first
    kept. Then, until nothing changes: users with fewer than ``minimum_events`` events are dropped, then such items,
    then consecutive repeats again (mission: "Filtering"; p = 5 in the paper, Section 2.2.1).

    Parameters
    ----------
    ties : order of a user's events with equal time: ``file`` keeps the order of the file, ``item`` orders by original
        item id, ``random`` by a key drawn from (seed, user, place among the user's events).

    Raises
    ------
    InputError if nothing is left.
    """
    if ties not in TIE_ORDERS:
        raise InputError(f"ties: {ties!r} is not known; allowed: {', '.join(TIE_ORDERS)}")
    order = np.lexsort((log.timestamp, log.user))
    user, item, timestamp = log.user[order], log.item[order], log.timestamp[order]
    if ties != "file":
        if ties == "item":
            key: NDArray[Any] = item
        else:
            first = np.searchsorted(user, np.arange(len(log.user_ids)))
            key = hash_keys(STREAM_TIES, seed, user, np.arange(len(user)) - first[user])
        order = np.lexsort((key, timestamp, user))
        user, item, timestamp = user[order], item[order], timestamp[order]

    rounds: list[dict[str, int]] = []

    def keep(mask: NDArray[np.bool_]) -> int:
        nonlocal user, item, timestamp
        removed = int(len(mask) - mask.sum())
        if removed:
            user, item, timestamp = user[mask], item[mask], timestamp[mask]
        return removed

    rounds.append({"repeats": keep(_is_not_repeat(user, item)), "events_of_rare_users": 0, "events_of_rare_items": 0})
    while True:
        removed = {
            "events_of_rare_users": keep(np.bincount(user, minlength=1)[user] >= minimum_events),
            "events_of_rare_items": keep(np.bincount(item, minlength=1)[item] >= minimum_events),
            "repeats": keep(_is_not_repeat(user, item)),
        }
        if not any(removed.values()):
            break
        rounds.append(removed)
    if not len(user):
        raise InputError(
            f"the {minimum_events}-core is empty: of {len(log.user_ids):,} users and {len(log.item_ids):,} items in "
            f"{len(log.user):,} interactions, none is left with at least {minimum_events} events each; "
            "lower p_core or use a larger log"
        )
    users, user_code = np.unique(user, return_inverse=True)
    items, item_code = np.unique(item, return_inverse=True)
    return Core(
        user=user_code.astype(np.int32),
        item=(item_code + 1).astype(np.int32),
        timestamp=timestamp,
        user_ids=log.user_ids.take(pa.array(users)),
        item_ids=log.item_ids.take(pa.array(items)),
        rounds=rounds,
    )


def statistics(core: Core) -> dict[str, float]:
    """Compute the row of Table 1.

    Returns
    -------
    users, items, interactions; avg_length = interactions / users; density_percent = 100 · interactions / (users ·
    items); days between first and last event (whole days, rounded down); tied_transitions_percent: share of
    consecutive events of a user with equal time; tied_targets_percent: share of users whose last event has the same
    time as the one before it.
    """
    same_user = core.user[1:] == core.user[:-1]
    tied = (core.timestamp[1:] == core.timestamp[:-1]) & same_user
    last = np.append(~same_user, True)
    users, items, events = len(core.user_ids), len(core.item_ids), len(core.user)
    return {
        "users": users,
        "items": items,
        "interactions": events,
        "avg_length": events / users,
        "density_percent": 100.0 * events / (users * items),
        "days": int((core.timestamp.max() - core.timestamp.min()) // SECONDS_PER_DAY),
        "tied_transitions_percent": 100.0 * float(tied.sum()) / max(1, int(same_user.sum())),
        "tied_targets_percent": 100.0 * float(tied[last[1:]].sum()) / users,
    }


def write_core(core: Core, interactions: str | Path, users: str | Path, items: str | Path) -> None:
    """Write the events (user, item: int32; timestamp: int64 s) and the two id maps as Parquet."""
    maps = (
        (interactions, {"user": core.user, "item": core.item, "timestamp": core.timestamp}),
        (users, {"user": np.arange(len(core.user_ids), dtype=np.int32), "user_id": core.user_ids}),
        (items, {"item": np.arange(1, len(core.item_ids) + 1, dtype=np.int32), "item_id": core.item_ids}),
    )
    for path, columns in maps:
        write_parquet(path, pa.table(columns))


def _open(path: Path, member: str | None, stack: ExitStack) -> IO[bytes]:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    with path.open("rb") as probe:
        magic = probe.read(4)
    if magic == b"PK\x03\x04":
        try:
            archive = stack.enter_context(zipfile.ZipFile(path))
        except zipfile.BadZipFile as error:
            raise InputError(f"{path}: not a complete zip archive ({error})") from None
        if member is None or member not in archive.namelist():
            listed = ", ".join(archive.namelist()[:20])
            raise InputError(f"{path}: no member {member!r} in this zip archive; found: {listed}")
        return stack.enter_context(archive.open(member))
    if magic[:2] == b"\x1f\x8b":
        return stack.enter_context(gzip.open(path, "rb"))
    return stack.enter_context(path.open("rb"))


def _check_bad_rows(
    name: str,
    bad_rows: dict[str, int],
    bad_lines: list[tuple[int | None, str]],
    table: pa.Table,
    good: pa.ChunkedArray,
    first_row: int,
) -> None:
    rows = table.num_rows + len(bad_lines)
    if not rows:
        raise InputError(f"{name}: holds no rows")
    bad = sum(bad_rows.values())
    if bad <= MAXIMUM_BAD_SHARE * rows:
        return
    quoted = [f"  row {number}: {text}" for number, text in bad_lines[:3]]
    # Where a whole line was skipped the row numbers after it would be off, so they are counted among the rows read.
    for index in np.flatnonzero(~good.to_numpy())[:3]:
        values = ", ".join(repr(value) for value in table.slice(int(index), 1).to_pylist()[0].values())
        quoted.append(f"  row {first_row + int(index)}: {values}")
    causes = "; ".join(f"{cause}: {count:,}" for cause, count in bad_rows.items() if count)
    raise InputError(
        f"{name}: {bad:,} of {rows:,} rows cannot be used ({causes}); at most {MAXIMUM_BAD_SHARE:.0%} are tolerated. "
        "Check separator, header and columns; times must be whole seconds since 1970. The first ones:\n" + "\n".join(quoted)
    )


def _check_plausible(name: str, seconds: NDArray[np.int64]) -> None:
    implausible = (seconds < EARLIEST_PLAUSIBLE) | (seconds > LATEST_PLAUSIBLE)
    if implausible.mean() > MAXIMUM_BAD_SHARE:
        example = int(seconds[implausible][0])
        raise InputError(
            f"{name}: {int(implausible.sum()):,} of {len(seconds):,} times are not between 1990 and 2035 when read as "
            f"seconds since 1970, for example {example}; is the unit milliseconds, or the wrong column named?"
        )


def _is_not_repeat(user: NDArray[np.int64], item: NDArray[np.int64]) -> NDArray[np.bool_]:
    keep = np.ones(len(user), dtype=bool)
    keep[1:] = (user[1:] != user[:-1]) | (item[1:] != item[:-1])
    return keep
