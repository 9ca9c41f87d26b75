"""Columns of Arrow as arrays of numpy."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.types import is_large_string, is_string

from lastitem.arrays import Bools


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text."""
    return is_string(kind) or is_large_string(kind)


def matches(column: pa.Array, pattern: str) -> Bools:
    """bool [n]: where a regular expression matches a part of the text; null does not
    match.
    """
    return np.asarray(pc.fill_null(pc.match_substring_regex(column, pattern), False))
