"""Reading points in time: numbers in several units, ISO text, other text by a pattern,
and typed columns.

Everything becomes int64 nanoseconds since 1970-01-01 UTC, in which every plausible time
is exact; whoever keeps the times may then choose a coarser unit. Text without a zone is
taken as UTC.
"""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import Array
from pyarrow.types import is_date, is_decimal, is_floating, is_integer, is_null, is_timestamp

from lastitem.arrays import Bools, Ints
from lastitem.data.columns import is_text, matches
from lastitem.errors import InputError

#: int64 [n] nanoseconds (0 where unreadable) and bool [n], which could be read.
Read = tuple[Ints, Bools]

NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
EARLIEST_PLAUSIBLE = 631_152_000  # 1990-01-01, in seconds since 1970
LATEST_PLAUSIBLE = 2_051_222_400  # 2035-01-01
SECONDS_PER_DAY = 86_400

_DECIMAL = r"^[+-]?[0-9]{1,19}(\.[0-9]*)?$"
_SCIENTIFIC = r"^[+-]?[0-9]+(\.[0-9]*)?[eE][+-]?[0-9]{1,2}$"
_ISO = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?)?("
    r" ?(Z|UTC|[+-][0-9]{2}(:?[0-9]{2})?))?)?$"
)
_ZONE = r"^(.{10}[ T].*[0-9]) ?(Z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)$"
# What the directives of a pattern match: as in Python's strptime, but %f may go to
# nanoseconds, and %z may have hours alone.
_DIRECTIVES = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "m": "1[0-2]|0[1-9]|[1-9]",
    "b": "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)",
    "B": (
        "(?i:january|february|march|april|may|june|july|august|september|october|november|december)"
    ),
    "d": "3[01]|[12][0-9]|0[1-9]|[1-9]| [1-9]",
    "H": "2[0-3]|[01][0-9]|[0-9]",
    "I": "1[0-2]|0[1-9]|[1-9]",
    "p": "(?i:am|pm)",
    "M": "[0-5][0-9]|[0-9]",
    "S": "[0-5][0-9]|[0-9]",
    "f": "[0-9]{1,9}",
    "z": "Z|[+-][0-9]{2}(?::?[0-9]{2})?",
    "Z": "(?i:utc|gmt)",
    "a": "(?i:mon|tue|wed|thu|fri|sat|sun)",
    "A": "(?i:monday|tuesday|wednesday|thursday|friday|saturday|sunday)",
}


def is_plausible(nanoseconds: Ints) -> Bools:
    """Whether times lie in the years 1990 to 2034."""
    return (nanoseconds >= EARLIEST_PLAUSIBLE * NANOSECONDS["s"]) & (
        nanoseconds < LATEST_PLAUSIBLE * NANOSECONDS["s"]
    )


def detect_unit(column: Array) -> str:
    """Tell from the first thousands of values how a time column is written.

    Returns
    -------
    ``s``, ``ms``, ``us`` or ``ns`` for numbers: the one unit in which most values are
    plausible (the ranges of two units do not overlap), ``s`` if there is none; ``iso``
    for text, dates and timestamps.
    """
    if not (is_text(column.type) or _is_number(column.type)):
        return "iso"
    column = column[:10_000]
    if is_text(column.type):
        column = pc.utf8_trim_whitespace(column.drop_null())
        column = column.filter(pc.not_equal(column, ""))
        numeric = matches(column, f"({_DECIMAL})|({_SCIENTIFIC})")
        if not numeric.any() or numeric.mean() < 0.5:
            return "iso"
        column = column.filter(numeric)
    values = np.abs(np.asarray(column.cast(pa.float64(), safe=False)))

    def plausible(unit: str) -> int:
        seconds = values * (NANOSECONDS[unit] / NANOSECONDS["s"])
        return ((seconds >= EARLIEST_PLAUSIBLE) & (seconds < LATEST_PLAUSIBLE)).sum()

    return max(NANOSECONDS, key=plausible)


def to_nanoseconds(column: Array, unit: str) -> Read:
    """Read a column of times.

    Parameters
    ----------
    column : text, numbers, dates or timestamps; may hold nulls.
    unit : ``s``, ``ms``, ``us`` or ``ns`` since 1970-01-01 UTC; ``iso``: ISO 8601 date
        or date and time; or a pattern with ``%`` as in Python's strptime. Of a typed
        date or timestamp column the type decides.

    Returns
    -------
    int64 [n] nanoseconds (0 where unreadable) and bool [n], which could be read.

    Raises
    ------
    InputError if the column's type cannot be a time, or if a pattern cannot be used.
    """
    if is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    kind, factor = column.type, NANOSECONDS.get(unit)
    if is_timestamp(kind):
        return _scaled(column.cast(pa.int64()), NANOSECONDS[kind.unit])
    if is_integer(kind) and factor:
        # What exceeds an int64 becomes negative and is as implausible as before.
        return _scaled(column.cast(pa.int64(), safe=False), factor)
    if kind in (pa.float16(), pa.float32()):
        raise InputError(
            f"a time of type {kind} holds today's seconds only to two minutes; write the column as"
            " int64 or float64"
        )
    if _is_number(kind) and factor:
        return _from_float(column.cast(pa.float64()), factor)
    if not is_text(kind):
        if not (_is_number(kind) or is_null(kind)):
            raise InputError(f"a column of type {kind} cannot be a time")
        column = column.cast(pa.string())
    if factor:
        return _from_numbers(column, factor)
    column = pc.utf8_trim_whitespace(column)
    if unit == "iso":
        return _from_iso(column)
    return _from_pattern(column, unit)


def coarsest_unit(blocks: Sequence[Ints]) -> str:
    """The coarsest of ``s``, ``ms``, ``us``, ``ns`` in which all times (nanoseconds, in
    blocks) are whole numbers.
    """
    return next(
        unit
        for unit, factor in NANOSECONDS.items()
        if not any((block % factor).any() for block in blocks)
    )


def _is_number(kind: pa.DataType) -> bool:
    return is_integer(kind) or is_floating(kind) or is_decimal(kind)


def _scaled(column: Array, factor: int) -> Read:
    # What would not fit is centuries off; it is cut to the end of the range, where it
    # is still implausible.
    limit = np.iinfo(np.int64).max // factor
    values = np.clip(pc.fill_null(column, 0), -limit, limit)
    return values * factor, np.asarray(pc.is_valid(column))


def _from_float(column: Array, factor: int) -> Read:
    values = np.asarray(pc.fill_null(column, np.nan))
    read = np.isfinite(values)
    # A double holds today's seconds to a quarter of a microsecond: finer digits would
    # be noise.
    microseconds = np.rint(np.where(read, values, 0.0) * (factor / 1000))
    return np.clip(microseconds, -9e15, 9e15).astype(np.int64) * 1000, read


def _from_numbers(column: Array, factor: int) -> Read:
    try:
        return _scaled(column.cast(pa.int64()), factor)
    except pa.ArrowInvalid:
        pass
    column = pc.utf8_trim_whitespace(column)
    decimal, scientific = matches(column, _DECIMAL), matches(column, _SCIENTIFIC)
    nanoseconds = np.zeros(len(column), dtype=np.int64)
    parts = r"^(?P<sign>[+-]?)(?P<whole>[0-9]+)\.?(?P<rest>[0-9]*)$"
    sign, whole, rest = pc.extract_regex(column.filter(decimal), parts).flatten()
    # 19 digits may exceed an int64, but then they exceed every plausible time, too.
    limit = np.iinfo(np.int64).max // factor
    whole = np.minimum(whole.cast(pa.uint64()), limit).astype(np.int64)
    digits = pc.utf8_rpad(pc.utf8_slice_codeunits(rest, 0, 9), 9, "0")
    rest = digits.cast(pa.int64()).to_numpy() * factor // NANOSECONDS["s"]
    sign = np.where(pc.equal(sign, "-"), -1, 1)
    nanoseconds[decimal] = sign * (whole * factor + rest)
    numbers = column.filter(scientific).cast(pa.float64())
    nanoseconds[scientific], _ = _from_float(numbers, factor)
    return nanoseconds, decimal | scientific


def _from_iso(column: Array) -> Read:
    shaped = matches(column, _ISO)
    zoned = shaped & matches(column, _ZONE)
    nanoseconds, read = np.zeros(len(column), dtype=np.int64), np.zeros_like(shaped)
    for mask, zone in ((shaped & ~zoned, None), (zoned, "UTC")):
        texts = column.filter(mask)
        if zone:
            texts = pc.replace_substring_regex(texts, _ZONE, r"\1\2")
            texts = pc.replace_substring(texts, "UTC", "Z")
        times = _parse(texts, pa.timestamp("ns", zone))
        nanoseconds[mask], read[mask] = _scaled(times.cast(pa.int64()), 1)
    return nanoseconds, read


def _from_pattern(column: Array, pattern: str) -> Read:
    # Half a second to import, and only patterns need it.
    import pandas as pd

    shape, letters = _shape(pattern)
    # Distinct texts alone are read: of days there are few.
    encoded = pc.fill_null(column, "").dictionary_encode()
    # pandas by itself would also read "now", a second 60, and zones of other names.
    shaped = matches(encoded.dictionary, f"^{shape}$")
    texts = encoded.dictionary.filter(shaped)
    if "z" in letters:
        # pandas wants minutes behind the hours of a zone.
        before, _, behind = shape.partition(f"(?:{_DIRECTIVES['z']})")
        hours = f"^({before}[+-][0-9]{{2}})({behind})$"
        texts = pc.replace_substring_regex(texts, hours, r"\1:00\2")
    if "Z" in letters:
        texts = pc.replace_substring(pc.ascii_upper(texts), "GMT", "UTC")
    times = pd.to_datetime(texts.to_pandas(), format=pattern, errors="coerce", utc=True)
    values = times.dt.tz_localize(None).to_numpy().view(np.int64)
    factor = NANOSECONDS[times.dt.unit]
    # NaT, the least integer, is out of reach, as are years that nanoseconds cannot
    # hold.
    limit = np.iinfo(np.int64).max // factor
    within = (values >= -limit) & (values <= limit)
    read = np.zeros_like(shaped)
    read[shaped] = within
    nanoseconds = np.zeros(len(shaped), dtype=np.int64)
    nanoseconds[read] = values[within] * factor
    codes = encoded.indices.to_numpy()
    return nanoseconds[codes], read[codes]


def _shape(pattern: str) -> tuple[str, set[str]]:
    """A regular expression of the texts that a pattern means, and the letters of its
    directives; :class:`InputError` if it is no pattern of points in time.
    """
    letters: set[str] = set()

    def expression(token: re.Match[str]) -> str:
        if token[0] == "%%" or token[0][0] != "%":
            return r"\s+" if token[0].isspace() else re.escape(token[0].removeprefix("%"))
        letter = token[0][1:]
        if letter not in _DIRECTIVES or letter in letters:
            known = ", ".join(f"%{letter}" for letter in _DIRECTIVES)
            raise InputError(
                f"`time`: the pattern {pattern!r} cannot be used because of {token[0]!r}; each of"
                f" {known} may occur once"
            )
        letters.add(letter)
        return f"(?:{_DIRECTIVES[letter]})"

    shape = re.sub(r"%.?|\s+|.", expression, pattern)
    if letters.isdisjoint("Yy"):
        raise InputError(f"`time`: the pattern {pattern!r} holds no year (%Y or %y)")
    if ("I" in letters) != ("p" in letters):
        raise InputError(
            f"`time`: the pattern {pattern!r} holds one of %I and %p without the other; %H counts"
            " hours to 23"
        )
    missing = [letters.isdisjoint(part) for part in ("mbB", "d", "HI", "M", "S", "f")]
    if missing != sorted(missing):
        raise InputError(
            f"`time`: the pattern {pattern!r} leaves out a part between those that it holds; they"
            " are month (%m, %b, %B), day (%d), hour (%H, or %I and %p), minute (%M), second (%S)"
            " and its fraction (%f)"
        )
    return shape, letters


def _parse(texts: Array, kind: pa.DataType) -> Array:
    """Cast text to timestamps; what is shaped like one but is none (30 February)
    becomes null.
    """
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind)
        middle = len(texts) // 2
        return pa.concat_arrays([_parse(texts[:middle], kind), _parse(texts[middle:], kind)])
