"""Dropout whose random bits are cheap on the CPU, where torch's own takes a quarter of
a training step.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_LEVELS = 1 << 16


class _CheapDropout(torch.autograd.Function):
    """Four elements share one 64-bit draw of torch's generator: each compares its own
    16 bits with p.
    """

    @staticmethod
    def forward(context: Any, x: Tensor, dropped_levels: int) -> Tensor:
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        kept = draws.view(torch.int16)[: x.numel()] >= dropped_levels - _LEVELS // 2
        factor = kept.to(x.dtype).mul_(_LEVELS / (_LEVELS - dropped_levels)).view(x.shape)
        context.save_for_backward(factor)
        return x * factor

    @staticmethod
    def backward(context: Any, *gradient: Tensor) -> tuple[Tensor, None]:
        (factor,) = context.saved_tensors
        return gradient[0] * factor, None


def dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    """Zero each element with ``probability`` and scale the others by 1 / (1 −
    probability), while training.

    On the CPU the probability is rounded to a multiple of 1/65,536; the scale belongs
    to the rounded value, so the expectation is exact. Elsewhere torch's own dropout is
    used. Shapes and dtype are kept.
    """
    if not training or probability == 0.0:
        return x
    if x.device.type != "cpu" or probability >= 1.0:
        return functional.dropout(x, probability)
    return _CheapDropout.apply(x, min(round(probability * _LEVELS), _LEVELS - 1))


class Dropout(nn.Module):
    """:func:`dropout` as a module."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as ``x``."""
        return dropout(x, self.probability, self.training)
