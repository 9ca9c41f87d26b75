"""What every reader is given and hands on: a raw log that is open, its rows, and what
is known of the unusable ones.
"""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from lastitem.arrays import Ints

QUOTED_EXAMPLES = 5


@dataclass
class BadRows:
    """Counts unusable rows by cause, and keeps the first ones of the file to quote
    them.
    """

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, cause: str, lines: Sequence[int], texts: Sequence[str], count: int = 0) -> None:
        """Count rows (as many as there are ``lines``, unless ``count`` says otherwise)
        and keep the first ones.
        """
        if lines:
            self.counts[cause] += count or len(lines)
            first = zip(lines[:QUOTED_EXAMPLES], texts, strict=False)
            self.examples += [(line, cause, text[:200]) for line, text in first]
            self.examples = sorted(self.examples)[:QUOTED_EXAMPLES]

    @property
    def total(self) -> int:
        """Number of unusable rows."""
        return self.counts.total()


@dataclass
class Rows:
    """Some rows of a raw log.

    Attributes
    ----------
    columns : ``user``, ``item``, ``timestamp`` and, if asked for, ``elapsed`` → array
        as the file holds it: text, or numbers; null or empty where a row has no value.
    lines : line (Parquet: row) of the file each row stands in, from 1; a range or an
        int64 array, n in all.
    done : bytes of the file read so far.
    """

    columns: dict[str, pa.Array]
    lines: range | Ints
    done: int = 0


@dataclass
class RawLog:
    """A raw log that is open.

    Attributes
    ----------
    path : where its file lies.
    stream : its content, unpacked.
    form : how to read it, see :func:`lastitem.data.readers.reading.read_rows`.
    bad : is told of rows that cannot be taken apart.
    """

    path: Path
    stream: io.BufferedReader
    form: Mapping[str, Any]
    bad: BadRows

    @property
    def columns(self) -> dict[str, Any]:
        """Role → name, key or position of its column."""
        return self.form["columns"]

    @property
    def encoding(self) -> str:
        """Encoding of its text."""
        return self.form.get("encoding", "utf-8")
