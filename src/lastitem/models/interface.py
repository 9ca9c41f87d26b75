"""What ranking and training ask of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from lastitem.arrays import Ints
from lastitem.data.padding import PADDING, pad
from lastitem.data.sequences import Sequences
from lastitem.errors import InputError
from lastitem.models.settings import NoSettings
from lastitem.study.settings import checked

_KEYS_AT_ONCE = 8192


class Recommender(nn.Module):
    """Scores of all items for what comes after a history.

    A model that is not trained by gradient is a subclass with :meth:`scores` and
    :meth:`fit`; what it has learned lies in buffers, whose shapes follow from the
    settings and the number of items, so that its weights can be written and read. What
    is only known after :meth:`fit` goes into a
    :class:`lastitem.models.sparse_rows.SparseRows`.

    Attributes
    ----------
    Settings : dataclass of what can be set (fields by
        :func:`lastitem.study.settings.setting`).
    items : size of the catalogue.
    settings : an instance of ``Settings``.
    reads_prefixes : whether position i of a model's output holds a prediction made from
        the items up to i alone (a causal model), so that moving the prediction position
        back reads an earlier prediction.
    reads_last_item_only : whether scores depend on the last item of the input alone.
    """

    Settings: ClassVar[type] = NoSettings
    reads_prefixes: bool = False
    reads_last_item_only: bool = False

    def __init__(self, items: int, **settings: Any) -> None:
        super().__init__()
        self.items = items
        self.settings: Any = checked(self.Settings, settings, type(self).__name__)

    @property
    def input_length(self) -> int:
        """How many of the newest items an input may hold; here, all there are."""
        return np.iinfo(np.int64).max

    @property
    def is_cut_short(self) -> bool:
        """Whether ``input_length`` is less than the settings allow, since training
        reached no further.
        """
        return False

    def readout_labels(self, length: Tensor) -> Tensor | None:
        """int64 [B]: how many labels of the training stood at the place where inputs of
        these lengths are read; None where all inputs are read at one and the same.
        """
        return None

    def scores(self, items: Tensor, length: Tensor) -> Tensor:
        """Score every item as the next one.

        Parameters
        ----------
        items : int64 [B, L], item codes, oldest first, 0 behind the end.
        length : int64 [B].

        Returns
        -------
        float [B, items], larger is better; column i − 1 is item i. The caller may
        change it.
        """
        raise self._lacks("scores")

    def fit(self, sequences: Sequences) -> None:
        """Learn from the training sequences, without a gradient."""
        raise self._lacks("fit")

    def _lacks(self, method: str) -> InputError:
        return InputError(
            f"{type(self).__name__} defines no {method}; docs/extending.md says what a model must"
            " define"
        )


@dataclass
class TrainingBatch:
    """Padded training examples: what a model reads, where it is asked, and the answers.

    Attributes
    ----------
    items : int64 [B, L].
    length : int64 [B].
    labelled : bool [B, L'], the positions of the model's output that carry a loss.
    label : int64 [T], the item of each of them, row by row.
    negative : int64 [T, k], items drawn for each label; None for the full softmax.
    """

    items: Tensor
    length: Tensor
    labelled: Tensor
    label: Tensor
    negative: Tensor | None = None

    @cached_property
    def at(self) -> Tensor:
        """int64 [T]: the labelled positions numbered row by row
        (:func:`lastitem.models.attention.positions_at`); found before the batch goes to
        a GPU, which would have to be waited for.
        """
        return self.labelled.flatten().nonzero()[:, 0]

    def to(self, device: str) -> TrainingBatch:
        """The same batch on a device."""
        parts = (self.items, self.length, self.labelled, self.label)
        there = TrainingBatch(*(on_device(part, device) for part in parts))
        if self.negative is not None:
            there.negative = on_device(self.negative, device)
        there.at = on_device(self.at, device)
        return there


def on_device(tensor: Tensor, device: str) -> Tensor:
    """A tensor of the CPU on a device. To a GPU it is copied from pinned memory, while
    the GPU still works on what came before.
    """
    pinned = torch.device(device).type == "cuda"
    return (tensor.pin_memory() if pinned else tensor).to(device, non_blocking=pinned)


class SequenceModel(Recommender):
    """A model trained by gradient: items in, one vector per position out; a score is
    the dot product with an item's vector.

    It must provide :meth:`encode`, and :meth:`item_vectors` if these are not those of
    its ``embedding``. How it is trained are the methods ``examples``,
    ``training_batch`` and ``auxiliary_loss``; as they stand here, every position
    predicts the item after it.
    """

    reads_prefixes = True
    embedding: nn.Embedding

    def __init__(self, items: int, **settings: Any) -> None:
        super().__init__(items, **settings)
        self.maximum_length: int = self.settings.maximum_length
        self._catalogue: tuple[object, Tensor, Tensor | None] | None = None

    def train(self, mode: bool = True) -> Self:
        """Switch to training, which changes weights (a fused optimizer does not count
        that as a new version of them), or to prediction.
        """
        if mode:
            self._catalogue = None
        return super().train(mode)

    @property
    def input_length(self) -> int:
        """As many as ``maximum_length`` says."""
        return self.maximum_length

    def encode(self, items: Tensor, length: Tensor, at: Tensor | None = None) -> Tensor:
        """Encode right-padded inputs.

        Parameters
        ----------
        items : int64 [B, L], 0 behind the end.
        length : int64 [B].
        at : int64 [n], positions of the output, numbered row by row
            (:func:`lastitem.models.attention.positions_at`): what only other positions
            need is not computed.

        Returns
        -------
        float [B, L', d] with L' ≥ L, the prediction position (read-out) at
        :meth:`readout`; with ``at`` the vectors [n, d] of these positions.
        """
        raise self._lacks("encode")

    def item_vectors(self) -> Tensor:
        """float [items, d]: row i − 1 is item i, here of the embedding. Padding and
        mask have no row, so they cannot be recommended.
        """
        return self.embedding.weight[1 : self.items + 1]

    def width(self, padded: int) -> int:
        """L' of the output of :meth:`encode` for inputs padded to L."""
        return padded

    def readout(self, length: Tensor) -> Tensor:
        """int64 [B]: the position of ``encode``'s output from which the next item is
        predicted.
        """
        return length - 1

    def input_start(self, length: Tensor) -> Tensor:
        """int64 [B]: the position of ``encode``'s output that belongs to the first
        item.
        """
        return torch.zeros_like(length)

    def read(self, items: Tensor, length: Tensor, offsets: Sequence[int] = (0,)) -> Tensor:
        """float [offsets, B, d]: the vectors of the prediction position, and of that
        moved back by each further offset (at most to position 0); nothing else is
        computed in the last block.
        """
        moved = torch.stack([(self.readout(length) - offset).clamp(min=0) for offset in offsets])
        row = torch.arange(len(items), device=items.device) * self.width(items.shape[1])
        return self.encode(items, length, (row + moved).flatten()).unflatten(0, moved.shape)

    def scores(self, items: Tensor, length: Tensor) -> Tensor:
        """See :meth:`Recommender.scores`."""
        return self.score(self.read(items, length)[0])

    def score(self, vectors: Tensor) -> Tensor:
        """float [B, items]: the scores of all items for vectors [B, d] of
        :meth:`read`; items with one vector have one score.
        """
        # Kept while no weight changes: a ranking asks for it once a tile.
        state = [
            None if tensor.is_inference() else (tensor.data_ptr(), tensor._version)
            for tensor in chain(self.parameters(), self.buffers())
        ]
        kept = self._catalogue
        if kept is None or None in state or kept[0] != state or torch.is_grad_enabled():
            distinct, place = distinct_vectors(self.item_vectors())
            # Items along the rows of memory: the product is faster.
            kept = (state, distinct.T.contiguous(), place)
            # What a gradient flows through belongs to one product.
            self._catalogue = None if torch.is_grad_enabled() else kept
        _, distinct, place = kept
        scores = vectors @ distinct
        return scores if place is None else scores[:, place]

    def forward(self, items: Tensor, length: Tensor, at: Tensor) -> Tensor:
        """float [n, d]: what training asks of a model, the vectors of the labelled
        positions; see :meth:`encode`.
        """
        return self.encode(items, length, at)

    def examples(self, sequences: Sequences) -> Sequences:
        """What one epoch goes through: here each sequence with two items or more is one
        training example.
        """
        return sequences.select(np.flatnonzero(sequences.length >= 2))

    def training_batch(
        self, sequences: Sequences, index: Ints, generator: torch.Generator
    ) -> TrainingBatch:
        """Form the batch of the training examples at ``index``, on the CPU: the newest
        ``maximum_length`` + 1 items, of which all but the last are read, and all but
        the first are labels.
        """
        items, length = pad(sequences, index, self.maximum_length + 1)
        label = items[:, 1:]
        labelled = label != PADDING
        return TrainingBatch(items[:, :-1] * labelled, length - 1, labelled, label[labelled])

    def auxiliary_loss(
        self,
        sequences: Sequences,
        index: Ints,
        read: Callable[[Sequences], Tensor],
        generator: torch.Generator,
    ) -> Tensor | None:
        """A loss beside that of the labelled positions; here there is none.

        Parameters
        ----------
        sequences : all training examples.
        index : int64 [B], those of this update.
        read : sequences → float [n, d], the vectors at the prediction position when all
            items but the last of each are read.
        """
        return None

    def initialize(self, embedding_deviation: float = 0.02) -> None:
        """Draw linear weights from N(0, 0.02²) and embeddings with their own deviation;
        zero biases and the padding row.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=embedding_deviation)
                if module.padding_idx is not None:
                    nn.init.zeros_(module.weight[module.padding_idx])


def _keys(vectors: Tensor) -> Tensor:
    """int64 [items]: equal for equal vectors, nearly always different for others."""
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**63), 2**63 - 1, (vectors.shape[1],), generator=generator)
    factors = factors.to(vectors.device)
    # A few thousand at once: whole numbers of 64 bits take twice the vectors' memory.
    return torch.cat(
        [
            ((part.detach().float() + 0.0).view(torch.int32) * factors).sum(dim=1)
            for part in vectors.split(_KEYS_AT_ONCE)
        ]
    )


def distinct_vectors(vectors: Tensor) -> tuple[Tensor, Tensor | None]:
    """The vectors [items, d], each once, and which of them is each item's; None where
    no two are equal.

    A matrix product may round the columns at its end in another way than the others, so
    items with one vector would not tie.
    """
    if len(_keys(vectors).unique()) == len(vectors):
        return vectors, None
    # Compared as bytes, in which 0 and -0 differ.
    rows = (vectors.detach() + 0.0).cpu().contiguous().numpy()
    _, first, place = np.unique(
        rows.view(np.dtype((np.void, rows[0].nbytes))).ravel(),
        return_index=True,
        return_inverse=True,
    )
    kept, of_item = (torch.from_numpy(part).to(vectors.device) for part in (first, place))
    return vectors[kept], of_item
