"""The one attention block every transformer here is made of, with a residual scale and
a trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from lastitem.models.dropout import Dropout, dropout

BLOCK_ORDERS = ("post", "pre")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
}


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


class QueryTrace(list[BlockTrace]):
    """A trace of one query of each sequence, int64 [B]: computed beside the model's own
    path, which stays what it is without a trace.
    """

    def __init__(self, query: Tensor) -> None:
        super().__init__()
        self.query = query


def positions_at(x: Tensor, at: Tensor | None) -> Tensor:
    """The vectors [n, d] of x [B, L, d] at the positions ``at``, int64 [n], numbered
    row by row; all of x if it is None.
    """
    return x if at is None else x.flatten(0, 1).index_select(0, at)


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention with H heads (Vaswani et al. 2017,
    Section 3.2.2).
    """

    def __init__(self, hidden_size: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)

    def forward(
        self, query: Tensor, source: Tensor, mask: Tensor | None, want_weights: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """Attend from ``query`` to ``source``.

        Parameters
        ----------
        query : [B, Q, d].
        source : [B, L, d].
        mask : bool, broadcastable to [B, H, Q, L], True where attention is allowed;
            None means causal, with Q = L.
        want_weights : also return the weights, computed by the plain formula instead of
            a fused kernel.

        Returns
        -------
        output [B, Q, d] (output projection and bias included), weights [B, H, Q, L] or
        None, values [B, H, L, d/H], and their weighted sums [B, H, Q, d/H].
        """
        q, k, v = self.project(query, source)
        mixed, weights = self.mix(q, k, v, mask, want_weights)
        return self.join(mixed), weights, v, mixed

    def project(self, query: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, H, Q, d/H], keys and values [B, H, L, d/H]."""
        vectors = (self.query(query), self.key(source), self.value(source))
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in vectors)
        return q, k, v

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, want_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Weighted sums of values [B, H, Q, d/H], with dropout on the weights in
        training, and the weights before it, if wanted.
        """
        probability = self.dropout if self.training else 0.0
        # The fused kernel of the CPU has no dropout; there the plain formula with cheap
        # dropout is faster.
        if not want_weights and not (probability and q.device.type == "cpu"):
            mixed = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=probability, is_causal=mask is None
            )
            return mixed, None
        allowed = (
            mask
            if mask is not None
            else torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        )
        # The scale is applied to the queries and the mask added in place: each pass
        # over [B, H, L, L] costs as much as a product.
        score = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        score += torch.zeros(allowed.shape, device=q.device).masked_fill_(~allowed, -torch.inf)
        weights = score.softmax(dim=-1)
        return dropout(weights, probability, self.training) @ v, weights if want_weights else None

    def join(self, mixed: Tensor, at: Tensor | None = None) -> Tensor:
        """Output [B, Q, d] of weighted sums, or [n, d] at the positions ``at``
        (:func:`positions_at`).
        """
        return self.output(positions_at(mixed.transpose(1, 2).flatten(2), at))


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

    ``post``: h = LN(λ·x + MHA(x, x, x)); out = LN(h + FFN(h)). ``pre`` (SASRec as
    published in 2018): q = LN(x); h = LN(λ·q + MHA(q, x, x)); out = h + FFN(h).

    The residual scale λ acts on the attention residual only. It is 1 in training and in
    the plain model.

    With ``other_branch`` h becomes (1 − share)·h + share·branch(x), share being
    ``other_share``; the trace is that of the attention branch.
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
        # The second normalization sits behind the feed-forward (post) or in front of
        # the attention (pre).
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

        With ``at`` (:func:`positions_at`) only the vectors of these positions are
        computed behind the attention: [n, d].
        """
        residual = self.other_norm(x) if self.order == "pre" else x
        q, k, v = self.attention.project(residual, x)
        if isinstance(trace, QueryTrace):
            trace.append(self._trace_query(trace.query, q, k, v, mask, residual, residual_scale))
            trace = None
        if trace is not None and at is not None:
            raise ValueError("a trace is of all positions, or of one query of each sequence")
        mixed, weights = self.attention.mix(q, k, v, mask, want_weights=trace is not None)
        residual = positions_at(residual, at)
        before = residual_scale * residual + self.attention_dropout(self.attention.join(mixed, at))
        h = self.attention_norm(before)
        if trace is not None and weights is not None:
            trace.append(self._traced(None, weights, v, mixed, residual, residual_scale, before, h))
        if self.other_branch is not None:
            h = (1 - self.other_share) * h + self.other_share * self.other_branch(x, at)
        out = h + self.feed_forward(h)
        return out if self.order == "pre" else self.other_norm(out)

    def _trace_query(
        self,
        query: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        residual: Tensor,
        residual_scale: float,
    ) -> BlockTrace:
        """What the block does for one query of each sequence: O(L·d), and no [L, L]."""
        row, length = torch.arange(len(query), device=query.device), k.shape[2]
        if mask is None:
            allowed = torch.arange(length, device=query.device) <= query[:, None]
        else:
            allowed = mask.expand(len(query), 1, residual.shape[1], length)[row, 0, query]
        mixed, weights = self.attention.mix(
            q[row, :, query][:, :, None], k, v, allowed[:, None, None], want_weights=True
        )
        own = residual[row, query][:, None]
        before = residual_scale * own + self.attention.join(mixed)
        assert weights is not None
        return self._traced(
            query, weights, v, mixed, own, residual_scale, before, self.attention_norm(before)
        )

    def _traced(
        self,
        query: Tensor | None,
        weights: Tensor,
        values: Tensor,
        mixed: Tensor,
        residual: Tensor,
        residual_scale: float,
        before: Tensor,
        after: Tensor,
    ) -> BlockTrace:
        output = self.attention.output
        return BlockTrace(
            query=query,
            attention=weights,
            values=values,
            mixed=mixed,
            output_weight=output.weight.T.reshape(self.attention.heads, -1, output.out_features),
            output_bias=output.bias,
            residual=residual,
            residual_scale=residual_scale,
            before_norm=before,
            after_norm=after,
            norm_weight=self.attention_norm.weight,
            norm_bias=self.attention_norm.bias,
            norm_epsilon=self.attention_norm.eps,
        )


class AttentionBlocks(nn.ModuleList):
    """Blocks one after another; with ``at``, the last computes these positions only."""

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        residual_scale: float = 1.0,
        trace: list[BlockTrace] | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        """Map [B, L, d] to [B, L, d], or to [n, d] at the positions ``at``; the
        arguments are those of a block.
        """
        for block in self:
            x = block(x, mask, residual_scale, trace, at if block is self[-1] else None)
        return x
