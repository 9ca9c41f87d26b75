"""BSARec (Shin et al., AAAI 2024): self-attention beside a low-pass filter over the sequence."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lastitem.models.attention import AttentionBlock, BlockTrace
from lastitem.models.dropout import Dropout
from lastitem.models.interface import SequenceModel
from lastitem.sequences import PADDING


class FrequencyFilter(nn.Module):
    """F = LN(x + dropout(low + β²·(x − low))): low is x without its higher frequencies, β is learned per dimension.

    ``low`` keeps the first ⌊c/2⌋ + 1 bins of the real Fourier transform over the positions (BSARec, Section 4.2).
    """

    def __init__(self, hidden_size: int, cutoff: int, dropout: float, epsilon: float) -> None:
        super().__init__()
        self.bins = cutoff // 2 + 1
        self.beta = nn.Parameter(torch.randn(hidden_size))
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(hidden_size, eps=epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, L, d] to [B, L, d]."""
        spectrum = torch.fft.rfft(x, dim=1, norm="ortho")
        kept = torch.zeros_like(spectrum)
        kept[:, : self.bins] = spectrum[:, : self.bins]
        low = torch.fft.irfft(kept, n=x.shape[1], dim=1, norm="ortho")
        return self.norm(x + self.dropout(low + self.beta**2 * (x - low)))


class BSARec(SequenceModel):
    """Blocks of α·F + (1 − α)·A, then feed-forward (GELU, inner size 4·d); A is causal post-LN attention, F the filter.

    The filter mixes all positions, later ones too, so only the last position may carry a loss: each prefix is a training
    sample of its own. Inputs are moved to the end of the fixed ``maximum_length``, to which the filter's bins refer.
    """

    objective = "prefix"
    reads_prefixes = False

    def __init__(
        self,
        items: int,
        *,
        maximum_length: int = 50,
        hidden_size: int = 64,
        blocks: int = 2,
        heads: int = 1,
        dropout: float = 0.5,
        filter_share: float = 0.7,
        filter_cutoff: int = 5,
    ) -> None:
        super().__init__(items, maximum_length)
        self.embedding = nn.Embedding(items + 1, hidden_size, padding_idx=PADDING)
        self.position = nn.Embedding(maximum_length, hidden_size)
        self.input_norm = nn.LayerNorm(hidden_size, eps=1e-12)
        self.dropout = Dropout(dropout)
        self.blocks = nn.ModuleList(
            AttentionBlock(
                hidden_size,
                heads,
                4 * hidden_size,
                dropout,
                "post",
                activation="gelu",
                epsilon=1e-12,
                other_branch=FrequencyFilter(hidden_size, filter_cutoff, dropout, 1e-12),
                other_share=filter_share,
            )
            for _ in range(blocks)
        )
        self.initialize()

    def readout(self, length: Tensor) -> Tensor:
        """The last position of the fixed length."""
        return torch.full_like(length, self.maximum_length - 1)

    def input_start(self, length: Tensor) -> Tensor:
        """Inputs end at the fixed length, so they begin ``length`` before it."""
        return self.maximum_length - length

    def encode(self, items: Tensor, length: Tensor, *, residual_scale: float = 1.0, trace: list[BlockTrace] | None = None) -> Tensor:
        """See :meth:`SequenceModel.encode`; the output is [B, maximum_length, d], its end aligned with the inputs' ends."""
        place = torch.arange(self.maximum_length, device=items.device)
        source = place - (self.maximum_length - length[:, None])
        moved = torch.where(source >= 0, items.gather(1, source.clamp(min=0, max=items.shape[1] - 1)), PADDING)
        x = self.dropout(self.input_norm(self.embedding(moved) + self.position(place)))
        # Padding attends to itself only: a row without any source would have no softmax.
        allowed = (moved != PADDING)[:, None, None, :] | (place == place[:, None])
        allowed = allowed & (place <= place[:, None])
        for block in self.blocks:
            x = block(x, allowed, residual_scale, trace)
        return x

    def item_vectors(self) -> Tensor:
        """See :meth:`SequenceModel.item_vectors`."""
        return self.embedding.weight[1:]
