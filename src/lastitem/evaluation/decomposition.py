"""Norm decomposition of attention blocks (Kobayashi et al. 2020, "Attention is not only
a weight"; 2021, "Incorporating residual and normalization layers").

For query i and source j, with attention weights α_h and f_h(x_j) = (x_j W_V,h + b_V,h)
W_O,h, a block's output before its feed-forward is a sum of parts:

* ``Attn``: y_ij = Σ_h α_h,ij f_h(x_j)
* ``AttnRes``: y_ij + δ_ij · λ · x_i
* ``AttnResLN``: the AttnRes part minus its own mean over d, divided by the standard
  deviation of the full vector before the normalization (ε inside the root), times the
  gain.

The output bias and the shift of the normalization belong to no part. The mixing ratio
of query i is ‖Σ_{j≠i} part_ij‖ / (‖Σ_{j≠i} part_ij‖ + ‖part_ii‖). All of it is linear
in the parts, so sums over sources are taken before the maps, and norms of single parts
come from per-head Gram matrices: no L×L×d tensor is formed.

Two measures beyond the paper, at the read-out position. *Whole stack*: in the manner of
attention rollout (Abnar & Zuidema 2020) the norms of the AttnResLN parts, as shares of
each query's sum, are multiplied through the blocks; what does not come from the
read-out position itself is the mixing ratio of the stack. It assumes that parts do not
cancel each other (their norms are added, not the vectors), and that what lies between
the blocks, acting on each position alone, keeps the shares. *Head shares*: of the norms
of Σ_{j≠i} α_h,ij f_h(x_j), one per head, how much each head holds: which head brings
the context.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lastitem.arrays import Codes, Floats, Ints, Singles
from lastitem.data.padding import pad, tiles
from lastitem.data.sequences import HeldOut
from lastitem.evaluation.probing import BlockTrace, attention_blocks, probing
from lastitem.models.interface import SequenceModel
from lastitem.study.runs import HEAD_SHARE, PARTS, WHOLE_STACK

ADDITIVITY_TOLERANCE = 1e-4
#: What files say instead of rows where no input has an item to mix in.
SINGLE_ITEMS = "every input has one item"


@dataclass
class Decomposition:
    """Mixing ratios and maps of one model.

    Attributes
    ----------
    user : int32 [n], users of the inputs with two items or more.
    latest : float32 [n, layers, 3], ratio at the read-out position, by :data:`PARTS`.
    every : float32 [positions, layers, 3], ratios at all real positions of these
        inputs.
    stack : float32 [n], mixing ratio of the whole stack at the read-out; NaN for a
        model with another branch beside attention.
    head_shares : float32 [n, layers, H], share of each head in the context at the
        read-out.
    attention_map, norm_map : float64 [layers, P, P], averages over users of the
        attention weight (mean of the heads) and of ‖part_ij‖ for AttnResLN; row =
        query, column = source, newest last; NaN where no input is long enough.
    map_count : int64 [P, P], inputs behind each cell.
    older : float64 [2, layers, P], for each query the attention weight of all positions
        before the newest P together, and the norm of the sum of their parts; averages
        over the inputs that have such positions.
    older_count : int64 [P], inputs behind each.
    single_item_inputs : inputs with one item, left out of the ratios.
    additivity_error : largest |parts + left-out terms − output|.
    """

    user: Codes
    latest: Singles
    every: Singles
    stack: Singles
    head_shares: Singles
    attention_map: Floats
    norm_map: Floats
    map_count: Ints
    older: Floats
    older_count: Ints
    single_item_inputs: int
    additivity_error: float

    def _at_readout(self) -> Iterator[tuple[int, str, Singles]]:
        """Layer (from 1; 0 is the whole stack), part, and its value for each input."""
        for layer in range(self.latest.shape[1]):
            for number, part in enumerate(PARTS):
                yield layer + 1, part, self.latest[:, layer, number]
            for head in range(self.head_shares.shape[2]):
                yield layer + 1, f"{HEAD_SHARE}{head + 1}", self.head_shares[:, layer, head]
        yield WHOLE_STACK, PARTS[-1], self.stack

    def summary(self) -> dict[str, list[Any]]:
        """Columns ``layer`` (from 1; 0: whole stack), ``part`` (also head shares),
        ``positions`` (latest, all), ``mean``, ``median``, ``sd``, ``n``; NaN is left
        out, and what is NaN for every input.
        """
        names = ("layer", "part", "positions", "mean", "median", "sd", "n")
        found = [(layer, part, "latest", value) for layer, part, value in self._at_readout()]
        found += [
            (layer + 1, part, "all", self.every[:, layer, number])
            for layer in range(self.latest.shape[1])
            for number, part in enumerate(PARTS)
        ]
        rows = [
            (*which, value.mean(), np.median(value), value.std(), len(value))
            for *which, ratio in found
            if len(value := ratio[~np.isnan(ratio)].astype(np.float64))
        ]
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}

    def by_user(self) -> dict[str, NDArray[Any]]:
        """Columns ``user``, ``layer`` (from 1; 0: whole stack), ``part`` (also head
        shares), ``latest``: the value at the read-out.
        """
        layers, parts, values = zip(*self._at_readout(), strict=True)
        return {
            "user": np.repeat(self.user, len(values)),
            "layer": np.tile(layers, len(self.user)),
            "part": np.tile(parts, len(self.user)),
            "latest": np.column_stack(values).ravel(),
        }

    def maps(self) -> dict[str, NDArray[Any]]:
        """Columns ``layer`` (from 1), ``query``, ``source`` (0: newest, −1 the one
        before, … −P: all that are older than the newest P), ``attention``, ``norm``,
        ``n``.
        """
        cells = np.concatenate(
            [self.older[..., None], np.stack([self.attention_map, self.norm_map])], axis=3
        )
        layer, query, source = np.indices(cells.shape[1:])
        count = np.column_stack([self.older_count, self.map_count])
        positions = cells.shape[2]
        return {
            "layer": layer.ravel() + 1,
            "query": query.ravel() - positions + 1,
            "source": source.ravel() - positions,
            "attention": cells[0].ravel(),
            "norm": cells[1].ravel(),
            "n": np.broadcast_to(count, cells.shape[1:]).ravel(),
        }


def _rows(x: Tensor) -> Tensor:
    """The numbers of its rows."""
    return torch.arange(len(x), device=x.device)


def own_and_others(trace: BlockTrace) -> tuple[Tensor, Tensor]:
    """The Attn part of a query's own position, Σ_h α_h,ii f_h(x_i), and the sum over
    all other sources.

    Both are projected after the sum over sources, so this costs O(L·d²), whatever the
    attention did.

    Returns
    -------
    own, others : [B, Q, d]; their sum and the output bias make the attention output.
    """
    if trace.query is None:
        weight, values = torch.diagonal(trace.attention, dim1=-2, dim2=-1), trace.values
    else:
        row = _rows(trace.query)
        weight = trace.attention[row, :, 0, trace.query][:, :, None]
        values = trace.values[row, :, trace.query][:, :, None]
    own = weight[..., None] * values
    return torch.einsum("bhqe,hed->bqd", own, trace.output_weight), torch.einsum(
        "bhqe,hed->bqd", trace.mixed - own, trace.output_weight
    )


def normalize_part(trace: BlockTrace, part: Tensor) -> Tensor:
    """The share of a part [B, Q, d] in the normalized vector: centred, over the full
    vector's deviation, times the gain.
    """
    deviation = (
        trace.before_norm.var(dim=-1, unbiased=False, keepdim=True) + trace.norm_epsilon
    ).sqrt()
    return _centred(trace, part) / deviation


def _centred(trace: BlockTrace, part: Tensor) -> Tensor:
    return trace.norm_weight * (part - part.mean(dim=-1, keepdim=True))


def mixing_ratios(trace: BlockTrace) -> Tensor:
    """Mixing ratio of every query for :data:`PARTS`: [3, B, Q]; NaN where both norms
    are zero.
    """
    own, others = own_and_others(trace)
    with_residual = own + trace.residual_scale * trace.residual
    # The deviation of the full vector divides both parts of AttnResLN, so it falls out
    # of their ratio.
    pairs = (
        (own, others),
        (with_residual, others),
        (_centred(trace, with_residual), _centred(trace, others)),
    )
    ratios = []
    for same, other in pairs:
        same_norm, other_norm = same.norm(dim=-1), other.norm(dim=-1)
        ratios.append(other_norm / (other_norm + same_norm))
    return torch.stack(ratios)


def additivity_error(trace: BlockTrace, real: Tensor) -> float:
    """Largest |Σ parts + left-out terms − output| over the real positions (bool [B, Q])
    of AttnResLN.

    The parts are formed anew from attention weights and values: what the block itself
    mixed would add up whatever those say.
    """
    own, others = own_and_others(dataclasses.replace(trace, mixed=trace.attention @ trace.values))
    parts = normalize_part(trace, own + trace.residual_scale * trace.residual) + normalize_part(
        trace, others
    )
    left_out = normalize_part(trace, trace.output_bias.expand_as(own)) + trace.norm_bias
    return float((parts + left_out - trace.after_norm)[real].abs().max())


def check_additivity(traces: Sequence[BlockTrace], real: Tensor) -> float:
    """:func:`additivity_error` of all blocks; ArithmeticError where it is above
    :data:`ADDITIVITY_TOLERANCE`, or no number.
    """
    error = max(additivity_error(trace, real) for trace in traces)
    if not error <= ADDITIVITY_TOLERANCE:
        raise ArithmeticError(
            f"the parts of the decomposition miss the block's output by {error:.1e} (>"
            f" {ADDITIVITY_TOLERANCE})"
        )
    return error


def part_norms(trace: BlockTrace, index: Tensor | None = None) -> Tensor:
    """Norms ‖part_ij‖ of AttnResLN among the positions ``index``, int64 [B, P], or
    among all: [B, P, P], rows are queries.
    """
    batch = _rows(trace.residual)[:, None]
    if index is None:
        index = _rows(trace.residual[0]).expand(len(batch), -1)
    attention = _weights_among(trace, index).permute(0, 3, 1, 2)
    part = torch.einsum(
        "bhpe,hed->bhpd", trace.values[batch, :, index].transpose(1, 2), trace.output_weight
    )
    own = torch.einsum("bhp,bhpd->bpd", torch.diagonal(attention, dim1=2, dim2=3), part)
    own = own + trace.residual_scale * trace.residual[batch, index]
    deviation = (
        trace.before_norm[batch, index].var(dim=-1, unbiased=False, keepdim=True)
        + trace.norm_epsilon
    ).sqrt()
    # ‖Σ_h α_h part_h‖² = Σ_hk α_h α_k ⟨part_h, part_k⟩: what depends on queries and
    # what depends on d never meet in one tensor.
    part, own = _centred(trace, part), _centred(trace, own)
    gram = torch.einsum("bhpd,bkpd->bphk", part, part)
    norms = torch.einsum("bhij,bkij,bjhk->bij", attention, attention, gram).clamp(min=0).sqrt()
    norms.diagonal(dim1=1, dim2=2).copy_(own.norm(dim=-1))
    return norms / deviation


def _weights_among(trace: BlockTrace, index: Tensor) -> Tensor:
    """Attention weights among the positions ``index``, int64 [B, P]: [B, P, P, H]."""
    batch = _rows(index)[:, None, None]
    return trace.attention[batch, :, index[:, :, None], index[:, None]]


def newest_maps(
    trace: BlockTrace, start: Tensor, end: Tensor, positions: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention weights and AttnResLN part norms among the newest positions of each
    input.

    Parameters
    ----------
    start, end : int64 [B], the real positions of each input are start … end − 1.
    positions : P.

    Returns
    -------
    weights : [B, P, P], mean over heads.
    norms : [B, P, P], ‖part_ij‖.
    valid : bool [B, P], whether a position exists.
    Newest last; rows are queries.
    """
    index = end[:, None] - positions + torch.arange(positions, device=end.device)
    valid = index >= start[:, None]
    index = index.clamp(min=0)
    return _weights_among(trace, index).mean(dim=-1), part_norms(trace, index), valid


def older_parts(
    trace: BlockTrace, start: Tensor, end: Tensor, positions: int
) -> tuple[Tensor, Tensor, Tensor]:
    """What the newest positions take from all positions before them together.

    Parameters
    ----------
    start, end, positions : as in :func:`newest_maps`.

    Returns
    -------
    weights : [B, P], sum of the attention weights, mean over heads.
    norms : [B, P], norm of the sum of the AttnResLN parts.
    valid : bool [B], whether there are such positions.
    """
    place = _rows(trace.before_norm[0])
    oldest = (end - positions)[:, None]
    is_older = (place >= start[:, None]) & (place < oldest)
    index = (oldest + torch.arange(positions, device=end.device)).clamp(min=0)
    batch = _rows(index)[:, None]
    weights = trace.attention[batch, :, index].transpose(1, 2) * is_older[:, None, None]
    parts = torch.einsum("bhpe,hed->bpd", weights @ trace.values, trace.output_weight)
    before = trace.before_norm[batch, index]
    deviation = (before.var(dim=-1, unbiased=False, keepdim=True) + trace.norm_epsilon).sqrt()
    norms = (_centred(trace, parts) / deviation).norm(dim=-1)
    return weights.sum(dim=-1).mean(dim=1), norms, oldest[:, 0] > start


def stack_mixing_ratio(traces: Sequence[BlockTrace], readout: Tensor) -> Tensor:
    """[B]: the share at the read-out, int64 [B], that the rollout of part norms over
    all blocks takes from other positions.
    """
    row = _rows(readout)
    share = torch.zeros_like(traces[0].before_norm[:, :, 0])
    share[row, readout] = 1.0
    for trace in reversed(traces):
        norms = part_norms(trace)
        of_sources = norms / norms.sum(dim=-1, keepdim=True).clamp(
            min=torch.finfo(norms.dtype).tiny
        )
        share = torch.einsum("bi,bij->bj", share, of_sources)
    return 1.0 - share[row, readout]


def head_shares(trace: BlockTrace, readout: Tensor) -> Tensor:
    """[B, H]: of the norms of the heads' contributions from other positions at the
    read-out, the share of each; NaN where all are zero.
    """
    row = _rows(readout)
    own = trace.attention[row, :, readout, readout][..., None] * trace.values[row, :, readout]
    norms = torch.einsum(
        "bhe,hed->bhd", trace.mixed[row, :, readout] - own, trace.output_weight
    ).norm(dim=-1)
    return norms / norms.sum(dim=-1, keepdim=True)


@torch.inference_mode()
def decompose(
    model: SequenceModel,
    cases: HeldOut,
    *,
    residual_scale: float = 1.0,
    map_positions: int = 15,
    device: str | torch.device = "cpu",
) -> Decomposition:
    """Decompose every attention block of a model over the inputs of ``cases``, in tiles
    of users.

    Parameters
    ----------
    map_positions : P of the maps; 0 makes none.

    Raises
    ------
    ArithmeticError if the parts and the left-out terms miss the model's own output by
        more than 1e-4 anywhere. InputError if the model has no attention block.
    """
    model.eval()
    chosen = cases.select(np.flatnonzero(cases.length >= 2))
    blocks = attention_blocks(model)
    heads = max((block.attention.heads for block in blocks), default=0)
    alone = all(block.other_branch is None for block in blocks)
    shape = (len(chosen), len(blocks), len(PARTS))
    latest = np.zeros(shape, dtype=np.float32)
    stack = np.full(len(chosen), np.nan, dtype=np.float32)
    shares = np.zeros((*shape[:2], heads), dtype=np.float32)
    every = [np.zeros((0, *shape[1:]), dtype=np.float32)]
    maps, error = _Maps(len(blocks), map_positions), 0.0
    window = model.input_length
    with probing(model, residual_scale=residual_scale, query="every") as traces:
        for index, count, width in tiles(chosen, window, "decompose"):
            items, length = pad(chosen, index, window, width)
            items, length = items.to(device), length.to(device)
            traces.clear()
            model.encode(items, length)
            start, end = model.input_start(length), model.readout(length) + 1
            place = _rows(traces[0].before_norm[0])
            row = _rows(length)
            counted = row < count
            real = (place >= start[:, None]) & (place < end[:, None]) & counted[:, None]
            error = max(error, check_additivity(traces, real))
            ratios = torch.stack([mixing_ratios(trace) for trace in traces]).permute(2, 3, 0, 1)
            latest[index] = ratios[row, end - 1].cpu().numpy()
            every.append(ratios[real].cpu().numpy())
            by_head = [head_shares(trace, end - 1) for trace in traces]
            shares[index] = torch.stack(by_head, dim=1).cpu().numpy()
            if alone:
                stack[index] = stack_mixing_ratio(traces, end - 1).cpu().numpy()
            if map_positions:
                maps.add(traces, start, end, counted)
    with np.errstate(invalid="ignore", divide="ignore"):
        attention_map, norm_map = maps.sums / maps.count
        older = maps.older / maps.older_count
    return Decomposition(
        user=chosen.user,
        latest=latest,
        every=np.concatenate(every),
        stack=stack,
        head_shares=shares,
        attention_map=attention_map,
        norm_map=norm_map,
        map_count=maps.count,
        older=older,
        older_count=maps.older_count,
        single_item_inputs=len(cases) - len(chosen),
        additivity_error=error,
    )


class _Maps:
    """Sums over inputs of :func:`newest_maps` and :func:`older_parts` of each block,
    and their counts.
    """

    def __init__(self, blocks: int, positions: int) -> None:
        self.sums = np.zeros((2, blocks, positions, positions))
        self.count = np.zeros((positions, positions), dtype=np.int64)
        self.older = np.zeros((2, blocks, positions))
        self.older_count = np.zeros(positions, dtype=np.int64)

    def add(
        self, traces: Sequence[BlockTrace], start: Tensor, end: Tensor, counted: Tensor
    ) -> None:
        """Add a tile; ``counted``, bool [B], leaves out what only fills its shape."""
        for layer, trace in enumerate(traces):
            *maps, valid = newest_maps(trace, start, end, len(self.count))
            both = valid[:, :, None] & valid[:, None] & counted[:, None, None]
            for total, cells in zip(self.sums[:, layer], maps, strict=True):
                total += _total(cells, both)
            *sums, has_older = older_parts(trace, start, end, len(self.count))
            older = valid & (has_older & counted)[:, None]
            for total, cells in zip(self.older[:, layer], sums, strict=True):
                total += _total(cells, older)
        self.count += both.sum(dim=0).cpu().numpy()
        self.older_count += older.sum(dim=0).cpu().numpy()


def _total(cells: Tensor, counted: Tensor) -> Floats:
    """The sum over the inputs of what is counted of them."""
    return torch.where(counted, cells, 0).sum(dim=0, dtype=torch.float64).cpu().numpy()
