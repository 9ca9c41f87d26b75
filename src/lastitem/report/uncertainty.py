"""Uncertainty: intervals from a bootstrap over users, p-values of paired differences,
and their correction for being many.
"""

from collections.abc import Iterator

import numpy as np

from lastitem.arrays import Bools, Floats

#: Resamples × users held at once, as float64.
_MAXIMUM_WEIGHTS = 8_000_000


def bootstrap_ratio(
    numerator: Floats,
    denominator: Floats,
    *,
    resamples: int,
    seed: int,
    level: float = 0.95,
) -> tuple[Floats, Floats]:
    """Percentile interval of Σ numerator / Σ denominator when whole users are drawn
    with replacement.

    With a denominator of ones (or of each user's number of cases) this is the interval
    of a mean; with the value of another condition as denominator it is the paired
    interval of a relative change, plus one. A user's cases and seeds are summed
    beforehand, so they stay together.

    Parameters
    ----------
    numerator, denominator : float64 [users, columns].
    resamples : number of bootstrap samples.
    level : coverage.

    Returns
    -------
    low, high : float64 [columns]; NaN where every resample has an empty denominator.
    """
    return percentiles(resampled_ratios(numerator, denominator, resamples, seed), level)


def bootstrap_difference(
    numerator: Floats,
    denominator: Floats,
    *,
    resamples: int,
    seed: int,
    level: float = 0.95,
) -> tuple[Floats, Floats]:
    """Percentile interval of the first ratio minus the second, Σ numerator / Σ
    denominator each, over the same drawn users.

    Parameters
    ----------
    numerator, denominator : float64 [users, columns, 2].
    resamples : number of bootstrap samples.
    level : coverage.

    Returns
    -------
    low, high : float64 [columns]; NaN where every resample has an empty denominator.
    """
    users, columns, _ = numerator.shape
    ratios = resampled_ratios(
        numerator.reshape(users, -1), denominator.reshape(users, -1), resamples, seed
    ).reshape(-1, columns, 2)
    return percentiles(ratios[:, :, 0] - ratios[:, :, 1], level)


def resampled_ratios(numerator: Floats, denominator: Floats, resamples: int, seed: int) -> Floats:
    """[resamples, columns]: Σ numerator / Σ denominator over users drawn with
    replacement; NaN or ±∞ where the denominator is empty.
    """
    users, generator = len(numerator), np.random.default_rng(seed)
    ratios = []
    for count in _at_once(resamples, users):
        # How often each user is drawn: the same as indexing with drawn users, but a
        # matrix product.
        weight = generator.multinomial(users, np.full(users, 1.0 / users), size=count)
        weight = weight.astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios.append((weight @ numerator) / (weight @ denominator))
    return np.concatenate(ratios)


def percentiles(ratios: Floats, level: float) -> tuple[Floats, Floats]:
    """The interval that holds the middle ``level`` of the finite values of each column;
    NaN where there are none.
    """
    tail = (1.0 - level) / 2.0
    ratios[~np.isfinite(ratios)] = np.nan
    usable = ~np.isnan(ratios).all(axis=0)
    low, high = np.full(ratios.shape[1], np.nan), np.full(ratios.shape[1], np.nan)
    if usable.any():
        low[usable], high[usable] = np.nanquantile(ratios[:, usable], [tail, 1.0 - tail], axis=0)
    return low, high


def swap_test(
    numerator: Floats,
    denominator: Floats,
    *,
    permutations: int,
    seed: int,
) -> Floats:
    """Two-sided p-values of the difference of two ratios, if each user's two sides
    could as well be the other way round.

    The difference is that of Σ numerator / Σ denominator of the sides; ``permutations``
    random choices of the users that swap, with the observed one among them, so that p
    is never 0 (Phipson & Smyth 2010).

    Parameters
    ----------
    numerator, denominator : float64 [users, columns, 2].

    Returns
    -------
    float64 [columns]; 1 where no choice changes anything, NaN where a side has an empty
    denominator.
    """
    users, columns, _ = numerator.shape
    both = np.concatenate([numerator, denominator], axis=1)
    total, swap = both.sum(axis=0), both[:, :, 1] - both[:, :, 0]

    def differences(moved: Floats) -> Floats:
        """[rows, columns] of the difference after what ``moved``, [rows, 2 · columns],
        has gone from the second side to the first.
        """
        first, second = total[:, 0] + moved, total[:, 1] - moved
        with np.errstate(invalid="ignore", divide="ignore"):
            return (
                first[:, :columns] / first[:, columns:] - second[:, :columns] / second[:, columns:]
            )

    observed = differences(np.zeros((1, 2 * columns)))[0]
    reached = np.zeros(columns)
    for chosen in _random_choices(users, permutations, seed):
        # A choice that leaves a side without a denominator counts as one that reaches
        # as far.
        near = np.abs(differences(chosen @ swap)) < np.abs(observed) - 1e-12
        reached += (~near).sum(axis=0)
    return np.where(~np.isfinite(observed), np.nan, (reached + 1) / (permutations + 1))


def sign_flip_test(differences: Floats, *, permutations: int, seed: int) -> Floats:
    """Two-sided p-values of paired differences: as far from zero as their sum, if each
    user's could as well have the other sign.

    Users without a difference say nothing about its sign. Where all others differ by
    the same amount (hits) this is the sign test, computed exactly; where there are few
    enough users every choice of signs is looked at; else ``permutations`` random ones,
    with the observed one among them, so that p is never 0 (Phipson & Smyth 2010,
    "Permutation P-values should never be zero").

    Parameters
    ----------
    differences : float64 [users, columns].

    Returns
    -------
    float64 [columns]; 1 where no user differs.
    """
    # Means of equal values over several shuffles may differ in their last bit: that is
    # no difference.
    from scipy import special  # A fifth of a second, and few summaries test.

    differences = differences.round(12)
    p = np.ones(differences.shape[1])
    few: dict[int, list[int]] = {}
    for column, values in enumerate(differences.T):
        own = values[values != 0]
        if len(own) and np.ptp(np.abs(own)) == 0:
            # Twice the binomial distribution function; scipy.stats.binomtest says the
            # same, but takes every table a second to import.
            fewer = min(int((own > 0).sum()), int((own < 0).sum()))
            p[column] = min(1.0, 2.0 * special.bdtr(fewer, len(own), 0.5))
        elif len(own):
            # Columns with few users go through all signs, each number of users for
            # itself; 0 stands for many.
            few.setdefault(len(own) if 2 ** len(own) <= permutations + 1 else 0, []).append(column)
    for users, columns in few.items():
        if users:
            own = np.column_stack(
                [differences[differences[:, column] != 0, column] for column in columns]
            )
            signs = 1.0 - 2.0 * (np.arange(2**users)[:, None] >> np.arange(users) & 1)
            p[columns] = _as_far(signs @ own, own).mean(axis=0)
        else:
            own = differences[(differences[:, columns] != 0).any(axis=1)][:, columns]
            reached, total = np.zeros(len(columns)), own.sum(axis=0)
            for chosen in _random_choices(len(own), permutations, seed):
                reached += _as_far(total - 2.0 * (chosen @ own), own).sum(axis=0)
            p[columns] = (reached + 1) / (permutations + 1)
    return p


def _random_choices(users: int, permutations: int, seed: int) -> Iterator[Floats]:
    """Random choices of users, as many at once as memory allows: [rows, users] of 0
    and 1.
    """
    generator = np.random.default_rng(seed)
    for count in _at_once(permutations, users):
        bytes_ = generator.integers(0, 256, (count, -(-users // 8)), dtype=np.uint8)
        yield np.unpackbits(bytes_, axis=1, count=users).astype(np.float64)


def _at_once(rows: int, users: int) -> Iterator[int]:
    """So many rows in parts of so many as may be held at once."""
    most = max(1, _MAXIMUM_WEIGHTS // max(1, users))
    for first in range(0, rows, most):
        yield min(most, rows - first)


def _as_far(sums: Floats, differences: Floats) -> Bools:
    """Whether sums are as far from zero as those of the differences, up to rounding."""
    return np.abs(sums) >= np.abs(differences.sum(axis=0)) - 1e-9 * np.abs(differences).sum(axis=0)


def holm(p_values: Floats) -> Floats:
    """p-values corrected for their number: all that stay below a level are true
    findings but with that probability (Holm 1979).

    The i-th smallest of m is multiplied by m − i + 1, never below the one before it, at
    most 1.
    """
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(
        np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1)), 1.0
    )
    return corrected
