"""What the tests of the single models share: parameters that are all drawn, and
histories as a batch.
"""

from __future__ import annotations

import torch

from lastitem.evaluation.probing import probing


def draw_parameters(model, seed=0, deviation=0.5):
    """Draw every parameter, the padding row too: nothing may depend on it being zero.
    Gains of normalizations stay near 1.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = deviation * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(
                1 + 0.4 * drawn if parameter.dim() == 1 and name.endswith("weight") else drawn
            )
    return model.eval()


def padded(histories, width=None):
    """Items [B, L] with zeros behind each history, and the lengths."""
    width = width or max(map(len, histories))
    items = torch.zeros(len(histories), width, dtype=torch.int64)
    for row, history in enumerate(histories):
        items[row, : len(history)] = torch.tensor(history)
    return items, torch.tensor([len(history) for history in histories])


def scaled(model, items, length, scale):
    """The vectors of all positions under a residual scale."""
    with probing(model, residual_scale=scale):
        return model.encode(items, length)
