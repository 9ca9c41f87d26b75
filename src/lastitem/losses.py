"""Training losses over the vectors of labelled positions only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

LOSSES = ("softmax", "bce")
#: Scores held at once by the softmax loss: few enough to stay in a core's cache.
CHUNK_SCORES = 1_000_000
_REDRAWS = 16


class _ChunkedSoftmaxCrossEntropy(torch.autograd.Function):
    """Loss and both gradients in one pass over chunks of positions, so that no [T, items] matrix ever exists."""

    @staticmethod
    def forward(context: Any, hidden: Tensor, item_vectors: Tensor, label: Tensor) -> Tensor:
        total = hidden.new_zeros(())
        hidden_gradient = torch.empty_like(hidden)
        vectors_gradient = torch.zeros_like(item_vectors)
        rows = max(1, CHUNK_SCORES // len(item_vectors))
        for part, wanted, gradient in zip(hidden.split(rows), label.split(rows), hidden_gradient.split(rows), strict=True):
            scores = part @ item_vectors.T
            scores -= scores.amax(dim=1, keepdim=True)
            total -= scores.gather(1, wanted[:, None] - 1).sum()
            weight = scores.exp_()
            normalizer = weight.sum(dim=1, keepdim=True)
            total += normalizer.log().sum()
            # d loss / d scores = weight / normalizer − one-hot. The division is cheaper on [rows, d] than on
            # [rows, items], and the one-hot part is a lookup of the label's vector.
            torch.mm(weight, item_vectors, out=gradient)
            gradient.div_(normalizer).sub_(item_vectors[wanted - 1])
            vectors_gradient.addmm_(weight.T, part / normalizer)
        vectors_gradient.index_add_(0, label - 1, hidden, alpha=-1.0)
        context.save_for_backward(hidden_gradient, vectors_gradient)
        return total

    @staticmethod
    def backward(context: Any, *outer: Tensor) -> tuple[Tensor, Tensor, None]:
        hidden_gradient, vectors_gradient = context.saved_tensors
        return hidden_gradient * outer[0], vectors_gradient * outer[0], None


def softmax_cross_entropy(hidden: Tensor, item_vectors: Tensor, label: Tensor) -> Tensor:
    """Sum over positions of −log softmax(hidden · item_vectorsᵀ)[label], over the whole catalogue.

    Parameters
    ----------
    hidden : [T, d], vectors of the T labelled positions.   item_vectors : [items, d].   label : int64 [T], 1 … items.
    """
    return _ChunkedSoftmaxCrossEntropy.apply(hidden, item_vectors, label)


def binary_cross_entropy(hidden: Tensor, item_vectors: Tensor, label: Tensor, negative: Tensor) -> Tensor:
    """Sum over positions of −log σ(s_label) − log(1 − σ(s_negative)) (Kang & McAuley 2018, equation 6).

    Parameters
    ----------
    hidden : [T, d].   item_vectors : [items, d].   label, negative : int64 [T], 1 … items.
    """
    positive_score = (hidden * item_vectors[label - 1]).sum(dim=-1)
    negative_score = (hidden * item_vectors[negative - 1]).sum(dim=-1)
    return -(functional.logsigmoid(positive_score) + functional.logsigmoid(-negative_score)).sum()


def draw_negatives(seen: Tensor, label: Tensor, items: int, generator: torch.Generator) -> Tensor:
    """Draw one item per position, uniformly among those that are not in the row's sequence.

    Where a row has seen (nearly) the whole catalogue no such item may be found in 16 draws; then the draw
    is uniform among all items but the position's label, so the loop always ends.

    Parameters
    ----------
    seen : int64 [B, S], the items of each sequence.   label : int64 [B, L].   items : catalogue size, at least 2.

    Returns
    -------
    int64 [B, L], 1 … items, never equal to ``label``.
    """

    def draw() -> Tensor:
        other = torch.randint(1, items, label.shape, generator=generator)
        return other + (other >= label)

    negative = draw()
    for _ in range(_REDRAWS):
        taken = (negative[:, :, None] == seen[:, None, :]).any(dim=-1)
        if not bool(taken.any()):
            break
        negative = torch.where(taken, draw(), negative)
    return negative
