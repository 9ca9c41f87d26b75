"""Split parts on disk (Parquet, one row per user) and in memory (flat arrays), and
batches of them.

A sequence is a slice of one flat array; nothing is padded until a batch is formed, and
then only to the longest input of that batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from lastitem.data.splits import draw_users
from lastitem.errors import InputError
from lastitem.files import read_parquet

PADDING = 0
#: Rows of a :class:`Tile`; fewer, down to the second number, where they would make more
#: padded positions than the third.
TILE_ROWS, FEWEST_ROWS, TILE_POSITIONS = 64, 8, 16_384


@dataclass
class Sequences:
    """Sequences of item codes: sequence i is ``items[start[i]:end[i]]``.

    Attributes
    ----------
    items : int32 [events].
    start, end : int64 [n].
    user : int32 [n], the user a sequence belongs to.
    """

    items: NDArray[np.int32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    user: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.user)

    @property
    def length(self) -> NDArray[np.int64]:
        """int64 [n]: number of items of each sequence."""
        return self.end - self.start

    @property
    def flattened(self) -> NDArray[np.int32]:
        """int32 [Σ length]: the items of all sequences, one after another."""
        length = self.length
        within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        return self.items[np.repeat(self.start, length) + within]

    def select(self, index: NDArray[np.int64]) -> Sequences:
        """The sequences at ``index``, in that order."""
        return Sequences(self.items, self.start[index], self.end[index], self.user[index])

    def prefixes(self) -> Sequences:
        """Every prefix of at least two items as a sequence of its own, in the order of
        the sequences.
        """
        counts = np.maximum(self.length - 1, 0)
        row = np.repeat(np.arange(len(self)), counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return Sequences(self.items, self.start[row], self.start[row] + 2 + within, self.user[row])

    @cached_property
    def _prefixes_by_target(self) -> tuple[NDArray[np.int32], Sequences, NDArray[np.int64]]:
        """The last items of all prefixes, sorted, the prefixes in that order, and where
        each whole sequence stands in it.
        """
        prefixes = self.prefixes()
        target = self.items[prefixes.end - 1]
        order = np.argsort(target, kind="stable")
        place = np.argsort(order)
        return (
            target[order],
            prefixes.select(order),
            place[np.cumsum(np.maximum(self.length - 1, 0)) - 1],
        )

    def draw_same_target(self, index: NDArray[np.int64], generator: torch.Generator) -> Sequences:
        """For each sequence at ``index`` draw a prefix of any sequence that ends in the
        same item, each with equal probability.

        The sequence itself is drawn only where no other prefix ends in its last item.
        Each sequence must hold two items.
        """
        target, prefixes, whole = self._prefixes_by_target
        wanted = self.items[self.end[index] - 1]
        first, behind = (
            np.searchsorted(target, wanted, "left"),
            np.searchsorted(target, wanted, "right"),
        )
        others = behind - first - 1
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

    target: NDArray[np.int32]
    tied: NDArray[np.bool_]

    def select(self, index: NDArray[np.int64]) -> HeldOut:
        """The cases at ``index``, in that order."""
        chosen = super().select(index)
        return HeldOut(
            chosen.items,
            chosen.start,
            chosen.end,
            chosen.user,
            self.target[index],
            self.tied[index],
        )

    def sample_users(self, count: int, seed: int) -> HeldOut:
        """The cases of ``count`` users drawn from (seed, user); all of them, if there
        are fewer users.
        """
        chosen = draw_users(np.unique(self.user), count, seed)
        return self.select(np.flatnonzero(np.isin(self.user, chosen)))


def read_training(path: str | Path) -> Sequences:
    """Read a training part laid out by :func:`lastitem.data.splits.part_table`."""
    table = _read(path, ["user", "items"])
    items, offsets = _flatten(table["items"])
    return Sequences(items, offsets[:-1], offsets[1:], table["user"].to_numpy().astype(np.int32))


def read_held_out(path: str | Path) -> HeldOut:
    """Read a validation or test part laid out by
    :func:`lastitem.data.splits.part_table`; one case per target.
    """
    table = _read(path, ["user", "items", "targets", "target_tied"])
    items, offsets = _flatten(table["items"])
    positions, target_offsets = _flatten(table["targets"])
    tied, _ = _flatten(table["target_tied"])
    row = np.repeat(np.arange(table.num_rows), np.diff(target_offsets))
    start = offsets[:-1][row]
    at = start + positions
    return HeldOut(
        items, start, at, table["user"].to_numpy().astype(np.int32)[row], items[at], tied
    )


def pad(
    sequences: Sequences, index: NDArray[np.int64], maximum_length: int, width: int | None = None
) -> tuple[Tensor, Tensor]:
    """Form one right-padded batch of the newest items.

    Parameters
    ----------
    index : int64 [B], which sequences.
    maximum_length : the newest so many items are kept.
    width : L; the longest kept length of the batch, if not given.

    Returns
    -------
    items : int64 [B, L], oldest first, 0 (:data:`PADDING`) after the end.
    length : int64 [B].
    """
    end = sequences.end[index]
    length = np.minimum(end - sequences.start[index], maximum_length)
    step = np.arange(int(length.max(initial=1)) if width is None else width)
    real = step < length[:, None]
    at = np.where(real, (end - length)[:, None] + step, 0)
    items = np.where(real, sequences.items[at], PADDING)
    return torch.from_numpy(items.astype(np.int64)), torch.from_numpy(length)


class Tile(NamedTuple):
    """A batch of a fixed shape: a case's numbers then depend, bit for bit, on nothing
    but the case.

    Attributes
    ----------
    cases : int64 [rows]; behind the first ``real`` the last one is repeated to fill the
        shape.
    real : how many cases there are.
    width : padded length.
    """

    cases: NDArray[np.int64]
    real: int
    width: int


def tiles(sequences: Sequences, maximum_length: int, work: str) -> Iterator[Tile]:
    """Cut sequences into :class:`Tile` of similar length, in the order of (kept length,
    user).

    On a terminal a bar shows how far ``work``, what is done with them, has come, once
    it takes seconds.

    A matrix product rounds differently for another number of rows, so a batch of
    whatever is left would make a score depend on who else is ranked. Here the shape
    follows from a sequence's own length: its width is the next of 1, 2, 3, 4, 6, 8, 12,
    16, 24 … (at most ``maximum_length``), and a width has a fixed number of rows.
    """
    kept = np.minimum(sequences.length, maximum_length)
    power = 1 << np.ceil(np.log2(np.maximum(kept, 1))).astype(np.int64)
    width = np.minimum(np.where(4 * kept <= 3 * power, 3 * power // 4, power), maximum_length)
    order = np.lexsort((sequences.length, sequences.user, kept))
    with tqdm(
        total=len(order), desc=work, unit="case", disable=None, leave=False, delay=5
    ) as progress:
        for cases in np.split(order, np.flatnonzero(np.diff(width[order])) + 1):
            if not len(cases):
                continue
            columns = int(width[cases[0]])
            rows = max(FEWEST_ROWS, min(TILE_ROWS, TILE_POSITIONS // columns))
            for begin in range(0, len(cases), rows):
                index = cases[begin : begin + rows]
                yield Tile(
                    np.append(index, np.repeat(index[-1], rows - len(index))), len(index), columns
                )
                progress.update(len(index))


def _read(path: str | Path, columns: list[str]) -> pa.Table:
    table = read_parquet(path)
    missing = [column for column in columns if column not in table.column_names]
    if missing:
        raise InputError(
            f"{path}: no column {', '.join(missing)}; found: {', '.join(table.column_names)}"
        )
    return table


def _flatten(column: pa.ChunkedArray) -> tuple[NDArray, NDArray[np.int64]]:
    lengths = pc.list_value_length(column).to_numpy()
    return pc.list_flatten(column).to_numpy(), np.concatenate(([0], np.cumsum(lengths))).astype(
        np.int64
    )
