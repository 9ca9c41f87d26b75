"""GRU4Rec (Hidasi et al., ICLR 2016) with the next item predicted at every position."""

from typing import Any

from torch import Tensor, nn

from lastitem.data.padding import PADDING
from lastitem.models import settings
from lastitem.models.attention import positions_at
from lastitem.models.dropout import Dropout
from lastitem.models.interface import SequenceModel


class GRU4Rec(SequenceModel):
    """Item embedding → dropout → GRU → linear map back to the embedding's size; item
    vectors are tied to the embedding.

    The hidden state starts at zero for every sequence. Padding stands behind the end,
    where nothing is read.
    """

    Settings = settings.GRU4Rec

    def __init__(self, items: int, **settings: Any) -> None:
        super().__init__(items, **settings)
        size, layers = self.settings.hidden_size, self.settings.layers
        self.embedding = nn.Embedding(items + 1, size, padding_idx=PADDING)
        # nn.GRU's own dropout acts between layers only; the embedding's acts with one
        # layer too.
        self.dropout = Dropout(self.settings.dropout)
        between_layers = self.settings.dropout if layers > 1 else 0.0
        self.gru = nn.GRU(size, size, layers, batch_first=True, dropout=between_layers)
        self.output = nn.Linear(size, size)
        # No scaling and no normalization follows the embedding, so it starts at unit
        # length, or training starts slowly.
        self.initialize(embedding_deviation=size**-0.5)
        nn.init.normal_(self.output.weight, std=size**-0.5)

    def encode(self, items: Tensor, length: Tensor, at: Tensor | None = None) -> Tensor:
        """See :meth:`SequenceModel.encode`; the output is [B, L, d]."""
        hidden, _ = self.gru(self.dropout(self.embedding(items)))
        return self.output(self.dropout(positions_at(hidden, at)))
