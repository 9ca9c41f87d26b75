"""Looking into attention blocks from outside, and scaling their residual, at inference.

While a model is probed, each of its blocks asks the probe for the vector behind its
normalization. Without a probe nothing is different.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from lastitem.errors import InputError
from lastitem.models.attention import AttentionBlock, positions_at

#: What files say of a model that cannot be probed.
NO_ATTENTION = "no attention block"


@dataclass
class BlockTrace:
    """What one block did, in the terms of Kobayashi et al. 2021: enough to decompose
    it, and no L×L×d tensor.

    With B sequences, H heads of size d/H, L positions, and Q queries, which are all
    positions or one of each sequence:

    Attributes
    ----------
    query : int64 [B], the position of the one query of each sequence; None if all
        positions are queries.
    attention : [B, H, Q, L], weights α_h,ij (query i, source j).
    values : [B, H, L, d/H], x_j W_V,h + b_V,h.
    mixed : [B, H, Q, d/H], Σ_j α_h,ij · values_j.
    output_weight : [H, d/H, d], W_O,h; so f_h(x_j) = values · output_weight.
    output_bias : [d], belongs to no source.
    residual : [B, Q, d], the vector added to the attention output, before its scale.
    residual_scale : λ.
    before_norm : [B, Q, d], λ·residual + attention output, the vector that enters the
        layer normalization.
    after_norm : [B, Q, d], the vector that leaves it.
    norm_weight, norm_bias : [d], gain and shift.
    norm_epsilon : added to the variance, inside the root.
    """

    query: Tensor | None
    attention: Tensor
    values: Tensor
    mixed: Tensor
    output_weight: Tensor
    output_bias: Tensor
    residual: Tensor
    residual_scale: float
    before_norm: Tensor
    after_norm: Tensor
    norm_weight: Tensor
    norm_bias: Tensor
    norm_epsilon: float


def attention_blocks(model: nn.Module) -> list[AttentionBlock]:
    """The attention blocks a model is made of, in their order; empty
    where it has none.
    """
    return [module for module in model.modules() if isinstance(module, AttentionBlock)]


@contextmanager
def probing(
    model: nn.Module,
    *,
    residual_scale: float = 1.0,
    query: Tensor | Literal["every"] | None = None,
) -> Iterator[list[BlockTrace]]:
    """Inside of the block, scale the attention residual of a model, and trace its
    blocks.

    Parameters
    ----------
    residual_scale : λ of every attention block: out = λ·x + Attn(x) in front of the
        normalization, attention residual only; 1 in the plain model.
    query : of which positions a trace is taken: int64 [B], one of each sequence, beside
        the model's own path, which stays bit for bit what it is; ``every``, with
        weights computed by the plain formula instead of a fused kernel; None takes
        none.

    Yields
    ------
    The traces, one for each block that was passed, in their order.

    Raises
    ------
    InputError if the model has no attention block, or λ is negative or not finite.
    """
    blocks = attention_blocks(model)
    if not blocks:
        raise InputError(
            f"{type(model).__name__} has no attention block of this package: there is no residual"
            " to scale, and nothing to trace"
        )
    if not 0.0 <= residual_scale < torch.inf:
        raise InputError(
            f"residual_scale: {residual_scale!r} must be a finite number that is not negative"
        )
    probe = _Probe(residual_scale, query)
    before = [block.probe for block in blocks]
    try:
        for block in blocks:
            block.probe = probe
        yield probe.traces
    finally:
        for block, earlier in zip(blocks, before, strict=True):
            block.probe = earlier


class _Probe:
    def __init__(self, residual_scale: float, query: Tensor | Literal["every"] | None) -> None:
        self.residual_scale, self.query = residual_scale, query
        self.traces: list[BlockTrace] = []

    def __call__(
        self,
        block: AttentionBlock,
        projected: tuple[Tensor, Tensor, Tensor],
        mask: Tensor | None,
        residual: Tensor,
        at: Tensor | None,
    ) -> Tensor:
        """See :attr:`lastitem.models.attention.AttentionBlock.probe`."""
        attention, query, (q, k, v) = block.attention, self.query, projected
        if isinstance(query, Tensor):
            # What the block does for one query of each sequence: O(L·d), and no [L, L].
            row = torch.arange(len(query), device=query.device)
            if mask is None:
                allowed = torch.arange(k.shape[2], device=query.device) <= query[:, None]
            else:
                allowed = mask.expand(len(query), 1, q.shape[2], k.shape[2])[row, 0, query]
            weights = attention.weights(q[row, :, query][:, :, None], k, allowed[:, None, None])
            self._trace(block, query, weights, v, residual[row, query][:, None])
        elif query == "every":
            if at is not None:
                raise ValueError("a trace of every position needs the vectors of every position")
            return self._trace(block, None, attention.weights(q, k, mask), v, residual)
        attended = block.attention_dropout(attention.join(attention.mix(q, k, v, mask), at))
        return block.attention_norm(self.residual_scale * positions_at(residual, at) + attended)

    def _trace(
        self,
        block: AttentionBlock,
        query: Tensor | None,
        weights: Tensor,
        values: Tensor,
        residual: Tensor,
    ) -> Tensor:
        """Note a trace and return the vector behind the normalization, [B, Q, d]."""
        attention, norm = block.attention, block.attention_norm
        output, mixed = attention.output, weights @ values
        before = self.residual_scale * residual + attention.join(mixed)
        after = norm(before)
        self.traces.append(
            BlockTrace(
                query=query,
                attention=weights,
                values=values,
                mixed=mixed,
                output_weight=output.weight.T.reshape(attention.heads, -1, output.out_features),
                output_bias=output.bias,
                residual=residual,
                residual_scale=self.residual_scale,
                before_norm=before,
                after_norm=after,
                norm_weight=norm.weight,
                norm_bias=norm.bias,
                norm_epsilon=norm.eps,
            )
        )
        return after
