"""Split parts on disk (Parquet, one row per user) and in memory (flat arrays).

A sequence is a slice of one flat array; nothing is padded until a batch is formed
(:mod:`lastitem.data.padding`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from lastitem.arrays import Bools, Codes, Ints
from lastitem.data.splits import consecutive, draw_users
from lastitem.errors import InputError
from lastitem.files import read_parquet


@dataclass
class Sequences:
    """Sequences of item codes: sequence i is ``items[start[i]:end[i]]``.

    Attributes
    ----------
    items : int32 [events].
    start, end : int64 [n].
    user : int32 [n], the user a sequence belongs to.
    """

    items: Codes
    start: Ints
    end: Ints
    user: Codes

    def __len__(self) -> int:
        return len(self.user)

    @property
    def length(self) -> Ints:
        """int64 [n]: number of items of each sequence."""
        return self.end - self.start

    @property
    def flattened(self) -> Codes:
        """int32 [Σ length]: the items of all sequences, one after another."""
        return self.items[consecutive(self.start, self.length)]

    def select(self, index: Ints) -> Self:
        """The sequences at ``index``, in that order."""
        of_sequence = (field.name for field in fields(self) if field.name != "items")
        return replace(self, **{name: getattr(self, name)[index] for name in of_sequence})

    def prefixes(self) -> Sequences:
        """Every prefix of at least two items as a sequence of its own, in the order of
        the sequences.
        """
        counts = np.maximum(self.length - 1, 0)
        row = np.repeat(np.arange(len(self)), counts)
        end = consecutive(self.start + 2, counts)
        return Sequences(self.items, self.start[row], end, self.user[row])

    @cached_property
    def _prefixes_by_target(self) -> tuple[Codes, Sequences, Ints]:
        """The last items of all prefixes, sorted, the prefixes in that order, and where
        each whole sequence stands in it.
        """
        prefixes = self.prefixes()
        target = self.items[prefixes.end - 1]
        order = np.argsort(target, kind="stable")
        place = np.argsort(order)
        whole = place[np.cumsum(np.maximum(self.length - 1, 0)) - 1]
        return target[order], prefixes.select(order), whole

    def draw_same_target(self, index: Ints, generator: torch.Generator) -> Sequences:
        """For each sequence at ``index`` draw a prefix of any sequence that ends in the
        same item, each with equal probability.

        The sequence itself is drawn only where no other prefix ends in its last item.
        Each sequence must hold two items.
        """
        target, prefixes, whole = self._prefixes_by_target
        wanted = self.items[self.end[index] - 1]
        first = np.searchsorted(target, wanted)
        others = np.searchsorted(target, wanted, "right") - first - 1
        draw = torch.randint(0, 2**62, (len(index),), generator=generator).numpy()
        chosen = first + draw % np.maximum(others, 1)
        # The draw numbers the others: from the sequence's own place on they stand one
        # further.
        return prefixes.select(chosen + ((chosen >= whole[index]) & (others > 0)))


@dataclass
class HeldOut(Sequences):
    """Inputs to predict from: the input of case i is ``items[start[i]:end[i]]``, its
    target ``target[i]``.

    The input is the user's whole earlier history; models cut it to their own length.

    Attributes
    ----------
    target : int32 [n].
    tied : bool [n], whether the target has exactly the time of the item before it.
    """

    target: Codes
    tied: Bools

    def sample_users(self, count: int, seed: int) -> HeldOut:
        """The cases of ``count`` users drawn from (seed, user); all of them, if there
        are fewer users.
        """
        chosen = draw_users(np.unique(self.user), count, seed)
        return self.select(np.flatnonzero(np.isin(self.user, chosen)))


def read_training(path: str | Path) -> Sequences:
    """Read a training part laid out by :func:`lastitem.data.splits.part_table`."""
    user, (items, offsets) = _read(path, "items")
    return Sequences(items, offsets[:-1], offsets[1:], user)


def read_held_out(path: str | Path) -> HeldOut:
    """Read a validation or test part laid out by
    :func:`lastitem.data.splits.part_table`; one case per target.
    """
    user, (items, offsets), (positions, of_target), (tied, _) = _read(
        path, "items", "targets", "target_tied"
    )
    row = np.repeat(np.arange(len(user)), np.diff(of_target))
    start = offsets[row]
    at = start + positions
    return HeldOut(items, start, at, user[row], items[at], tied)


def _read(path: str | Path, *lists: str) -> list[Any]:
    """The users, and of each column of ``lists`` its values and offsets."""
    table = read_parquet(path)
    missing = [column for column in ("user", *lists) if column not in table.column_names]
    if missing:
        raise InputError(
            f"{path}: no column {', '.join(missing)}; found: {', '.join(table.column_names)}"
        )
    return [table["user"].to_numpy().astype(np.int32), *(_flatten(table[name]) for name in lists)]


def _flatten(column: pa.ChunkedArray) -> tuple[NDArray, Ints]:
    lengths = pc.list_value_length(column).to_numpy()
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    return pc.list_flatten(column).to_numpy(), offsets
