"""Slow, literal versions of what lastitem computes, written from the definitions and
not from the code; tests compare the two.

Loops, dictionaries and full sorts are used on purpose: nothing here shares an idea with
the fast code it checks.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from lastitem.data.interactions import Interactions, read_interactions
from lastitem.data.sequences import HeldOut
from lastitem.data.splits import part_table
from lastitem.files import write_parquet
from lastitem.models.attention import positions_at
from lastitem.models.interface import SequenceModel
from lastitem.study.settings import setting

#: How :func:`write_log` writes a log, for ``read_interactions``.
FORM = {"columns": {"user": "user", "item": "item", "timestamp": "time"}}


def write_log(path: Path, rows: list[tuple]) -> Path:
    """Write (user, item, seconds) rows as UTF-8 CSV with a header."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["user", "item", "time"])
        writer.writerows(rows)
    return path


def read_bytes(folder: Path, content: bytes, **form) -> Interactions:
    """Read bytes as a log, by way of a real file."""
    path = folder / "log"
    path.write_bytes(content)
    return read_interactions(path, {**FORM, **form})


def events(log: Interactions) -> list[tuple[str, str, int]]:
    """What was read, in file order: (user, item, time in the log's unit), with original
    ids.
    """
    users, items = log.user_ids.to_pylist(), log.item_ids.to_pylist()
    return [
        (users[user], items[item], time)
        for user, item, time in zip(log.user, log.item, log.time.tolist(), strict=True)
    ]


def is_same(one: Interactions, other: Interactions) -> bool:
    """Whether two logs hold the same events in the same unit, however they were
    written.
    """
    arrays = all(
        (getattr(one, name) == getattr(other, name)).all() for name in ("user", "item", "time")
    )
    ids = one.user_ids.equals(other.user_ids) and one.item_ids.equals(other.item_ids)
    return len(one.user) == len(other.user) and one.unit == other.unit and ids and arrays


def csv_rows(text: str, like_a_row: re.Pattern[str]) -> list[tuple[int, str, list[str], int]]:
    """Rows of comma-separated text, character by character.

    Of each row: the line it begins in, its text, its fields, and how many line breaks
    of it lie in values whose quote is never closed, so that text stands behind the
    quote that closes them, a whole line of them is a row by its looks, or the text ends
    before.
    """
    rows, fields, row, value, state, line, start, breaks, lost = [], [], "", "", "begin", 1, 1, 0, 0
    for character in text:
        row += character
        line += character == "\n"
        if state == "closed":
            if character == '"':
                state, value = "quoted", value + character
                continue
            lost += breaks * (
                character not in ",\n" or any(map(like_a_row.fullmatch, value.split("\n")[1:-1]))
            )
            state = "plain"
        if state == "quoted":
            if character == '"':
                state = "closed"
            else:
                value, breaks = value + character, breaks + (character == "\n")
        elif character == '"' and state == "begin":
            state, breaks = "quoted", 0
        elif character in ",\n":
            fields, value, state = [*fields, value], "", "begin"
            if character == "\n":
                rows.append((start, row, fields, lost))
                fields, row, start, lost = [], "", line, 0
        else:
            value, state = value + character, "plain"
    if state == "closed":
        lost += breaks * any(map(like_a_row.fullmatch, value.split("\n")[1:-1]))
    if state == "quoted":
        lost += breaks - value.endswith("\n")
    if fields or state != "begin":
        rows.append((start, row, [*fields, value], lost))
    return rows


def sorted_by_id(ids) -> list[str]:
    """Distinct ids in their order: by value if all are whole numbers without leading
    zeros, else as text.
    """
    distinct = set(ids)
    if all(
        text.isascii() and text.isdigit() and (text == "0" or text[0] != "0") for text in distinct
    ):
        return sorted(distinct, key=int)
    return sorted(distinct)


def core(
    rows: list[tuple[str, str, int]], minimum_events: int, ties: str
) -> dict[str, list[tuple[str, int]]]:
    """The p-core of (user, item, seconds) rows in file order: user → [(item, seconds),
    …] in sequence order.
    """
    place = {item: index for index, item in enumerate(sorted_by_id(item for _, item, _ in rows))}
    sequences: dict[str, list[tuple[str, int]]] = {}
    for user, item, seconds in rows:
        sequences.setdefault(user, []).append((item, seconds))
    for events in sequences.values():
        if ties == "item":
            events.sort(key=lambda event: (event[1], place[event[0]]))
        else:
            events.sort(key=lambda event: event[1])
    sequences = {user: without_repeats(events) for user, events in sequences.items()}
    while True:
        before = sum(len(events) for events in sequences.values())
        sequences = {
            user: events for user, events in sequences.items() if len(events) >= minimum_events
        }
        count = Counter(item for events in sequences.values() for item, _ in events)
        for user in sequences:
            sequences[user] = [
                event for event in sequences[user] if count[event[0]] >= minimum_events
            ]
        sequences = {user: without_repeats(events) for user, events in sequences.items()}
        if sum(len(events) for events in sequences.values()) == before:
            return {user: events for user, events in sequences.items() if events}


def without_repeats(events: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Drop every event whose item is that of the event before it."""
    kept: list[tuple[str, int]] = []
    for event in events:
        if not kept or kept[-1][0] != event[0]:
            kept.append(event)
    return kept


def quantile(values: list[int], share: Fraction) -> Fraction:
    """Quantile with linear interpolation, in exact arithmetic."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def temporal_cut(
    sequences: dict[int, list[int]], share: Fraction
) -> tuple[dict[int, int], dict[int, tuple[int, int]]]:
    """One global temporal cut of users' times: (training length by user, held-out
    (length, held out from) by user).
    """
    threshold = quantile([time for times in sequences.values() for time in times], share)
    train, held = {}, {}
    for user, times in sequences.items():
        early = sum(1 for time in times if time <= threshold)
        if len(times) >= 2 and times[1] <= threshold:
            train[user] = early
        if times[-1] > threshold:
            held[user] = (len(times), early)
    return train, held


def global_temporal_split(sequences: dict[int, list[int]], share: Fraction, validation: str):
    """Training lengths, validation and test parts of a global temporal split
    (``by_time`` or ``last_item``).
    """
    train, test = temporal_cut(sequences, share)
    if validation == "last_item":
        return (
            {user: length - 1 for user, length in train.items()},
            {user: (length, length - 1) for user, length in train.items()},
            test,
        )
    fitted, held = temporal_cut(
        {user: sequences[user][:length] for user, length in train.items()}, share
    )
    return fitted, held, test


def targets(held: dict[int, tuple[int, int]], target: str) -> tuple[list[tuple[int, int]], int]:
    """(user, position) of each ``last``, ``first`` or ``successive`` target with a
    history, and how many have none.
    """
    chosen, without_history = [], 0
    for user in sorted(held):
        length, start = held[user]
        positions = {
            "last": [length - 1],
            "first": [start],
            "successive": list(range(start, length)),
        }[target]
        for position in positions:
            if position == 0:
                without_history += 1
            else:
                chosen.append((user, position))
    return chosen, without_history


def held_out(
    histories: list[list[int]], targets: list[int], users: list[int] | None = None
) -> HeldOut:
    """Cases in memory from plain lists."""
    end = np.cumsum([len(history) for history in histories], dtype=np.int64)
    items = np.array([item for history in histories for item in history], dtype=np.int32)
    start = end - np.array([len(history) for history in histories], dtype=np.int64)
    user = np.arange(len(histories)) if users is None else np.array(users)
    return HeldOut(
        items,
        start,
        end,
        user.astype(np.int32),
        np.array(targets, dtype=np.int32),
        np.zeros(len(histories), dtype=bool),
    )


@torch.inference_mode()
def scores(model: SequenceModel, history: list[int], back: int = 0) -> list[float]:
    """Scores of items 1, 2, … after one history, alone and without padding, read
    ``back`` positions before the end.
    """
    kept = history[-model.input_length :]
    length = torch.tensor([len(kept)])
    hidden = model.eval().encode(torch.tensor([kept]), length)[0, int(model.readout(length)) - back]
    return (model.item_vectors() * hidden).sum(dim=1).tolist()


def ranking(item_scores: list[float], removed=()) -> list[int]:
    """All items that are not removed, best first, equal scores by item
    id: a full sort.
    """
    everything = range(1, len(item_scores) + 1)
    return sorted(
        (item for item in everything if item not in removed),
        key=lambda item: (-item_scores[item - 1], item),
    )


def rank_in(order: list[int], item: int) -> int:
    """Place of an item in a ranking, from 1; 0 if it is not there."""
    return order.index(item) + 1 if item in order else 0


@dataclass(frozen=True)
class TableSettings:
    """Of :class:`TableModel`, which can read one item alone."""

    maximum_length: int = setting(200, "Newest items an input may hold.", minimum=1)


class TableModel(SequenceModel):
    """A model whose scores after item i are row i of a table: hand-set, and exact for
    whole numbers.
    """

    Settings = TableSettings

    def __init__(self, table: np.ndarray, maximum_length: int = 200) -> None:
        super().__init__(table.shape[1], maximum_length=maximum_length)
        self.register_buffer("table", torch.as_tensor(table, dtype=torch.float32))

    def encode(self, items, length, at=None):
        return positions_at(self.table[items], at)

    def item_vectors(self):
        return torch.eye(self.items)


def copying_table(items: int) -> np.ndarray:
    """Scores under which the best item after i is i itself, then i − 1, i − 2, …
    (cyclic).
    """
    table = np.zeros((items + 1, items))
    for last in range(1, items + 1):
        for item in range(1, items + 1):
            table[last, item - 1] = -((last - item) % items)
    return table


def bootstrap(
    numerator: np.ndarray, denominator: np.ndarray, drawn: list[list[int]], level: float
) -> tuple[float, float]:
    """Percentile interval of a ratio of sums over given draws of users."""
    ratios = []
    for users in drawn:
        top, bottom = (
            sum(float(numerator[user]) for user in users),
            sum(float(denominator[user]) for user in users),
        )
        if bottom:
            ratios.append(top / bottom)
    return tuple(np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2]))


def write_part(path, items, times, offsets, length, targets=None):
    """Lay out and write a part of a split; a target is tied if its time is that of the
    event before it.
    """
    if targets is not None:
        at = offsets[targets[0]] + targets[1]
        targets = (*targets, times[at] == times[at - 1])
    write_parquet(path, part_table(items, times, offsets, length, targets))
