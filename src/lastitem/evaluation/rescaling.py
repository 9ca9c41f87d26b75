"""Residual scaling as a diagnostic: the ranking under λ, with the read-out moved back
where recovery needs it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastitem.data.sequences import HeldOut
from lastitem.evaluation.decomposition import check_additivity, mixing_ratios
from lastitem.evaluation.interventions import intervention
from lastitem.evaluation.probing import BlockTrace
from lastitem.evaluation.ranking import rank
from lastitem.evaluation.recovery import READOUT_OFFSETS
from lastitem.models.interface import Recommender
from lastitem.study.interventions import ORDERED
from lastitem.study.runs import PARTS


def rank_scaled(
    model: Recommender,
    cases: HeldOut,
    *,
    residual_scale: float,
    order: str,
    repeat: int,
    shuffle_seed: int,
    filter_seen: bool,
    mixing: bool = False,
    device: str | torch.device = "cpu",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rank under a residual scale and an order, and read the mixing ratios of the
    read-out in the same pass.

    Returns
    -------
    ranks : columns of one row per case: ``residual_scale``, ``order``, ``repeat``,
        ``case``, ``user``, ``target_rank``, ``last_rank``, ``last_but_one_rank``, and
        ``target_rank_back_1`` … ``_3``: the target's rank with the read-out moved back.
        Those are read at λ = 1 on the ordered input only, where R is fixed, and only
        for a model that has earlier predictions to go back to; elsewhere they are −1.
    ratios : if asked for, columns of one row per case with two items or more, layer and
        part: ``residual_scale``, ``user``, ``layer`` (from 1), ``part``, ``latest``;
        else no column.

    Raises
    ------
    ArithmeticError if ratios are asked for and the parts and the left-out terms miss
    the model's own output by more than 1e-4.
    """
    going_back = model.reads_prefixes and residual_scale == 1.0 and order == ORDERED
    found = rank(
        model,
        cases,
        filter_seen=filter_seen,
        residual_scale=residual_scale,
        offsets=READOUT_OFFSETS if going_back else (0,),
        change=intervention(order, cases, model.input_length, seed=shuffle_seed, repeat=repeat),
        inspect=_ratios_at_readout if mixing else None,
        device=device,
    )
    ranks = {
        "residual_scale": residual_scale,
        "order": order,
        "repeat": np.int32(repeat),
        "case": np.arange(len(cases), dtype=np.int32),
        "user": cases.user,
        "target_rank": found.target[:, 0],
        "last_rank": found.last,
        "last_but_one_rank": found.last_but_one,
        **{
            f"target_rank_back_{offset}": found.target[:, offset] if going_back else np.int32(-1)
            for offset in READOUT_OFFSETS[1:]
        },
    }
    if found.inspected is None:
        return ranks, {}
    ratio = found.inspected[cases.length > 1]
    case, layer, part = (place.ravel() for place in np.indices(ratio.shape))
    ratios = {
        "user": cases.user[cases.length > 1][case],
        "layer": layer + 1,
        "part": np.array(PARTS)[part],
        "latest": ratio.ravel(),
    }
    return ranks, {"residual_scale": residual_scale, **ratios}


def _ratios_at_readout(traces: Sequence[BlockTrace]) -> Tensor:
    """Mixing ratios [B, layers, 3] of a tile, whose padding rows repeat real ones."""
    check_additivity(traces, torch.ones_like(traces[0].before_norm[:, :, 0], dtype=torch.bool))
    return torch.stack([mixing_ratios(trace)[:, :, 0].T for trace in traces], dim=1)
