"""The one attention block every transformer here is made of."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from lastitem.models.dropout import Dropout, dropped_attention


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

    def project(self, query: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, H, Q, d/H], keys and values [B, H, L, d/H] of ``query``
        [B, Q, d] and ``source`` [B, L, d].
        """
        if query is source:
            q, k, v = self._maps(source, self.query, self.key, self.value)
        else:
            (q,) = self._maps(query, self.query)
            k, v = self._maps(source, self.key, self.value)
        return q, k, v

    def _maps(self, x: Tensor, *maps: nn.Linear) -> tuple[Tensor, ...]:
        """[B, H, L, d/H] of each linear map of x [B, L, d], in one product."""
        weight, bias = (
            torch.cat([getattr(each, name) for each in maps]) for name in ("weight", "bias")
        )
        joined = functional.linear(x, weight, bias)
        return joined.unflatten(-1, (len(maps), self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Weighted sums of values [B, H, Q, d/H]; in training with dropout on the
        weights.

        Parameters
        ----------
        mask : bool, broadcastable to [B, H, Q, L], True where attention is allowed;
            None means causal, with Q = L.
        """
        probability = self.dropout if self.training else 0.0
        if probability and q.device.type == "cpu":
            return dropped_attention(q, k, v, mask, probability)
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=probability, is_causal=mask is None
        )

    def weights(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        """Attention weights [B, H, Q, L] by the plain formula."""
        if mask is None:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        # The scale is applied to the queries and the mask added in place: each pass
        # over [B, H, L, L] costs as much as a product.
        score = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        score += torch.zeros(mask.shape, device=q.device).masked_fill_(~mask, -torch.inf)
        return score.softmax(dim=-1)

    def join(self, mixed: Tensor, at: Tensor | None = None) -> Tensor:
        """Output [B, Q, d] of weighted sums, or [n, d] at the positions ``at``
        (:func:`positions_at`).
        """
        return self.output(positions_at(mixed.transpose(1, 2).flatten(2), at))


class FeedForward(nn.Module):
    """Two linear maps applied at every position, with dropout behind each; between them
    a function of torch.nn.functional, by its name.
    """

    def __init__(self, hidden_size: int, inner_size: int, dropout: float, activation: str) -> None:
        super().__init__()
        self.inner = nn.Linear(hidden_size, inner_size)
        self.outer = nn.Linear(inner_size, hidden_size)
        self.activation = getattr(functional, activation)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, L, d] to [B, L, d]."""
        return self.dropout(self.outer(self.dropout(self.activation(self.inner(x)))))


class AttentionBlock(nn.Module):
    """Attention and feed-forward with residual paths and layer normalization.

    ``post``: h = LN(x + MHA(x, x, x)); out = LN(h + FFN(h)). ``pre`` (SASRec as
    published in 2018): q = LN(x); h = LN(q + MHA(q, x, x)); out = h + FFN(h).

    With ``other_branch`` h becomes (1 − share)·h + share·branch(x), share being
    ``other_share``.
    """

    #: Set for a while from outside; without it the block computes what stands above. It
    #: is asked for the vector behind the attention's normalization, and told the block,
    #: its queries, keys and values, the mask, the residual, and ``at``.
    probe: (
        Callable[
            [AttentionBlock, tuple[Tensor, Tensor, Tensor], Tensor | None, Tensor, Tensor | None],
            Tensor,
        ]
        | None
    ) = None

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

    def forward(self, x: Tensor, mask: Tensor | None, at: Tensor | None = None) -> Tensor:
        """Map [B, L, d] to [B, L, d].

        With ``at`` (:func:`positions_at`) only the vectors of these positions are
        computed behind the attention: [n, d].
        """
        residual = self.other_norm(x) if self.order == "pre" else x
        projected = self.attention.project(residual, x)
        if self.probe is None:
            attended = self.attention.join(self.attention.mix(*projected, mask), at)
            h = self.attention_norm(positions_at(residual, at) + self.attention_dropout(attended))
        else:
            h = self.probe(self, projected, mask, residual, at)
        if self.other_branch is not None:
            h = (1 - self.other_share) * h + self.other_share * self.other_branch(x, at)
        out = h + self.feed_forward(h)
        return out if self.order == "pre" else self.other_norm(out)


class AttentionBlocks(nn.ModuleList):
    """Blocks one after another; with ``at``, the last computes these positions only."""

    def forward(self, x: Tensor, mask: Tensor | None, at: Tensor | None = None) -> Tensor:
        """Map [B, L, d] to [B, L, d], or to [n, d] at the positions ``at``; the
        arguments are those of a block.
        """
        for block in self:
            x = block(x, mask, at if block is self[-1] else None)
        return x
