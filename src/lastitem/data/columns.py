"""Columns of Arrow as arrays of numpy."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lastitem.arrays import Bools


def matches(column: pa.Array, pattern: str) -> Bools:
    """bool [n]: where a regular expression matches a part of the text; null does not
    match.
    """
    return np.asarray(pc.fill_null(pc.match_substring_regex(column, pattern), False))
