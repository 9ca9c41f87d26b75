"""What can be had from the last item alone: SASRec without attention and positions."""

from typing import Any

from torch import Tensor, nn

from lastitem.data.padding import PADDING
from lastitem.models import settings
from lastitem.models.attention import FeedForward, positions_at
from lastitem.models.dropout import Dropout
from lastitem.models.interface import SequenceModel


class LastItem(SequenceModel):
    """Each position alone: E·√d → dropout → LN → N × [x → LN(x + FFN(x))] → LN; item
    vectors are tied to the embedding.

    A yardstick and no published model. It is trained as SASRec is, at every position,
    and has SASRec's sizes, so what SASRec does better comes of what stands before the
    last item, or of where.
    """

    Settings = settings.LastItem
    reads_last_item_only = True

    def __init__(self, items: int, **settings: Any) -> None:
        super().__init__(items, **settings)
        size, dropout = self.settings.hidden_size, self.settings.dropout
        self.embedding = nn.Embedding(items + 1, size, padding_idx=PADDING)
        self.dropout = Dropout(dropout)
        self.input_norm = nn.LayerNorm(size, eps=1e-8)
        self.blocks = nn.ModuleList(
            FeedForward(size, size, dropout, "relu") for _ in range(self.settings.blocks)
        )
        self.norms = nn.ModuleList(
            nn.LayerNorm(size, eps=1e-8) for _ in range(self.settings.blocks)
        )
        self.output_norm = nn.LayerNorm(size, eps=1e-8)
        self.initialize()

    def encode(self, items: Tensor, length: Tensor, at: Tensor | None = None) -> Tensor:
        """See :meth:`SequenceModel.encode`; the output is [B, L, d]."""
        read = items if at is None else positions_at(items[:, :, None], at)[:, 0]
        x = self.embedding(read) * self.embedding.embedding_dim**0.5
        x = self.input_norm(self.dropout(x))
        for feed_forward, norm in zip(self.blocks, self.norms, strict=True):
            x = norm(x + feed_forward(x))
        return self.output_norm(x)
