"""Uncertainty: intervals from a bootstrap over users."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Resamples × users held at once, as float64.
_MAXIMUM_WEIGHTS = 8_000_000


def bootstrap_ratio(
    numerator: NDArray[np.float64], denominator: NDArray[np.float64], *, resamples: int, seed: int, level: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Percentile interval of Σ numerator / Σ denominator when whole users are drawn with replacement.

    With a denominator of ones (or of each user's number of cases) this is the interval of a mean; with the value of
    another condition as denominator it is the paired interval of a relative change, plus one. A user's cases
    and seeds are summed beforehand, so they stay together.

    Parameters
    ----------
    numerator, denominator : float64 [users, columns].   resamples : number of bootstrap samples.   level : coverage.

    Returns
    -------
    low, high : float64 [columns]; NaN where every resample has an empty denominator.
    """
    users, columns = numerator.shape
    generator = np.random.default_rng(seed)
    ratios = np.empty((resamples, columns))
    rows = max(1, min(resamples, _MAXIMUM_WEIGHTS // max(1, users)))
    for first in range(0, resamples, rows):
        count = min(rows, resamples - first)
        # How often each user is drawn: the same as indexing with drawn users, but a matrix product.
        weight = generator.multinomial(users, np.full(users, 1.0 / users), size=count).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios[first : first + count] = (weight @ numerator) / (weight @ denominator)
    tail = (1.0 - level) / 2.0
    ratios[~np.isfinite(ratios)] = np.nan
    usable = ~np.isnan(ratios).all(axis=0)
    low, high = np.full(columns, np.nan), np.full(columns, np.nan)
    low[usable], high[usable] = np.nanquantile(ratios[:, usable], [tail, 1.0 - tail], axis=0)
    return low, high
