"""Uncertainty: intervals from a bootstrap over users, p-values of paired differences, and their correction for being many."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

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


def sign_flip_test(differences: NDArray[np.float64], *, permutations: int, seed: int) -> NDArray[np.float64]:
    """Two-sided p-values of paired differences: as far from zero as their sum, if each user's could as well have the other sign.

    Users without a difference say nothing about its sign. Where all others differ by the same amount (hits) this is the sign test,
    computed exactly; where there are few enough users every choice of signs is looked at; else ``permutations`` random ones,
    with the observed one among them, so that p is never 0 (Phipson & Smyth 2010, "Permutation P-values should never be zero").

    Parameters
    ----------
    differences : float64 [users, columns].

    Returns
    -------
    float64 [columns]; 1 where no user differs.
    """
    return np.array([_sign_flip_p(column[column != 0], permutations, seed) for column in differences.T])


def _sign_flip_p(differences: NDArray[np.float64], permutations: int, seed: int) -> float:
    if not len(differences):
        return 1.0
    if np.ptp(np.abs(differences)) == 0:
        return float(stats.binomtest(int((differences > 0).sum()), len(differences)).pvalue)
    found = stats.permutation_test(
        (differences,),
        np.sum,
        permutation_type="samples",
        vectorized=True,
        n_resamples=permutations,
        batch=max(1, _MAXIMUM_WEIGHTS // len(differences)),
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """p-values corrected for their number: all that stay below a level are true findings but with that probability (Holm 1979).

    The i-th smallest of m is multiplied by m − i + 1, never below the one before it, at most 1.
    """
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1)), 1.0)
    return corrected
