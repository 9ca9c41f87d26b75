"""Names for the arrays that are passed around; shapes stand in the docstrings."""

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
#: Codes of users and items, and ranks.
Codes = NDArray[np.int32]
#: Positions, lengths, times.
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
