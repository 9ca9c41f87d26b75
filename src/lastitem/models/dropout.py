"""Dropout whose random bits are cheap on the CPU, where torch's own takes a quarter of
a training step; and attention with dropout on its weights.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_LEVELS = 1 << 16
#: Queries of attention computed at once: what is formed of their weights stays in a
#: core's cache, and with the causal mask nothing is computed behind the last of them.
_QUERIES = 64


def dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    """Zero each element with ``probability`` and scale the others by 1 / (1 −
    probability), while training.

    On the CPU the probability is rounded to a multiple of 1/65,536 below 1; the scale
    belongs to the rounded value, so the expectation is exact. Elsewhere torch's own
    dropout is used. Shapes and dtype are kept.
    """
    if not training or probability == 0.0:
        return x
    if x.device.type != "cpu" or probability >= 1.0:
        return functional.dropout(x, probability)
    return _CheapDropout.apply(x, _dropped_levels(probability))


def dropped_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, probability: float
) -> Tensor:
    """softmax(q·kᵀ/√(d/H)) with :func:`dropout` on it, times v: float [B, H, Q, d/H].

    On the CPU, where torch's fused kernels have no dropout. The products of a few
    queries after another are formed, and of their gradients, so no more than two
    numbers for each pair are kept and what the causal mask hides is not computed.

    Parameters
    ----------
    q : [B, H, Q, d/H].
    k, v : [B, H, L, d/H].
    mask : bool, broadcastable to [B, H, Q, L], True where attention is allowed; None
        means causal, with Q = L.
    probability : below 1.
    """
    return _DroppedAttention.apply(q, k, v, mask, _dropped_levels(probability))


class Dropout(nn.Module):
    """:func:`dropout` as a module."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as ``x``."""
        return dropout(x, self.probability, self.training)


def _dropped_levels(probability: float) -> int:
    return min(round(probability * _LEVELS), _LEVELS - 1)


def _scale(dropped_levels: int) -> float:
    return _LEVELS / (_LEVELS - dropped_levels)


def _kept(like: Tensor, dropped_levels: int) -> Tensor:
    """1 where an element is kept, else 0. Four elements share one 64-bit draw of
    torch's generator: each compares its own 16 bits with p.
    """
    draws = torch.empty(-(-like.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    own = draws.view(torch.int16)[: like.numel()].view(like.shape)
    # As numbers right away: to turn truth values into them would be one more pass.
    return torch.ge(own, dropped_levels - _LEVELS // 2, out=torch.empty_like(like))


class _CheapDropout(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, dropped_levels: int) -> Tensor:
        factor = _kept(x, dropped_levels).mul_(_scale(dropped_levels))
        context.save_for_backward(factor)
        return x * factor

    @staticmethod
    def backward(context: Any, *gradient: Tensor) -> tuple[Tensor, None]:
        (factor,) = context.saved_tensors
        return gradient[0] * factor, None


class _DroppedAttention(torch.autograd.Function):
    """With weights P = softmax(q·kᵀ), what is kept of them D = F∘P, and o = D·v: d/dv =
    Dᵀ·g, and d/d(q·kᵀ) = D∘(g·vᵀ) − P∘rowsum(g∘o), since Σ_j D_ij (g_i·v_j) = g_i·o_i.
    """

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(
        context: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropped_levels: int
    ) -> Tensor:
        heads, context.causal = q.shape[:2], mask is None
        # Scales cost less on q and v than on weights.
        context.scale_q, context.scale_v = q.shape[-1] ** -0.5, _scale(dropped_levels)
        q, k, v = (
            torch.mul(part, scale, out=torch.empty(part.shape, dtype=part.dtype)).flatten(0, 1)
            for part, scale in ((q, context.scale_q), (k, 1.0), (v, context.scale_v))
        )
        if mask is None:
            size = min(_QUERIES, q.shape[1])
            bias = q.new_full((size, size), -torch.inf).triu_(1)
        else:
            bias = q.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)
        mixed, saved = torch.empty_like(q), []
        for rows, keys in _parts(context.causal, q, k):
            weights = torch.bmm(q[:, rows], k[:, keys].mT)
            if context.causal:
                # Earlier keys are seen by all of these queries.
                count = rows.stop - rows.start
                weights[:, :, rows] += bias[:count, :count]
            else:
                of_rows = bias[..., rows, :] if bias.shape[-2] > 1 else bias
                weights.unflatten(0, heads).add_(of_rows)
            torch.softmax(weights, dim=-1, out=weights)
            dropped = _kept(weights, dropped_levels).mul_(weights)
            mixed[:, rows] = torch.bmm(dropped, v[:, keys])
            saved += [weights, dropped]
        context.save_for_backward(q, k, v, mixed, *saved)
        return mixed.unflatten(0, heads)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(context: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mixed, *saved = context.saved_tensors
        gradient = outer[0].flatten(0, 1).contiguous()
        along = (gradient * mixed).sum(dim=-1, keepdim=True)
        of_q, of_k, of_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for (rows, keys), weights, dropped in zip(
            _parts(context.causal, q, k), saved[::2], saved[1::2], strict=True
        ):
            of_scores = torch.bmm(gradient[:, rows], v[:, keys].mT)
            of_scores.mul_(dropped).addcmul_(weights, along[:, rows], value=-1)
            of_q[:, rows] = torch.bmm(of_scores, k[:, keys])
            of_k[:, keys] += torch.bmm(of_scores.mT, q[:, rows])
            of_v[:, keys] += torch.bmm(dropped.mT, gradient[:, rows])
        of_q, of_v = of_q.mul_(context.scale_q), of_v.mul_(context.scale_v)
        found = (part.unflatten(0, outer[0].shape[:2]) for part in (of_q, of_k, of_v))
        return *found, None, None


def _parts(causal: bool, q: Tensor, k: Tensor) -> Iterator[tuple[slice, slice]]:
    """Which queries are computed at once, and which keys they may see."""
    for start in range(0, q.shape[1], _QUERIES):
        end = min(start + _QUERIES, q.shape[1])
        yield slice(start, end), slice(0, end if causal else k.shape[1])
