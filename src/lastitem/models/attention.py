"""The one attention block every transformer here is made of, with a residual scale and a trace."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from lastitem.models.dropout import Dropout, dropout

BLOCK_ORDERS = ("post", "pre")
ACTIVATIONS = {"relu": functional.relu, "gelu": functional.gelu}


@dataclass
class BlockTrace:
    """What one block did, in the terms of Kobayashi et al. 2021: enough to decompose it, and no L×L×d tensor.

    With B sequences, H heads of size d/H, and L positions:

    Attributes
    ----------
    attention : [B, H, L, L], weights α_h,ij (query i, source j).
    values : [B, H, L, d/H], x_j W_V,h + b_V,h.
    output_weight : [H, d/H, d], W_O,h; so f_h(x_j) = values · output_weight.
    output_bias : [d], belongs to no source.
    residual : [B, L, d], the vector added to the attention output, before its scale.
    residual_scale : λ.
    before_norm : [B, L, d], λ·residual + attention output, the vector that enters the layer normalization.
    after_norm : [B, L, d], the vector that leaves it.
    norm_weight, norm_bias : [d], gain and shift.   norm_epsilon : added to the variance, inside the root.
    """

    attention: Tensor
    values: Tensor
    output_weight: Tensor
    output_bias: Tensor
    residual: Tensor
    residual_scale: float
    before_norm: Tensor
    after_norm: Tensor
    norm_weight: Tensor
    norm_bias: Tensor
    norm_epsilon: float


def positions_at(x: Tensor, at: Tensor | None) -> Tensor:
    """The vectors [n, d] of x [B, L, d] at the positions ``at``, int64 [n], numbered row by row; all of x if it is None."""
    return x if at is None else x.flatten(0, 1).index_select(0, at)


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention with H heads (Vaswani et al. 2017, Section 3.2.2)."""

    def __init__(self, hidden_size: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)

    def forward(
        self, query: Tensor, source: Tensor, mask: Tensor | None, want_weights: bool = False, at: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Attend from ``query`` to ``source``.

        Parameters
        ----------
        query, source : [B, L, d].
        mask : bool, broadcastable to [B, H, L, L], True where attention is allowed; None means causal.
        want_weights : also return the weights, computed by the plain formula instead of a fused kernel.
        at : int64 [n], see :func:`positions_at`: only these positions are projected.

        Returns
        -------
        output [B, L, d], or [n, d] with ``at`` (output projection and bias included), weights [B, H, L, L] or None,
        values [B, H, L, d/H].
        """
        batch, length, hidden_size = query.shape
        split = (batch, length, self.heads, hidden_size // self.heads)
        q = self.query(query).view(split).transpose(1, 2)
        k = self.key(source).view(split).transpose(1, 2)
        v = self.value(source).view(split).transpose(1, 2)
        probability = self.dropout if self.training else 0.0
        weights = None
        # The fused kernel of the CPU has no dropout; there the plain formula with cheap dropout is faster.
        if want_weights or (probability and q.device.type == "cpu"):
            allowed = mask if mask is not None else torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
            # The scale is applied to the queries and the mask added in place: each pass over [B, H, L, L] costs as much as a product.
            score = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
            score += torch.zeros(allowed.shape, device=q.device).masked_fill_(~allowed, -torch.inf)
            weights = score.softmax(dim=-1)
            mixed = dropout(weights, probability, self.training) @ v
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=probability, is_causal=mask is None)
        joined = positions_at(mixed.transpose(1, 2).reshape(batch, length, hidden_size), at)
        return self.output(joined), weights if want_weights else None, v


class FeedForward(nn.Module):
    """Two linear maps applied at every position, with dropout behind each."""

    def __init__(self, hidden_size: int, inner_size: int, dropout: float, activation: str) -> None:
        super().__init__()
        self.inner = nn.Linear(hidden_size, inner_size)
        self.outer = nn.Linear(inner_size, hidden_size)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, L, d] to [B, L, d]."""
        return self.dropout(self.outer(self.dropout(self.activation(self.inner(x)))))


class AttentionBlock(nn.Module):
    """Attention and feed-forward with residual paths and layer normalization.

    ``post``: h = LN(λ·x + MHA(x, x, x)); out = LN(h + FFN(h)).
    ``pre`` (SASRec as published in 2018): q = LN(x); h = LN(λ·q + MHA(q, x, x)); out = h + FFN(h).

    The residual scale λ acts on the attention residual only. It is 1 in training and in the plain model.

    With ``other_branch`` h becomes (1 − share)·h + share·branch(x), share being ``other_share``; the trace is that of the attention branch.
    """

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        inner_size: int,
        dropout: float,
        order: str,
        activation: str = "relu",
        epsilon: float = 1e-8,
        other_branch: nn.Module | None = None,
        other_share: float = 0.0,
    ) -> None:
        super().__init__()
        self.order = order
        self.other_branch, self.other_share = other_branch, other_share
        self.attention = MultiHeadAttention(hidden_size, heads, dropout)
        self.attention_dropout = Dropout(dropout)
        self.attention_norm = nn.LayerNorm(hidden_size, eps=epsilon)
        self.feed_forward = FeedForward(hidden_size, inner_size, dropout, activation)
        # The second normalization sits behind the feed-forward (post) or in front of the attention (pre).
        self.other_norm = nn.LayerNorm(hidden_size, eps=epsilon)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        residual_scale: float = 1.0,
        trace: list[BlockTrace] | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        """Map [B, L, d] to [B, L, d]; with ``trace`` given, append what happened to it.

        With ``at`` (:func:`positions_at`) only the vectors of these positions are computed behind the attention: [n, d].
        """
        residual = self.other_norm(x) if self.order == "pre" else x
        attended, weights, values = self.attention(residual, x, mask, want_weights=trace is not None, at=at)
        residual = positions_at(residual, at)
        before = residual_scale * residual + self.attention_dropout(attended)
        h = self.attention_norm(before)
        if trace is not None:
            if at is not None or weights is None:
                raise ValueError("a trace is of all positions")
            output = self.attention.output
            trace.append(
                BlockTrace(
                    attention=weights,
                    values=values,
                    output_weight=output.weight.T.reshape(self.attention.heads, -1, output.out_features),
                    output_bias=output.bias,
                    residual=residual,
                    residual_scale=residual_scale,
                    before_norm=before,
                    after_norm=h,
                    norm_weight=self.attention_norm.weight,
                    norm_bias=self.attention_norm.bias,
                    norm_epsilon=self.attention_norm.eps,
                )
            )
        if self.other_branch is not None:
            h = (1 - self.other_share) * h + self.other_share * self.other_branch(x, at)
        out = h + self.feed_forward(h)
        return out if self.order == "pre" else self.other_norm(out)


class AttentionBlocks(nn.ModuleList):
    """Blocks one after another; with ``at``, the last computes these positions only."""

    def forward(
        self, x: Tensor, mask: Tensor | None, residual_scale: float = 1.0, trace: list[BlockTrace] | None = None, at: Tensor | None = None
    ) -> Tensor:
        """Map [B, L, d] to [B, L, d], or to [n, d] at the positions ``at``; the arguments are those of a block."""
        for block in self:
            x = block(x, mask, residual_scale, trace, at if block is self[-1] else None)
        return x
