"""Metrics as readings of ranks. A rank of 0 means "not in the list": a miss at every
cutoff.
"""

import numpy as np

from lastitem.arrays import Codes, Floats

RANK_METRICS = ("ndcg", "hr", "mrr")


def per_user(metric: str, ranks: Codes, cutoff: int) -> Floats:
    """Value of a metric at a cutoff for each case, one relevant item per case.

    Parameters
    ----------
    metric : ``ndcg``: 1 / log2(rank + 1); ``hr``: 1; ``mrr``: 1 / rank — each where 1 ≤
        rank ≤ cutoff, else 0.
    ranks : int [n], 1 is the best, 0 none.
    cutoff : K.

    Returns
    -------
    float64, same shape.

    Raises
    ------
    ValueError for another metric or a cutoff below 1.
    """
    if cutoff < 1:
        raise ValueError(f"cutoff {cutoff!r} must be at least 1")
    hit = (ranks >= 1) & (ranks <= cutoff)
    rank = np.where(hit, ranks, 1).astype(np.float64)
    if metric == "ndcg":
        value = 1.0 / np.log2(rank + 1.0)
    elif metric == "hr":
        value = np.ones_like(rank)
    elif metric == "mrr":
        value = 1.0 / rank
    else:
        raise ValueError(f"metric {metric!r} is not one of {RANK_METRICS}")
    return np.where(hit, value, 0.0)


def coverage(lists: Codes, items: int, cutoff: int) -> float:
    """Share of the catalogue (items 1 … ``items``) that stands in at least one list's
    first ``cutoff`` places.

    Parameters
    ----------
    lists : int [n, K], K ≥ cutoff, 0 where a list is shorter.
    """
    return np.count_nonzero(np.unique(lists[:, :cutoff])) / items
