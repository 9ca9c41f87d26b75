"""Which missed targets come back under a residual scale, and which scale validation
would choose; on ranks alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lastitem.arrays import Bools, Codes

#: How far the read-out is moved back to find predictions that an earlier position got
#: right.
READOUT_OFFSETS = (0, 1, 2, 3)


def hits(rank: Codes, cutoff: int) -> Bools:
    """Whether a rank stands in the list of length ``cutoff``; a rank of 0
    never does.
    """
    return (rank >= 1) & (rank <= cutoff)


def recoverable(ranks_at_one: Codes, cutoff: int) -> Bools:
    """The set R at λ = 1: missed at the last position, hit when the read-out is moved
    back.

    Parameters
    ----------
    ranks_at_one : int32 [n, offsets], rank of the target with the read-out at L, L−1,
        L−2, L−3; 0 where the input is not longer than the offset (such an offset does
        not count).

    Returns
    -------
    bool [n].
    """
    hit = hits(ranks_at_one, cutoff)
    return ~hit[:, 0] & hit[:, 1:].any(axis=1)


def recovery(member: Bools, rank: Codes, cutoff: int) -> float:
    """Share of R (bool [n]) that is hit at the last position; 0 if R is empty."""
    size = int(member.sum())
    return float((hits(rank, cutoff) & member).sum()) / size if size else 0.0


@dataclass
class Choice:
    """A chosen residual scale; ``feasible`` are the scales that kept the accuracy."""

    scale: float
    feasible: list[float]


def choose_scale(
    hit_rate: Mapping[float, float],
    recovered: Mapping[float, float],
    tolerance: float,
    members: int,
) -> Choice:
    """argmax of the validation recovery subject to HR(λ) ≥ (1 − ε) · HR(1).

    Ties, and an empty R (``members`` = 0), go to the λ nearest 1; of two equally near
    the smaller.

    Parameters
    ----------
    hit_rate, recovered : validation HR@K and recovery by λ; both hold λ = 1.
    tolerance : ε.
    """
    floor = (1.0 - tolerance) * hit_rate[1.0]
    # The slack keeps the rounding of (1 − ε) · HR(1) from ruling out an equal hit rate.
    feasible = [scale for scale in hit_rate if hit_rate[scale] >= floor - 1e-12]
    return Choice(
        best_scale({scale: recovered[scale] if members else 0.0 for scale in feasible}),
        sorted(feasible),
    )


def best_scale(value: Mapping[float, float]) -> float:
    """The λ with the largest value; of equals the one nearest 1, then the smaller."""
    return min(value, key=lambda scale: (-value[scale], round(abs(scale - 1.0), 9), scale))
