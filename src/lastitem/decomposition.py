"""Norm decomposition of attention blocks (Kobayashi et al. 2020, "Attention is not only a weight"; 2021,
"Incorporating residual and normalization layers").

For query i and source j, with attention weights α_h and f_h(x_j) = (x_j W_V,h + b_V,h) W_O,h, a block's output
before its feed-forward is a sum of parts:

* ``Attn``       y_ij = Σ_h α_h,ij f_h(x_j)
* ``AttnRes``    y_ij + δ_ij · λ · x_i
* ``AttnResLN``  the AttnRes part minus its own mean over d, divided by the standard deviation of the full vector before
  the normalization (ε inside the root), times the gain.

The output bias and the shift of the normalization belong to no part. The mixing ratio of query i is
‖Σ_{j≠i} part_ij‖ / (‖Σ_{j≠i} part_ij‖ + ‖part_ii‖). All of it is linear in the parts, so sums over sources are
taken before the maps, and norms of single parts come from per-head Gram matrices: no L×L×d tensor is formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lastitem.models.attention import BlockTrace
from lastitem.models.interface import SequenceModel
from lastitem.sequences import HeldOut, pad, tiles

PARTS = ("Attn", "AttnRes", "AttnResLN")
ADDITIVITY_TOLERANCE = 1e-4
#: What the files of a model without attention say instead of rows.
NO_ATTENTION = "no attention block"


@dataclass
class Decomposition:
    """Mixing ratios and maps of one model.

    Attributes
    ----------
    user : int32 [n], users of the inputs with two items or more.
    latest : float32 [n, layers, 3], ratio at the read-out position, by :data:`PARTS`.
    every : float32 [positions, layers, 3], ratios at all real positions of these inputs.
    position_sum : float64 [n, layers, 3], sum of each input's ratios.   position_count : int64 [n], how many.
    attention_map, norm_map : float64 [layers, P, P], averages over users of the attention weight (mean of the heads) and of
        ‖part_ij‖ for AttnResLN; row = query, column = source, newest last; NaN where no input is long enough.
    map_count : int64 [P, P], inputs behind each cell.
    single_item_inputs : inputs with one item, left out of the ratios.
    additivity_error : largest |parts + left-out terms − output| of the first batch.
    """

    user: NDArray[np.int32]
    latest: NDArray[np.float32]
    every: NDArray[np.float32]
    position_sum: NDArray[np.float64]
    position_count: NDArray[np.int64]
    attention_map: NDArray[np.float64]
    norm_map: NDArray[np.float64]
    map_count: NDArray[np.int64]
    single_item_inputs: int
    additivity_error: float

    def summary(self) -> dict[str, list[Any]]:
        """Columns ``layer`` (from 1), ``part``, ``positions`` (latest, all), ``mean``, ``median``, ``sd``, ``n``; NaN left out."""
        names = ("layer", "part", "positions", "mean", "median", "sd", "n")
        rows = []
        for layer in range(self.latest.shape[1]):
            for number, part in enumerate(PARTS):
                for positions, ratio in (("latest", self.latest), ("all", self.every)):
                    value = ratio[:, layer, number].astype(np.float64)
                    value = value[~np.isnan(value)]
                    rows.append((layer + 1, part, positions, value.mean(), np.median(value), value.std(), len(value)))
        return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}

    def by_user(self) -> dict[str, NDArray[Any]]:
        """Columns ``user``, ``layer`` (from 1), ``part``, ``latest``, ``position_sum``, ``position_count``."""
        shape = self.latest.shape
        _, layer, part = np.indices(shape)
        each = shape[1] * shape[2]
        return {
            "user": np.repeat(self.user, each),
            "layer": layer.ravel() + 1,
            "part": np.array(PARTS)[part.ravel()],
            "latest": self.latest.ravel(),
            "position_sum": self.position_sum.ravel(),
            "position_count": np.repeat(self.position_count, each),
        }

    def maps(self) -> dict[str, NDArray[Any]]:
        """Columns ``layer`` (from 1), ``query``, ``source`` (0: newest, −1 the one before, …), ``attention``, ``norm``, ``n``."""
        layer, query, source = np.indices(self.norm_map.shape)
        newest = self.norm_map.shape[1] - 1
        return {
            "layer": layer.ravel() + 1,
            "query": query.ravel() - newest,
            "source": source.ravel() - newest,
            "attention": self.attention_map.ravel(),
            "norm": self.norm_map.ravel(),
            "n": np.broadcast_to(self.map_count, self.norm_map.shape).ravel(),
        }


def own_and_others(trace: BlockTrace) -> tuple[Tensor, Tensor]:
    """The Attn part of a query's own position, Σ_h α_h,ii f_h(x_i), and the sum over all other sources.

    Both are projected after the sum over sources, so this costs O(L·d²), whatever the attention did.

    Returns
    -------
    own, others : [B, Q, d]; their sum and the output bias make the attention output.
    """
    if trace.query is None:
        weight, values = torch.diagonal(trace.attention, dim1=-2, dim2=-1), trace.values
    else:
        row = torch.arange(len(trace.query), device=trace.query.device)
        weight, values = trace.attention[row, :, 0, trace.query][:, :, None], trace.values[row, :, trace.query][:, :, None]
    own = weight[..., None] * values
    return torch.einsum("bhqe,hed->bqd", own, trace.output_weight), torch.einsum("bhqe,hed->bqd", trace.mixed - own, trace.output_weight)


def normalize_part(trace: BlockTrace, part: Tensor) -> Tensor:
    """The share of a part [B, Q, d] in the normalized vector: centred, over the full vector's deviation, times the gain."""
    deviation = (trace.before_norm.var(dim=-1, unbiased=False, keepdim=True) + trace.norm_epsilon).sqrt()
    return _centred(trace, part) / deviation


def _centred(trace: BlockTrace, part: Tensor) -> Tensor:
    return trace.norm_weight * (part - part.mean(dim=-1, keepdim=True))


def mixing_ratios(trace: BlockTrace) -> Tensor:
    """Mixing ratio of every query for :data:`PARTS`: [3, B, Q]; NaN where both norms are zero."""
    own, others = own_and_others(trace)
    with_residual = own + trace.residual_scale * trace.residual
    # The deviation of the full vector divides both parts of AttnResLN, so it falls out of their ratio.
    pairs = ((own, others), (with_residual, others), (_centred(trace, with_residual), _centred(trace, others)))
    ratios = []
    for same, other in pairs:
        same_norm, other_norm = same.norm(dim=-1), other.norm(dim=-1)
        ratios.append(other_norm / (other_norm + same_norm))
    return torch.stack(ratios)


def additivity_error(trace: BlockTrace, real: Tensor) -> float:
    """Largest |Σ parts + left-out terms − output| over the real positions (bool [B, L]) of AttnResLN."""
    own, others = own_and_others(trace)
    parts = normalize_part(trace, own + trace.residual_scale * trace.residual) + normalize_part(trace, others)
    left_out = normalize_part(trace, trace.output_bias.expand_as(own)) + trace.norm_bias
    return float((parts + left_out - trace.after_norm)[real].abs().max())


def newest_maps(trace: BlockTrace, start: Tensor, end: Tensor, positions: int) -> tuple[Tensor, Tensor, Tensor]:
    """Attention weights and AttnResLN part norms among the newest positions of each input.

    Parameters
    ----------
    start, end : int64 [B], the real positions of each input are start … end − 1.   positions : P.

    Returns
    -------
    weights : [B, P, P], mean over heads.   norms : [B, P, P], ‖part_ij‖.   valid : bool [B, P], whether a position exists.
    Newest last; rows are queries.
    """
    index = end[:, None] - positions + torch.arange(positions, device=end.device)
    valid = index >= start[:, None]
    index = index.clamp(min=0)
    batch = torch.arange(len(end), device=end.device)[:, None]
    attention = trace.attention[batch[:, :, None], :, index[:, :, None], index[:, None, :]].permute(0, 3, 1, 2)
    part = torch.einsum("bhpe,hed->bhpd", trace.values[batch, :, index].transpose(1, 2), trace.output_weight)
    own = torch.einsum("bhp,bhpd->bpd", torch.diagonal(attention, dim1=2, dim2=3), part)
    own = own + trace.residual_scale * trace.residual[batch, index]
    deviation = (trace.before_norm[batch, index].var(dim=-1, unbiased=False, keepdim=True) + trace.norm_epsilon).sqrt()
    # ‖Σ_h α_h part_h‖² = Σ_hk α_h α_k ⟨part_h, part_k⟩: what depends on queries and what depends on d never meet in one tensor.
    part, own = _centred(trace, part), _centred(trace, own)
    gram = torch.einsum("bhpd,bkpd->bphk", part, part)
    squared = torch.einsum("bhij,bkij,bjhk->bij", attention, attention, gram).clamp(min=0)
    norms = squared.sqrt()
    norms.diagonal(dim1=1, dim2=2).copy_(own.norm(dim=-1))
    return attention.mean(dim=1), norms / deviation, valid


@torch.inference_mode()
def decompose(
    model: SequenceModel, cases: HeldOut, *, residual_scale: float = 1.0, map_positions: int = 15, device: str | torch.device = "cpu"
) -> Decomposition:
    """Decompose every attention block of a model over the inputs of ``cases``, in tiles of users.

    Parameters
    ----------
    map_positions : P of the maps; 0 makes none.

    Raises
    ------
    ArithmeticError if the parts and the left-out terms of the first batch miss the model's own output by more than 1e-4.
    """
    model.eval()
    single = cases.length < 2
    chosen = cases.select(np.flatnonzero(~single))
    shape = (len(chosen), model.attention_blocks, len(PARTS))
    latest, position_sum = np.zeros(shape, dtype=np.float32), np.zeros(shape)
    position_count = np.zeros(len(chosen), dtype=np.int64)
    map_shape = (model.attention_blocks, map_positions, map_positions)
    attention_sum, norm_sum, map_count = np.zeros(map_shape), np.zeros(map_shape), np.zeros(map_shape[1:], dtype=np.int64)
    every = [np.zeros((0, *shape[1:]), dtype=np.float32)]
    error = None
    for index, count, width in tiles(chosen, model.input_length):
        items, length = pad(chosen, index, model.input_length, width)
        items, length = items.to(device), length.to(device)
        traces: list[BlockTrace] = []
        model.encode(items, length, residual_scale=residual_scale, trace=traces)
        start, end = model.input_start(length), model.readout(length) + 1
        place = torch.arange(traces[0].before_norm.shape[1], device=device)
        counted = torch.arange(len(index), device=device) < count
        real = (place >= start[:, None]) & (place < end[:, None]) & counted[:, None]
        if error is None:
            error = max(additivity_error(trace, real) for trace in traces)
            if not error <= ADDITIVITY_TOLERANCE:
                raise ArithmeticError(f"the parts of the decomposition miss the block's output by {error:.1e} (> {ADDITIVITY_TOLERANCE})")
        ratios = torch.stack([mixing_ratios(trace) for trace in traces]).permute(2, 3, 0, 1)
        latest[index] = ratios[torch.arange(len(index), device=device), end - 1].cpu().numpy()
        every.append(ratios[real].cpu().numpy())
        position_sum[index[:count]] = torch.where(real[:, :, None, None], ratios, 0).sum(dim=1, dtype=torch.float64)[:count].cpu().numpy()
        position_count[index] = (end - start).cpu().numpy()
        if map_positions:
            for layer, trace in enumerate(traces):
                weights, norms, valid = newest_maps(trace, start, end, map_positions)
                both = valid[:, :, None] & valid[:, None, :] & counted[:, None, None]
                attention_sum[layer] += torch.where(both, weights, 0).sum(dim=0, dtype=torch.float64).cpu().numpy()
                norm_sum[layer] += torch.where(both, norms, 0).sum(dim=0, dtype=torch.float64).cpu().numpy()
            map_count += both.sum(dim=0).cpu().numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        return Decomposition(
            user=chosen.user,
            latest=latest,
            every=np.concatenate(every),
            position_sum=position_sum,
            position_count=position_count,
            attention_map=attention_sum / map_count,
            norm_map=norm_sum / map_count,
            map_count=map_count,
            single_item_inputs=int(single.sum()),
            additivity_error=error or 0.0,
        )
