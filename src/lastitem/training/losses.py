"""Training losses over the vectors of labelled positions only."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

#: Numbers held at once by a loss: few enough to stay in a core's cache, but in the
#: softmax loss never fewer rows than a fast product takes.
CHUNK_SCORES, MINIMUM_ROWS = 1_000_000, 64
#: e to this and to minus this, times a million items, are far from the ends of float32.
_SMALL_SCORE = 60.0


class _ChunkedLoss(torch.autograd.Function):
    """A loss whose ``forward`` saves the gradients of its first two inputs; the others,
    at most three, have none.
    """

    @staticmethod
    def backward(context: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        hidden_gradient, vectors_gradient = context.saved_tensors
        return hidden_gradient * outer[0], vectors_gradient * outer[0], None, None, None


class _ChunkedSoftmaxCrossEntropy(_ChunkedLoss):
    """Loss and both gradients in one pass over chunks of positions, so that no [T,
    items] matrix ever exists.
    """

    @staticmethod
    def forward(context: Any, hidden: Tensor, item_vectors: Tensor, label: Tensor) -> Tensor:
        total = hidden.new_zeros(())
        hidden_gradient = torch.empty_like(hidden)
        # Items along the rows of memory make both products with the whole catalogue
        # faster by a quarter.
        item_columns = item_vectors.T.contiguous()
        columns_gradient = torch.zeros_like(item_columns)
        rows = min(len(hidden), max(MINIMUM_ROWS, CHUNK_SCORES // len(item_vectors)))
        shifted = _may_overflow(hidden, item_vectors)
        # One piece of memory for the scores of all chunks: fresh memory costs more than
        # the arithmetic done in it.
        memory = hidden.new_empty(rows, len(item_vectors))
        for part, wanted, gradient in zip(
            hidden.split(rows), label.split(rows), hidden_gradient.split(rows), strict=True
        ):
            scores = torch.mm(part, item_columns, out=memory[: len(part)])
            if shifted:
                scores -= scores.amax(dim=1, keepdim=True)
            total -= scores.gather(1, wanted[:, None] - 1).sum()
            weight = scores.exp_()
            normalizer = weight.sum(dim=1, keepdim=True)
            total += normalizer.log().sum()
            # d loss / d scores = weight / normalizer − one-hot. The division is cheaper
            # on [rows, d] than on [rows, items], and the one-hot part is a lookup of
            # the label's vector.
            torch.mm(weight, item_vectors, out=gradient)
            gradient.div_(normalizer).sub_(item_vectors[wanted - 1])
            columns_gradient.addmm_((part / normalizer).T, weight)
        vectors_gradient = columns_gradient.T.contiguous()
        vectors_gradient.index_add_(0, label - 1, hidden, alpha=-1.0)
        context.save_for_backward(hidden_gradient, vectors_gradient)
        return total


def _may_overflow(hidden: Tensor, item_vectors: Tensor) -> bool:
    """Whether the exponentials of the scores need a shift to stay in range. They do not
    where the vectors are short (Cauchy–Schwarz), which is cheap to see on the CPU; a
    GPU would have to be waited for.
    """
    if hidden.device.type != "cpu" or not len(hidden):
        return True
    longest = hidden.norm(dim=1).amax() * item_vectors.norm(dim=1).amax()
    return not bool(longest < _SMALL_SCORE)


def softmax_cross_entropy(hidden: Tensor, item_vectors: Tensor, label: Tensor) -> Tensor:
    """Sum over positions of −log softmax(hidden · item_vectorsᵀ)[label], over the whole
    catalogue.

    Parameters
    ----------
    hidden : [T, d], vectors of the T labelled positions.
    item_vectors : [items, d].
    label : int64 [T], 1 … items.
    """
    return _ChunkedSoftmaxCrossEntropy.apply(hidden, item_vectors, label)


class _ChunkedSampledLoss(_ChunkedLoss):
    """Loss and both gradients in one pass over chunks of positions, so that no [T, k,
    d] of negatives ever exists.
    """

    @staticmethod
    def forward(
        context: Any,
        hidden: Tensor,
        item_vectors: Tensor,
        label: Tensor,
        negative: Tensor,
        loss_of_scores: Callable[..., Tensor],
    ) -> Tensor:
        total = hidden.new_zeros(())
        hidden_gradient, vectors_gradient = torch.empty_like(hidden), torch.zeros_like(item_vectors)
        rows = max(1, CHUNK_SCORES // (negative.shape[1] * hidden.shape[1]))
        chunks = zip(
            *(tensor.split(rows) for tensor in (hidden, label - 1, negative - 1, hidden_gradient)),
            strict=True,
        )
        for part, wanted, others, gradient in chunks:
            own = item_vectors.index_select(0, wanted)
            drawn = item_vectors.index_select(0, others.flatten()).view(*others.shape, -1)
            scores = [(part * own).sum(dim=-1), torch.bmm(drawn, part[:, :, None]).squeeze(2)]
            with torch.enable_grad():
                loss = loss_of_scores(*(score.requires_grad_() for score in scores))
                of_own, of_drawn = torch.autograd.grad(loss, scores)
            total += loss.detach()
            torch.add(
                of_own[:, None] * own, torch.bmm(of_drawn[:, None], drawn).squeeze(1), out=gradient
            )
            vectors_gradient.index_add_(0, wanted, of_own[:, None] * part)
            vectors_gradient.index_add_(
                0, others.flatten(), (of_drawn[:, :, None] * part[:, None]).flatten(0, 1)
            )
        context.save_for_backward(hidden_gradient, vectors_gradient)
        return total


def binary_cross_entropy(
    hidden: Tensor, item_vectors: Tensor, label: Tensor, negative: Tensor
) -> Tensor:
    """Sum over positions of −log σ(s_label) − Σ log(1 − σ(s_negative)) (Kang & McAuley
    2018, equation 6, with k = 1).

    Parameters
    ----------
    hidden : [T, d].
    item_vectors : [items, d].
    label : int64 [T], 1 … items.
    negative : int64 [T, k].
    """

    def loss(positive: Tensor, others: Tensor) -> Tensor:
        return -functional.logsigmoid(positive).sum() - functional.logsigmoid(-others).sum()

    return _ChunkedSampledLoss.apply(hidden, item_vectors, label, negative, loss)


def generalized_binary_cross_entropy(
    hidden: Tensor, item_vectors: Tensor, label: Tensor, negative: Tensor, calibration: float
) -> Tensor:
    """Sum over positions of −(β log σ(s_label) + Σ log(1 − σ(s_negative))) / (k + 1):
    gBCE (Petrov & Macdonald, RecSys 2023).

    β = α·(t·(1 − 1/α) + 1/α) with the sampling rate α = k / (items − 1): t = 0 is plain
    BCE, t = 1 makes the scores of a model trained with few negatives calibrated.

    Parameters
    ----------
    hidden, item_vectors, label, negative : as for :func:`binary_cross_entropy`.
    calibration : t, 0 to 1.
    """
    count = negative.shape[1]
    rate = count / (len(item_vectors) - 1)
    exponent = rate * (calibration * (1 - 1 / rate) + 1 / rate)

    def loss(positive: Tensor, others: Tensor) -> Tensor:
        return -(
            exponent * functional.logsigmoid(positive).sum() + functional.logsigmoid(-others).sum()
        ) / (count + 1)

    return _ChunkedSampledLoss.apply(hidden, item_vectors, label, negative, loss)


def sampled_softmax_cross_entropy(
    hidden: Tensor, item_vectors: Tensor, label: Tensor, negative: Tensor
) -> Tensor:
    """Sum over positions of −s_label + log(e^s_label + (items − 1)/k · Σ e^s_negative).

    The negatives are drawn uniformly among the other items, so their weighted sum
    estimates the rest of the full normalizer (importance sampling; Jean et al. 2015,
    Section 3). With every other item once it is the full softmax.

    Parameters
    ----------
    hidden, item_vectors, label, negative : as for :func:`binary_cross_entropy`.
    """
    weight = math.log((len(item_vectors) - 1) / negative.shape[1])

    def loss(positive: Tensor, others: Tensor) -> Tensor:
        return (
            torch.cat((positive[:, None], others + weight), dim=1).logsumexp(dim=1) - positive
        ).sum()

    return _ChunkedSampledLoss.apply(hidden, item_vectors, label, negative, loss)
