"""BSARec (Shin et al., AAAI 2024): self-attention beside a low-pass filter over the
sequence.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from lastitem.arrays import Ints
from lastitem.data.padding import PADDING, pad
from lastitem.data.sequences import Sequences
from lastitem.models import settings
from lastitem.models.attention import AttentionBlock, AttentionBlocks, positions_at
from lastitem.models.dropout import Dropout
from lastitem.models.interface import SequenceModel, TrainingBatch


class FrequencyFilter(nn.Module):
    """F = LN(x + dropout(low + β²·(x − low))): low is x without its higher frequencies,
    β is learned per dimension.

    ``low`` keeps the first ⌊c/2⌋ + 1 bins of the real Fourier transform over the L
    positions (BSARec, Section 4.2). Leaving out bins is a linear map of the positions,
    so one product with a fixed [L, L] matrix does it.
    """

    low_pass: Tensor

    def __init__(
        self, length: int, hidden_size: int, cutoff: int, dropout: float, epsilon: float
    ) -> None:
        super().__init__()
        self.register_buffer("low_pass", low_pass_matrix(length, cutoff // 2 + 1), persistent=False)
        self.beta = nn.Parameter(torch.randn(hidden_size))
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(hidden_size, eps=epsilon)

    def forward(self, x: Tensor, at: Tensor | None = None) -> Tensor:
        """Map [B, L, d] to [B, L, d], or to [n, d] at the positions ``at``."""
        low, x = positions_at(self.low_pass.to(x.dtype) @ x, at), positions_at(x, at)
        return self.norm(x + self.dropout(low + self.beta**2 * (x - low)))


def low_pass_matrix(length: int, bins: int) -> Tensor:
    """float64 [L, L]: inverse transform · (the first ``bins`` bins of) the real Fourier
    transform of length L.

    Entry (i, j) is (1 + 2 Σ_k cos(2πk(i − j)/L)) / L over the kept k ≥ 1; the bin at
    L/2 is its own conjugate and counts once.
    """
    place = torch.arange(length, dtype=torch.float64)
    apart = place[:, None] - place
    total = torch.ones_like(apart)
    for k in range(1, min(bins, length // 2 + 1)):
        total += (1 if 2 * k == length else 2) * torch.cos(2 * math.pi * k * apart / length)
    return total / length


class BSARec(SequenceModel):
    """Blocks of α·F + (1 − α)·A, then feed-forward (GELU, inner size 4·d); A is causal
    post-LN attention, F the filter.

    The filter mixes all positions, later ones too, so only the last position may carry
    a loss: each prefix is a training example of its own. Inputs are moved to the end of
    the fixed ``maximum_length``, to which the filter's bins refer.
    """

    Settings = settings.BSARec
    reads_prefixes = False

    def __init__(self, items: int, **settings: Any) -> None:
        super().__init__(items, **settings)
        own = self.settings
        size, length = own.hidden_size, own.maximum_length
        self.embedding = nn.Embedding(items + 1, size, padding_idx=PADDING)
        self.position = nn.Embedding(length, size)
        self.input_norm = nn.LayerNorm(size, eps=1e-12)
        self.dropout = Dropout(own.dropout)
        self.blocks = AttentionBlocks(
            AttentionBlock(
                size,
                own.heads,
                4 * size,
                own.dropout,
                "post",
                activation="gelu",
                epsilon=1e-12,
                other_branch=FrequencyFilter(length, size, own.filter_cutoff, own.dropout, 1e-12),
                other_share=own.filter_share,
            )
            for _ in range(own.blocks)
        )
        self.initialize()

    def width(self, padded: int) -> int:
        """The fixed length, whatever the input's."""
        return self.maximum_length

    def readout(self, length: Tensor) -> Tensor:
        """The last position of the fixed length."""
        return torch.full_like(length, self.maximum_length - 1)

    def input_start(self, length: Tensor) -> Tensor:
        """Inputs end at the fixed length, so they begin ``length`` before it."""
        return self.maximum_length - length

    def encode(self, items: Tensor, length: Tensor, at: Tensor | None = None) -> Tensor:
        """See :meth:`SequenceModel.encode`; the output is [B, maximum_length, d], its
        end aligned with the inputs' ends.
        """
        place = torch.arange(self.maximum_length, device=items.device)
        source = place - self.input_start(length)[:, None]
        moved = items.gather(1, source.clamp(min=0, max=items.shape[1] - 1))
        moved = moved.where(source >= 0, PADDING)
        x = self.dropout(self.input_norm(self.embedding(moved) + self.position(place)))
        # Padding attends to itself only: a row without any source would have no
        # softmax.
        allowed = (moved != PADDING)[:, None, None, :] | (place == place[:, None])
        return self.blocks(x, allowed & (place <= place[:, None]), at)

    def examples(self, sequences: Sequences) -> Sequences:
        """Each prefix of two items or more is a training example."""
        return super().examples(sequences).prefixes()

    def training_batch(
        self, sequences: Sequences, index: Ints, generator: torch.Generator
    ) -> TrainingBatch:
        """All but the last item are read; only the prediction position is labelled,
        with the last item.
        """
        items, length = pad(sequences, index, self.maximum_length + 1)
        rows = torch.arange(len(items))
        last = items[rows, length - 1]
        items[rows, length - 1] = PADDING
        labelled = torch.zeros(len(items), self.maximum_length, dtype=torch.bool)
        labelled[:, -1] = True
        return TrainingBatch(items[:, :-1], length - 1, labelled, last)
