"""Residual scaling as a diagnostic: the ranking under λ, with the read-out moved back where recovery needs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lastitem.models.interface import SequenceModel
from lastitem.ranking import rank
from lastitem.recovery import READOUT_OFFSETS
from lastitem.sequences import HeldOut
from lastitem.shuffling import reorder


def rank_scaled(
    model: SequenceModel,
    cases: HeldOut,
    *,
    residual_scale: float,
    order: str,
    repeat: int,
    shuffle_seed: int,
    filter_seen: bool,
    device: str | torch.device = "cpu",
) -> dict[str, Any]:
    """Rank under a residual scale and an order, as columns of one row per case.

    Returns
    -------
    ``residual_scale``, ``order``, ``repeat``, ``case``, ``user``, ``target_rank``, ``last_rank``, ``last_but_one_rank``, and
    ``target_rank_back_1`` … ``_3``: the target's rank with the read-out moved back. Those are read at λ = 1 on the ordered
    input only, where R is fixed, and only for a model that has earlier predictions to go back to; elsewhere they are −1.
    """
    going_back = model.reads_prefixes and residual_scale == 1.0 and order == "ordered"
    found = rank(
        model,
        cases,
        filter_seen=filter_seen,
        residual_scale=residual_scale,
        offsets=READOUT_OFFSETS if going_back else (0,),
        reorder=reorder(order, shuffle_seed, repeat),
        device=device,
    )
    return {
        "residual_scale": residual_scale,
        "order": order,
        "repeat": np.int32(repeat),
        "case": np.arange(len(cases), dtype=np.int32),
        "user": cases.user,
        "target_rank": found.target[:, 0],
        "last_rank": found.last,
        "last_but_one_rank": found.last_but_one,
        **{f"target_rank_back_{offset}": found.target[:, offset] if going_back else np.int32(-1) for offset in READOUT_OFFSETS[1:]},
    }
