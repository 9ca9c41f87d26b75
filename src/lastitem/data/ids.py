"""Original ids: text, or whole numbers of a typed column, numbered by their rank among
all sorted ids of a log.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import Array
from pyarrow.types import is_binary, is_decimal, is_floating, is_integer, is_large_binary

from lastitem.arrays import Bools, Codes, Ints
from lastitem.data.columns import is_text, matches
from lastitem.errors import InputError

MERGED_AT = 1 << 21  # distinct ids of batches that wait to be merged


def sorted_ids(distinct: Array) -> Ints:
    """Order distinct text ids.

    Ids sort as text by code point, unless every one is a whole number written without
    leading zeros: then they sort by value, so that item 9 comes before item 10.

    Returns
    -------
    int64 [n]: the positions of the ids in sorted order.
    """
    if pc.all(pc.match_substring_regex(distinct, r"^(0|[1-9][0-9]*)$")).as_py():
        table = pa.table({"length": pc.utf8_length(distinct), "id": distinct})
        order = pc.sort_indices(table, sort_keys=[("length", "ascending"), ("id", "ascending")])
    else:
        order = pc.sort_indices(distinct)
    return order.to_numpy().astype(np.int64)


def as_ids(column: Array, role: str) -> Array:
    """A column of ids as text or whole numbers; InputError (naming the ``role``) if its
    type or values cannot be ids.
    """
    kind = column.type
    if is_integer(kind) or is_text(kind):
        return column
    fault = f"the column of type {kind} for {role} holds"
    fractions = f"{fault} fractions; ids are text or whole numbers"
    if is_floating(kind):
        # pandas turns whole numbers into 1.0 where another row has none, and that one
        # into NaN.
        column = column.cast(pa.float64())
        column = pc.if_else(pc.is_finite(column), column, None)
        if not pc.all(pc.equal(pc.floor(column), column), min_count=0).as_py():
            raise InputError(fractions)
        exact = {pa.float16(): 11, pa.float32(): 24}.get(kind, 53)
        if pc.any(pc.greater(pc.abs(column), 2**exact)).as_py():
            raise InputError(f"{fault} numbers above 2^{exact}, of which the last digits are lost")
        return column.cast(pa.int64())
    if is_decimal(kind):
        # What databases call NUMBER. Its text has no exponent, and as many digits
        # behind the point as its type says.
        whole = pc.replace_substring_regex(column.cast(pa.string()), r"\.0*$", "")
        if matches(whole, r"\.").any():
            raise InputError(fractions)
        return whole
    if is_binary(kind) or is_large_binary(kind):
        try:
            return column.cast(pa.large_string())
        except pa.ArrowInvalid:
            raise InputError(f"{fault} bytes that are no text in UTF-8") from None
    raise InputError(f"a column of type {kind} cannot be the {role}; ids are text or whole numbers")


def is_given(ids: Array) -> Bools:
    """bool [n]: whether a row has an id, neither null nor empty nor blanks alone."""
    if is_integer(ids.type):
        return np.asarray(pc.is_valid(ids))
    ids = pc.fill_null(ids, "")
    given = np.asarray(pc.not_equal(ids, ""))
    # Few ids begin with a blank, and only those can be blanks alone.
    if matches(ids, r"^[\s\pZ]").any():
        given = given & ~np.asarray(pc.utf8_is_space(ids))
    return given


def look_alikes(ids: Array) -> int:
    """How many of the distinct ids equal another one but for blanks around it, the
    Unicode form of its letters (é: one sign or two) or a ``.0`` behind a whole number.
    """
    if is_integer(ids.type):
        return 0
    seen = pc.utf8_normalize(pc.utf8_trim_whitespace(ids), form="NFC")
    seen = pc.replace_substring_regex(seen, r"^([0-9]+)\.0$", r"\1")
    return len(ids) - int(pc.count_distinct(seen).as_py())


def words_for_nothing(ids: Array) -> Ints:
    """Positions of the ids that are a word by which an export says that there is no
    value, such as NULL or NaN.
    """
    if is_integer(ids.type):
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(matches(ids, r"^(?i:null|none|nan|n/a|na|<na>|undefined|\\n)$"))


class TextEncoder:
    """Numbers text ids, batch by batch."""

    def __init__(self) -> None:
        self._batches: list[pa.DictionaryArray] = []
        self._known = self._waiting = 0

    def add(self, column: Array) -> None:
        """Take the next ids; none is missing."""
        encoded = column.dictionary_encode()
        # Wide offsets, which can hold the text of all ids together.
        distinct = encoded.dictionary.cast(pa.large_string())
        self._batches.append(pa.DictionaryArray.from_arrays(encoded.indices, distinct))
        self._waiting += len(distinct)
        # Each merge hashes all known ids; merging when twice as many wait as are known
        # keeps the whole linear.
        if self._waiting > max(MERGED_AT, 2 * self._known):
            self._merge()

    def finish(self) -> tuple[Codes, Array]:
        """Codes (int32 [n]: ranks among the sorted distinct ids) and the sorted
        distinct ids.
        """
        self._merge()
        rank, distinct = _ranked(self._batches[0].dictionary)
        return rank[self._batches[0].indices.to_numpy()], distinct

    def _merge(self) -> None:
        # Arrow makes one dictionary of all.
        self._batches = [pa.concat_arrays(self._batches)]
        self._known, self._waiting = len(self._batches[0].dictionary), 0


class NumberEncoder:
    """Numbers ids that are whole numbers of a typed column, by a table over their range
    where it is not too wide.
    """

    def __init__(self) -> None:
        self._columns: list[Array] = []

    def add(self, column: Array) -> None:
        """Take the next ids; none is missing."""
        self._columns.append(column)

    def finish(self) -> tuple[Codes, Array]:
        """Codes (int32 [n]: ranks among the sorted distinct ids) and the sorted
        distinct ids.
        """
        ids = pa.chunked_array(self._columns)
        lowest, highest = pc.min_max(ids).as_py().values()
        if highest - lowest > max(1 << 24, 4 * len(ids)) or highest > np.iinfo(np.int64).max:
            text = TextEncoder()
            for column in self._columns:
                text.add(column.cast(pa.string()))
            return text.finish()
        present = np.zeros(highest - lowest + 1, dtype=bool)
        for places in self._places(lowest):
            present[places] = True
        rank, distinct = _ranked(pa.array(np.flatnonzero(present) + lowest).cast(pa.large_string()))
        table = np.zeros(len(present), dtype=np.int32)
        table[present] = rank
        codes = np.empty(len(ids), dtype=np.int32)
        begin = 0
        for places in self._places(lowest):
            # Every place is within the table; "clip" only spares numpy a copy.
            np.take(table, places, out=codes[begin : begin + len(places)], mode="clip")
            begin += len(places)
        return codes, distinct

    def _places(self, lowest: int) -> Iterator[Ints]:
        for column in self._columns:
            yield column.cast(pa.int64()).to_numpy() - lowest


def encoder_of(column: Array) -> TextEncoder | NumberEncoder:
    """One for ids like these."""
    return NumberEncoder() if is_integer(column.type) else TextEncoder()


def _ranked(distinct: Array) -> tuple[Codes, Array]:
    """The rank of each of distinct ids in their sorted order, and the ids in that
    order.
    """
    order = sorted_ids(distinct)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank, distinct.take(order)
