"""Training: batches without padding work, early stopping on validation, the best state
kept.

Read :func:`train` first; everything above it serves it.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from lastitem.data.sequences import HeldOut, Sequences
from lastitem.errors import InputError
from lastitem.evaluation.metrics import per_user
from lastitem.evaluation.ranking import rank
from lastitem.models.duorec import DuoRec
from lastitem.models.interface import SequenceModel
from lastitem.models.popularity import Popularity
from lastitem.training.batches import Batch, make_batch, next_item_batch
from lastitem.training.checkpoints import Checkpoint
from lastitem.training.losses import (
    LOSSES,
    binary_cross_entropy,
    generalized_binary_cross_entropy,
    info_nce,
    sampled_softmax_cross_entropy,
    softmax_cross_entropy,
)

PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class TrainingSettings:
    """How to train.

    Attributes
    ----------
    batch_size : sequences per update.
    learning_rate : of Adam.
    loss : ``softmax`` (cross-entropy over the whole catalogue), ``bce`` (one uniform
        negative), or, for catalogues too large for the whole, ``sampled_softmax`` or
        ``gbce`` (with ``negatives`` uniform negatives).
    negatives : k, drawn for each label by the sampled losses.
    calibration : t of ``gbce``.
    maximum_epochs : passes over the training sequences at most.
    patience : rounds without a better validation NDCG before training stops.
    round_updates : a round ends with the first epoch that completes so many updates, so
        that a small log is not stopped after a few dozen of them.
    validation_users : at most so many users, fixed by the seed, are ranked after each
        round.
    validation_cutoff : K of the validation NDCG@K.
    weight_average : decay of a moving average of the weights, which is then what is
        validated and kept; 0: the weights themselves.
    length_groups : each batch is computed in so many groups of similar length; changes
        the speed, not the gradient.
    precision : ``float32``, or ``bfloat16``: products of the encoder in bfloat16
        (torch's autocast), those of the loss in TF32 where the device has it. Meant for
        GPUs.
    compile : have torch compile the encoder; takes a minute at the start.
    """

    batch_size: int = 128
    learning_rate: float = 1e-3
    loss: str = "softmax"
    negatives: int = 256
    calibration: float = 0.75
    maximum_epochs: int = 500
    patience: int = 10
    round_updates: int = 40
    validation_users: int = 1024
    validation_cutoff: int = 10
    weight_average: float = 0.0
    length_groups: int = 4
    precision: str = "float32"
    compile: bool = False

    @property
    def drawn_negatives(self) -> int:
        """Negatives of each label: none for the full softmax, one for BCE
        as published.
        """
        return {"softmax": 0, "bce": 1}.get(self.loss, self.negatives)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> TrainingSettings:
        """Check names and values; :class:`InputError` names what is wrong and what is
        allowed.
        """
        names = [field.name for field in fields(cls)]
        unknown = [name for name in settings if name not in names]
        if unknown:
            raise InputError(
                f"training: no setting {', '.join(unknown)}; allowed: {', '.join(names)}"
            )
        for name, value in settings.items():
            kind = type(getattr(cls, name))
            if not isinstance(value, (int, float) if kind is float else kind) or isinstance(
                value, bool
            ) != (kind is bool):
                wanted = {str: "text", bool: "true or false", int: "a whole number"}.get(
                    kind, "a number"
                )
                raise InputError(f"training: {name} is {value!r}; it must be {wanted}")
            if name == "calibration":
                if not 0 <= value <= 1:
                    raise InputError(f"training: {name} is {value!r}; it must be from 0 to 1")
            elif name == "weight_average":
                if not 0 <= value < 1:
                    raise InputError(f"training: {name} is {value!r}; it must be from 0 to below 1")
            elif kind in (int, float) and not 0 < value < float("inf"):
                raise InputError(f"training: {name} is {value!r}; it must be above 0")
        made = cls(**settings)
        for name, allowed in (("loss", LOSSES), ("precision", PRECISIONS)):
            if getattr(made, name) not in allowed:
                raise InputError(
                    f"{name}: {getattr(made, name)!r} is not known; allowed: {', '.join(allowed)}"
                )
        return made


@dataclass
class Round:
    """One line of the learning curve: the mean training loss per label since the last
    round, and validation.
    """

    epoch: int
    updates: int
    loss: float
    validation_ndcg: float
    best: bool


def loss_of(model: SequenceModel, batches: Sequence[Batch], settings: TrainingSettings) -> Tensor:
    """Sum of the loss over the labelled positions of all groups; only those are
    projected onto the catalogue, all at once.
    """
    with _autocast(settings, batches[0].items.device):
        hidden = torch.cat(
            [
                model(batch.items, batch.length, batch.labelled.flatten().nonzero()[:, 0])
                for batch in batches
            ]
        )
    hidden = hidden.to(model.item_vectors().dtype)
    label = torch.cat([batch.label for batch in batches])
    if settings.loss == "softmax":
        return softmax_cross_entropy(hidden, model.item_vectors(), label)
    negative = torch.cat([batch.negative for batch in batches if batch.negative is not None])
    if settings.loss == "gbce":
        return generalized_binary_cross_entropy(
            hidden, model.item_vectors(), label, negative, settings.calibration
        )
    sampled = {"bce": binary_cross_entropy, "sampled_softmax": sampled_softmax_cross_entropy}[
        settings.loss
    ]
    return sampled(hidden, model.item_vectors(), label, negative)


def update(
    model: SequenceModel,
    optimizer: torch.optim.Optimizer,
    sequences: Sequences,
    index: NDArray[np.int64],
    settings: TrainingSettings,
    generator: torch.Generator,
    device: str,
) -> tuple[float, int]:
    """One optimizer step on the sequences at ``index``; returns the summed loss and the
    number of labels.

    The batch is encoded in groups of similar length; the loss and its gradient are
    those of the whole batch.
    """
    groups = _length_groups(sequences, index, settings.length_groups)
    batches = [
        make_batch(model, sequences, group, settings.drawn_negatives, generator).to(device)
        for group in groups
    ]
    labels = sum(len(batch.label) for batch in batches)
    optimizer.zero_grad(set_to_none=True)
    with _matrix_products(settings):
        loss = loss_of(model, batches, settings) / labels
        if isinstance(model, DuoRec) and (model.unsupervised_weight or model.supervised_weight):
            loss = loss + contrastive_loss(
                model, sequences, np.concatenate(groups), settings, generator, device
            )
        loss.backward()
    optimizer.step()
    return loss.item() * labels, labels


def contrastive_loss(
    model: DuoRec,
    sequences: Sequences,
    index: NDArray[np.int64],
    settings: TrainingSettings,
    generator: torch.Generator,
    device: str,
) -> Tensor:
    """Weighted InfoNCE between the vectors of the sequences' inputs and those of two
    partners each (DuoRec, Section 4).

    The input of a sequence is all but its last item, which is its target. Unsupervised
    partner: the same input with other dropout. Supervised partner: the input of a
    training prefix with the same target. A term of weight 0 is not computed; one weight
    must be above it.
    """

    def vectors(inputs: Sequences) -> Tensor:
        pieces, places = [], []
        for group in _length_groups(inputs, np.arange(len(inputs)), settings.length_groups):
            items, length, _, _ = next_item_batch(inputs, group, model.maximum_length)
            items, length = items.to(device), length.to(device)
            with _autocast(settings, items.device):
                pieces.append(model.read(items, length)[0].to(model.item_vectors().dtype))
            places.append(group)
        return torch.cat(pieces)[torch.from_numpy(np.argsort(np.concatenate(places))).to(device)]

    own = sequences.select(index)
    anchor = vectors(own)
    loss = anchor.new_zeros(())
    if model.unsupervised_weight:
        loss = loss + model.unsupervised_weight * info_nce(anchor, vectors(own), model.temperature)
    if model.supervised_weight:
        partner = sequences.draw_same_target(index, generator)
        loss = loss + model.supervised_weight * info_nce(
            anchor, vectors(partner), model.temperature
        )
    return loss


def _autocast(settings: TrainingSettings, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16")


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


def _length_groups(
    sequences: Sequences, index: NDArray[np.int64], count: int
) -> list[NDArray[np.int64]]:
    by_length = index[np.argsort(sequences.length[index], kind="stable")]
    return np.array_split(by_length, min(count, len(by_length)))


def train_epoch(
    model: SequenceModel,
    optimizer: torch.optim.Optimizer,
    sequences: Sequences,
    settings: TrainingSettings,
    generator: torch.Generator,
    device: str,
) -> tuple[float, int]:
    """One pass over the sequences in random order; returns the summed loss and the
    number of labels.

    Raises
    ------
    FloatingPointError naming the update whose loss is not finite, or the last one if it
    left a weight that is not.
    """
    model.train()
    total, labels = 0.0, 0
    order = torch.randperm(len(sequences), generator=generator).numpy()
    for first in range(0, len(order), settings.batch_size):
        index = order[first : first + settings.batch_size]
        batch_loss, batch_labels = update(
            model, optimizer, sequences, index, settings, generator, device
        )
        if not np.isfinite(batch_loss):
            raise FloatingPointError(
                f"the training loss is {batch_loss} at update {first // settings.batch_size + 1}"
            )
        if settings.weight_average:
            move_average(optimizer, settings.weight_average)
        total, labels = total + batch_loss, labels + batch_labels
    if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
        raise FloatingPointError(
            f"a weight is not finite after update {-(-len(order) // settings.batch_size)}"
        )
    return total, labels


@torch.no_grad()
def move_average(optimizer: torch.optim.Optimizer, decay: float) -> None:
    """Move the average of each trained weight, kept beside Adam's moments, towards the
    weight by 1 − decay.

    In the first n updates the decay is at most n / (n + 9), so that the average soon
    forgets where training began.
    """
    states = {weight: state for weight, state in optimizer.state.items() if "step" in state}
    for weight, state in states.items():
        state.setdefault("average", weight.detach().clone())
    updates = int(next(iter(states.values()))["step"])
    move = get_ema_multi_avg_fn(min(decay, updates / (updates + 9)))
    move([state["average"] for state in states.values()], list(states), updates)


@contextmanager
def averaged_weights(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Inside of the block the model has the averages of its weights, where there are
    any.
    """
    averages = {
        weight: state["average"] for weight, state in optimizer.state.items() if "average" in state
    }
    kept = [weight.detach().clone() for weight in averages]
    try:
        with torch.no_grad():
            for weight, average in averages.items():
                weight.copy_(average)
        yield
    finally:
        with torch.no_grad():
            for weight, own in zip(averages, kept, strict=True):
                weight.copy_(own)


def validation_ndcg(
    model: SequenceModel, validation: HeldOut, filter_seen: bool, cutoff: int, device: str
) -> float:
    """Mean NDCG@cutoff over the validation cases, by the ranking path that the test
    uses.
    """
    ranks = rank(model, validation, filter_seen=filter_seen, device=device)
    return float(per_user("ndcg", ranks.target[:, 0], cutoff).mean())


def rounds_without_gain(curve: Sequence[Round]) -> int:
    """Rounds since the best one."""
    return (
        len(curve) - 1 - max((place for place, line in enumerate(curve) if line.best), default=-1)
    )


def epochs_left(curve: Sequence[Round], settings: TrainingSettings) -> tuple[int, int]:
    """Epochs until training ends after the last round of ``curve``: if no round is
    better any more, and at most.
    """
    most = settings.maximum_epochs - curve[-1].epoch
    return min(most, (settings.patience - rounds_without_gain(curve)) * curve[0].epoch), most


def train(
    model: SequenceModel,
    sequences: Sequences,
    validation: HeldOut,
    settings: TrainingSettings,
    *,
    filter_seen: bool,
    seed: int,
    device: str = "cpu",
    report: Callable[[Sequence[Round], float], None] = lambda curve, seconds: None,
    checkpoint: Checkpoint | None = None,
) -> list[Round]:
    """Train ``model`` in place and leave it in its best state.

    A state is better only if its validation NDCG is higher: of equal states the first
    is kept. Test data is not an argument. The same seed, data and machine give the same
    weights, also if the training was killed and goes on from its checkpoint.

    Parameters
    ----------
    report : called after each round (also those of an earlier process) with the curve
        and the seconds of training up to it.
    checkpoint : where the state is kept after each epoch until the training has ended
        and :meth:`Checkpoint.remove` is called.

    Returns
    -------
    The learning curve, one :class:`Round` per validation.

    Raises
    ------
    InputError if there is nothing to train or validate on, or if the loss is not
    finite.
    """
    usable = sequences.select(np.flatnonzero(sequences.length >= 2))
    if model.objective == "prefix":
        usable = usable.prefixes()
    if not len(usable):
        raise InputError("no training sequence has two items; use a larger log or another split")
    if isinstance(model, Popularity):
        model.counts += torch.from_numpy(
            np.bincount(sequences.flattened, minlength=model.items + 1)[1:]
        )
        return []
    validation = validation.sample_users(settings.validation_users, seed)
    if not len(validation):
        raise InputError("the validation part holds no target; early stopping needs one")

    model.to(device)
    if settings.compile:
        model.compile(dynamic=True)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, fused=True)
    updates_per_epoch = -(-len(usable) // settings.batch_size)
    epochs_per_round = -(-settings.round_updates // updates_per_epoch)
    curve: list[Round] = []
    seconds: list[float] = []
    best_state = copy.deepcopy(model.state_dict())
    done: dict[str, Any] = {"epoch": 0, "loss": 0.0, "labels": 0, "seconds": 0.0}
    checkpoint = checkpoint or Checkpoint(None, "")
    if found := checkpoint.load(model, optimizer, generator):
        best_state, values = found
        done, curve, seconds = (
            values["done"],
            [Round(**line) for line in values["curve"]],
            values["seconds"],
        )
        for count, then in enumerate(seconds, 1):
            report(curve[:count], then)
        checkpoint.say(f"goes on after epoch {done['epoch']}, from {checkpoint.path}")
    while (
        done["epoch"] < settings.maximum_epochs and rounds_without_gain(curve) < settings.patience
    ):
        start = time.monotonic()
        epoch = done["epoch"] + 1
        try:
            epoch_loss, epoch_labels = train_epoch(
                model, optimizer, usable, settings, generator, device
            )
        except FloatingPointError as error:
            kept = (
                f"; the state after epoch {epoch - 1} is kept in {checkpoint.path}"
                if checkpoint.path and epoch > 1
                else ""
            )
            raise InputError(
                f"{error} of epoch {epoch}: lower learning_rate (now"
                f" {settings.learning_rate}){kept}"
            ) from None
        loss, labels = done["loss"] + epoch_loss, done["labels"] + epoch_labels
        if epoch % epochs_per_round == 0 or epoch == settings.maximum_epochs:
            with averaged_weights(optimizer):
                ndcg = validation_ndcg(
                    model, validation, filter_seen, settings.validation_cutoff, device
                )
                is_best = ndcg > max((line.validation_ndcg for line in curve), default=-1.0)
                if is_best:
                    best_state = copy.deepcopy(model.state_dict())
            curve.append(Round(epoch, epoch * updates_per_epoch, loss / labels, ndcg, is_best))
            loss, labels = 0.0, 0
        done = {
            "epoch": epoch,
            "loss": loss,
            "labels": labels,
            "seconds": done["seconds"] + time.monotonic() - start,
        }
        if curve and curve[-1].epoch == epoch:
            seconds.append(done["seconds"])
        values = {"done": done, "curve": [asdict(line) for line in curve], "seconds": seconds}
        checkpoint.save(model, best_state, optimizer, generator, values)
        if curve and curve[-1].epoch == epoch:
            report(curve, done["seconds"])
    model.load_state_dict(best_state)
    model.eval()
    return curve
