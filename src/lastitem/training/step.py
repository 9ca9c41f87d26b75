"""One optimizer step, and the moving average of the weights."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.optim import Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from lastitem.arrays import Ints
from lastitem.data.padding import PADDING, pad
from lastitem.data.sequences import Sequences
from lastitem.models.interface import SequenceModel, TrainingBatch, on_device
from lastitem.study.settings import TrainingSettings
from lastitem.training.batches import length_groups, make_batch
from lastitem.training.losses import (
    binary_cross_entropy,
    generalized_binary_cross_entropy,
    sampled_softmax_cross_entropy,
    softmax_cross_entropy,
)


def update(
    model: SequenceModel,
    optimizer: Optimizer,
    sequences: Sequences,
    index: Ints,
    settings: TrainingSettings,
    generator: torch.Generator,
    device: str,
) -> tuple[Tensor, int]:
    """One optimizer step on the sequences at ``index``; returns the summed loss, on the
    device, and the number of labels.

    The batch is encoded in groups of similar length; the loss and its gradient are
    those of the whole batch. A GPU is never waited for: while it works on one update,
    the next is prepared.
    """
    groups = _groups(model, sequences, index, settings)
    batches = [
        make_batch(model, sequences, group, settings.drawn_negatives, generator, device)
        for group in groups
    ]
    labels = sum(len(batch.label) for batch in batches)
    optimizer.zero_grad(set_to_none=True)
    with _matrix_products(settings):
        loss = loss_of(model, batches, settings) / labels
        auxiliary = model.auxiliary_loss(
            sequences, np.concatenate(groups), _reader(model, settings, device), generator
        )
        if auxiliary is not None:
            loss = loss + auxiliary
        loss.backward()
    optimizer.step()
    # Fused optimizers do not count their changes, by which a model knows that what it
    # keeps of its item vectors is old (SequenceModel.score).
    increment_version(list(model.parameters()))
    return loss.detach() * labels, labels


def _groups(
    model: SequenceModel, sequences: Sequences, index: Ints, settings: TrainingSettings
) -> list[Ints]:
    length = np.minimum(sequences.length[index], model.maximum_length + 1)
    return [index[group] for group in length_groups(length, settings.length_groups)]


def loss_of(
    model: SequenceModel, batches: Sequence[TrainingBatch], settings: TrainingSettings
) -> Tensor:
    """Sum of the loss over the labelled positions of all groups; only those are
    projected onto the catalogue, all at once.
    """
    with _autocast(settings, batches[0].items.device):
        pieces = [model(batch.items, batch.length, batch.at) for batch in batches]
    vectors, label = model.item_vectors(), torch.cat([batch.label for batch in batches])
    hidden = torch.cat(pieces).to(vectors.dtype)
    if settings.loss == "softmax":
        return softmax_cross_entropy(hidden, vectors, label)
    negative = torch.cat([batch.negative for batch in batches if batch.negative is not None])
    if settings.loss == "gbce":
        return generalized_binary_cross_entropy(
            hidden, vectors, label, negative, settings.calibration
        )
    loss = binary_cross_entropy if settings.loss == "bce" else sampled_softmax_cross_entropy
    return loss(hidden, vectors, label, negative)


def _reader(
    model: SequenceModel, settings: TrainingSettings, device: str
) -> Callable[[Sequences], Tensor]:
    """What :meth:`SequenceModel.auxiliary_loss` reads vectors with, in groups of
    similar length.
    """

    def read(sequences: Sequences) -> Tensor:
        pieces = []
        groups = _groups(model, sequences, np.arange(len(sequences)), settings)
        for group in groups:
            items, length = pad(sequences, group, model.maximum_length + 1)
            items = items[:, :-1] * (items[:, 1:] != PADDING)
            items, length = on_device(items, device), on_device(length - 1, device)
            with _autocast(settings, items.device):
                pieces.append(model.read(items, length)[0].to(model.item_vectors().dtype))
        order = torch.from_numpy(np.argsort(np.concatenate(groups)))
        return torch.cat(pieces)[on_device(order, device)]

    return read


def _autocast(
    settings: TrainingSettings, device: torch.device
) -> AbstractContextManager[torch.autocast | None]:
    if settings.precision != "bfloat16":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


@contextmanager
def _matrix_products(settings: TrainingSettings) -> Iterator[None]:
    """float32 products in TF32 where the device has it, if the settings ask for less
    than float32; as before at the end.
    """
    before, of_cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    if settings.precision != "float32":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = of_cudnn


@torch.no_grad()
def move_average(optimizer: Optimizer, decay: float, updates: int) -> None:
    """Move the average of each trained weight, kept beside Adam's moments, towards the
    weight by 1 − decay.

    After n ``updates`` the decay is at most n / (n + 9), so that the average soon
    forgets where training began.
    """
    for weight, state in optimizer.state.items():
        state.setdefault("average", weight.detach().clone())
    move = get_ema_multi_avg_fn(min(decay, updates / (updates + 9)))
    averages = [state["average"] for state in optimizer.state.values()]
    move(averages, list(optimizer.state), updates)


@contextmanager
def averaged_weights(optimizer: Optimizer) -> Iterator[None]:
    """Inside of the block the model has the averages of its weights, where there are
    any.
    """
    averages = {
        weight: state["average"] for weight, state in optimizer.state.items() if "average" in state
    }
    own = {weight: weight.detach().clone() for weight in averages}

    @torch.no_grad()
    def put(values: dict[Tensor, Tensor]) -> None:
        for weight, value in values.items():
            weight.copy_(value)

    try:
        put(averages)
        yield
    finally:
        put(own)
