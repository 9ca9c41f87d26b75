"""Shuffling the history at inference: what does the order of the earlier items, or of
all, contribute?
"""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from lastitem.arrays import Bools, Codes
from lastitem.evaluation.ranking import Reorder
from lastitem.randomness import STREAM_SHUFFLE, hash_keys

ORDERS = ("ordered", "partial", "full")


def orders_and_repeats(repeats: int) -> list[tuple[str, int]]:
    """What is ranked: the ordered input once, each kind of shuffle
    ``repeats`` times.
    """
    return [
        (order, repeat)
        for order in ORDERS
        for repeat in range(1 if order == "ordered" else repeats)
    ]


def reorder(order: str, seed: int, repeat: int) -> Reorder | None:
    """The function :func:`lastitem.evaluation.ranking.rank` applies to each truncated
    input.

    Parameters
    ----------
    order : ``ordered`` changes nothing; ``partial`` permutes every item but the last;
        ``full`` permutes all.
    seed, repeat : with the user they alone decide the permutation, never the batch or
        the order of the file.
    """
    if order == "ordered":
        return None
    if order not in ORDERS:
        raise ValueError(f"order {order!r} is not one of {ORDERS}")

    return partial(permute, keep_last=order == "partial", seed=seed, repeat=repeat)


def permute(
    items: Tensor,
    length: Tensor,
    user: Codes,
    *,
    keep_last: bool,
    seed: int,
    repeat: int,
) -> tuple[Tensor, Bools]:
    """Permute each row's items uniformly at random, padding (and with ``keep_last`` the
    last item) left in place.

    Parameters
    ----------
    items : int64 [B, L], right-padded.
    length : int64 [B].
    user : int32 [B].

    Returns
    -------
    items : int64 [B, L], permuted.
    unchanged : bool [B], whether a row came out as it went in.
    """
    position = np.arange(items.shape[1])
    movable = position < (length.numpy() - int(keep_last))[:, None]
    key = hash_keys(STREAM_SHUFFLE, seed, repeat, user[:, None], position) >> np.uint64(1)
    # Keys above every random one, ascending: what may not move sorts behind, in its own
    # order.
    key = np.where(movable, key, np.uint64(1 << 63) + position.astype(np.uint64))
    order = torch.from_numpy(np.argsort(key, axis=1, kind="stable"))
    permuted = items.gather(1, order)
    return permuted, (permuted == items).all(dim=1).numpy()
