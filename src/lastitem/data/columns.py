"""Columns of Arrow as arrays of numpy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def matches(column: pa.Array, pattern: str) -> NDArray[np.bool_]:
    """bool [n]: where a regular expression matches a part of the text; null does not
    match.
    """
    return np.asarray(pc.fill_null(pc.match_substring_regex(column, pattern), False))
