"""GRU4Rec (Hidasi et al., ICLR 2016) with the next item predicted at every position."""

from __future__ import annotations

from torch import Tensor, nn

from lastitem.data.padding import PADDING
from lastitem.models.attention import BlockTrace, positions_at
from lastitem.models.dropout import Dropout
from lastitem.models.interface import SequenceModel


class GRU4Rec(SequenceModel):
    """Item embedding → dropout → GRU → linear map back to the embedding's size; item
    vectors are tied to the embedding.

    The hidden state starts at zero for every sequence. Padding stands behind the end,
    where nothing is read.
    """

    def __init__(
        self,
        items: int,
        *,
        maximum_length: int = 200,
        hidden_size: int = 64,
        layers: int = 1,
        dropout: float = 0.2,
    ) -> None:
        super().__init__(items, maximum_length)
        self.embedding = nn.Embedding(items + 1, hidden_size, padding_idx=PADDING)
        # nn.GRU's own dropout acts between layers only; the embedding's acts with one
        # layer too.
        self.dropout = Dropout(dropout)
        between_layers = dropout if layers > 1 else 0.0
        self.gru = nn.GRU(
            hidden_size, hidden_size, layers, batch_first=True, dropout=between_layers
        )
        self.output = nn.Linear(hidden_size, hidden_size)
        # No scaling and no normalization follows the embedding, so it starts at unit
        # length, or training starts slowly.
        self.initialize(embedding_deviation=hidden_size**-0.5)
        nn.init.normal_(self.output.weight, std=hidden_size**-0.5)

    def encode(
        self,
        items: Tensor,
        length: Tensor,
        *,
        residual_scale: float = 1.0,
        trace: list[BlockTrace] | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        """See :meth:`SequenceModel.encode`; the output is [B, L, d]. There is no
        attention to scale or trace.
        """
        if residual_scale != 1.0 or trace is not None:
            raise ValueError("GRU4Rec has no attention block, so no residual scale and no trace")
        hidden, _ = self.gru(self.dropout(self.embedding(items)))
        return self.output(self.dropout(positions_at(hidden, at)))

    def item_vectors(self) -> Tensor:
        """See :meth:`SequenceModel.item_vectors`."""
        return self.embedding.weight[1:]
