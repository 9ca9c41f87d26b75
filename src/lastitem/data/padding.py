"""Sequences as padded batches: of any of them, or in tiles of fixed shapes."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from lastitem.arrays import Ints
from lastitem.data.sequences import Sequences

PADDING = 0
#: Rows of a :class:`Tile`; fewer, down to the second number, where they would make more
#: padded positions than the third.
TILE_ROWS, FEWEST_ROWS, TILE_POSITIONS = 64, 8, 16_384


def pad(
    sequences: Sequences, index: Ints, maximum_length: int, width: int | None = None
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

    cases: Ints
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
                filled = np.pad(index, (0, rows - len(index)), mode="edge")
                yield Tile(filled, len(index), columns)
                progress.update(len(index))
