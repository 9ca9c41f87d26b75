"""Random numbers that depend on what they are for, never on the order in which they are
drawn.

Every key is a pure function of (seed, stream, user, ..., position), so results do not
change with the batch size, the order of users or the number of workers.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

# One number per use, so that two uses with equal seeds draw independent keys.
(
    STREAM_TIES,
    STREAM_SHUFFLE,
    STREAM_TARGET,
    STREAM_USERS,
    STREAM_BATCHES,
    STREAM_DROPOUT,
    STREAM_DONORS,
    STREAM_POOL,
) = range(1, 9)


def hash_keys(*parts: ArrayLike) -> NDArray[np.uint64]:
    """Hash integers to 64 uniformly distributed bits, element-wise with broadcasting.

    Parameters
    ----------
    parts : integers or integer arrays that broadcast against each other; their order
        matters.

    Returns
    -------
    uint64 array of the broadcast shape: the parts are absorbed one by one through the
    finalizer of SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom
    number generators").
    """
    with np.errstate(over="ignore"):
        state = np.zeros((), dtype=np.uint64)
        for part in parts:
            state = _mix((state + np.asarray(part).astype(np.uint64)) + _GOLDEN)
    return np.asarray(state)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
