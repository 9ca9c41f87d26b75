"""Training: epochs, validation steps, early stopping, the best state kept.

Read :func:`train` first; everything above it serves it.
"""

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lastitem.data.sequences import HeldOut, Sequences
from lastitem.errors import InputError
from lastitem.evaluation.metrics import per_user
from lastitem.evaluation.ranking import rank
from lastitem.models.interface import Recommender, SequenceModel
from lastitem.randomness import STREAM_BATCHES, STREAM_DROPOUT, hash_keys
from lastitem.study.settings import TrainingSettings
from lastitem.training.checkpoints import Checkpoint, random_states, set_random_states
from lastitem.training.step import averaged_weights, move_average, update

#: After how many updates their losses are looked at, for which a GPU is waited for.
_LOSSES = 50


@dataclass
class Round:
    """One line of the learning curve: the mean training loss per label since the last
    validation step (NaN of a model without gradients), and what this one found.
    """

    epoch: int
    updates: int
    loss: float
    validation_ndcg: float
    best: bool


@dataclass
class State:
    """How far a training is, beside the weights and the optimizer.

    Attributes
    ----------
    loss, labels : summed since the last validation step.
    seconds : of training, those of earlier processes included.
    reached : the seconds at which each line of the curve was reached.
    best_weights : of the best validation step so far.
    """

    best_weights: dict[str, Tensor]
    epoch: int = 0
    loss: float = 0.0
    labels: int = 0
    seconds: float = 0.0
    curve: list[Round] = field(default_factory=list)
    reached: list[float] = field(default_factory=list)

    def end_epoch(self, loss: float, labels: int) -> None:
        """Count an epoch and its summed loss."""
        self.epoch += 1
        self.loss += loss
        self.labels += labels

    def add(self, updates: int, ndcg: float, model: SequenceModel) -> None:
        """Add what a validation step found, and keep the weights if it is the best."""
        best = ndcg > max((line.validation_ndcg for line in self.curve), default=-1.0)
        if best:
            self.best_weights = copy.deepcopy(model.state_dict())
        self.curve.append(Round(self.epoch, updates, self.loss / self.labels, ndcg, best))
        self.loss, self.labels = 0.0, 0

    def is_over(self, settings: TrainingSettings) -> bool:
        """Whether all epochs are done, or nothing has got better for too long."""
        waited = rounds_without_gain(self.curve)
        return self.epoch >= settings.maximum_epochs or waited >= settings.patience


def train_epoch(
    model: SequenceModel,
    optimizer: Optimizer,
    examples: Sequences,
    settings: TrainingSettings,
    generator: torch.Generator,
    device: str,
    earlier: int = 0,
) -> tuple[float, int]:
    """One pass over the training examples in random order; returns the summed loss and
    the number of labels.

    Parameters
    ----------
    earlier : epochs before this one.

    Raises
    ------
    FloatingPointError naming the update whose loss is not finite, or the last one if it
        left a weight that is not.
    """
    model.train()
    total, labels, losses = 0.0, 0, list[Tensor]()
    batches = torch.randperm(len(examples), generator=generator).split(settings.batch_size)
    for number, index in enumerate(batches, 1):
        loss, of_batch = update(
            model, optimizer, examples, index.numpy(), settings, generator, device
        )
        losses.append(loss)
        labels += of_batch
        if settings.ema_decay:
            move_average(optimizer, settings.ema_decay, earlier * len(batches) + number)
        if len(losses) == _LOSSES or number == len(batches):
            total += _checked(losses, number)
            losses.clear()
    if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
        raise FloatingPointError(f"a weight is not finite after update {len(batches)}")
    return total, labels


def _checked(losses: list[Tensor], number: int) -> float:
    """The sum of the losses of the last updates, of which ``number`` is the latest."""
    values = torch.stack(losses).tolist()
    for update_number, value in enumerate(values, number + 1 - len(values)):
        if not math.isfinite(value):
            raise FloatingPointError(f"the training loss is {value} at update {update_number}")
    return sum(values)


def rounds_without_gain(curve: Sequence[Round]) -> int:
    """Validation steps since the best one."""
    best = max((place for place, line in enumerate(curve) if line.best), default=-1)
    return len(curve) - 1 - best


def epochs_left(curve: Sequence[Round], settings: TrainingSettings) -> tuple[int, int]:
    """Epochs until training ends after the last line of ``curve``: if nothing gets
    better any more, and at most.
    """
    most = settings.maximum_epochs - curve[-1].epoch
    return min(most, (settings.patience - rounds_without_gain(curve)) * curve[0].epoch), most


def train(
    model: Recommender,
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
    weights, also if the training was killed and goes on from its checkpoint. A model
    without gradients is fitted; its curve is one validation step, none where there is
    nothing to validate on.

    Parameters
    ----------
    report : called after each validation step (also those of an earlier process) with
        the curve and the seconds of training up to it.
    checkpoint : where the state is kept after each epoch until the training has ended
        and :meth:`Checkpoint.remove` is called.

    Returns
    -------
    The learning curve, one :class:`Round` per validation step.

    Raises
    ------
    InputError if there is nothing to train or validate on, or if the loss is not
        finite.
    """
    if not (sequences.length >= 2).any():
        raise InputError("no training sequence has two items; use a larger log or another split")
    validation = validation.sample_users(settings.validation_users, seed)
    validated = partial(_ndcg, model, validation, settings, filter_seen, device)
    if not isinstance(model, SequenceModel):
        return _fitted(model, sequences, device, validated if len(validation) else None, report)
    examples = model.examples(sequences)
    if not len(validation):
        raise InputError("the validation part holds no target; early stopping needs one")

    model.to(device)
    if settings.compile:
        _compile(model)
    torch.manual_seed(int(hash_keys(seed, STREAM_DROPOUT)))
    generator = torch.Generator().manual_seed(int(hash_keys(seed, STREAM_BATCHES)))
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, fused=True)
    updates_per_epoch = -(-len(examples) // settings.batch_size)
    epochs_per_round = -(-settings.round_updates // updates_per_epoch)
    checkpoint = checkpoint or Checkpoint(None, "")
    state = _resumed(checkpoint, model, optimizer, generator)
    for count, seconds in enumerate(state.reached, 1):
        report(state.curve[:count], seconds)

    while not state.is_over(settings):
        start = time.monotonic()
        try:
            loss, labels = train_epoch(
                model, optimizer, examples, settings, generator, device, state.epoch
            )
        except FloatingPointError as error:
            kept = f"; the state after epoch {state.epoch} is kept in {checkpoint.path}"
            raise InputError(
                f"{error} of epoch {state.epoch + 1}: lower learning_rate (now"
                f" {settings.learning_rate}){kept if checkpoint.path and state.epoch else ''}"
            ) from None
        state.end_epoch(loss, labels)
        validates = state.epoch % epochs_per_round == 0 or state.epoch == settings.maximum_epochs
        if validates:
            with averaged_weights(optimizer):
                state.add(state.epoch * updates_per_epoch, validated(), model)
        state.seconds += time.monotonic() - start
        if validates:
            state.reached.append(state.seconds)
        _keep(checkpoint, state, model, optimizer, generator)
        if validates:
            report(state.curve, state.seconds)
    model.eval().load_state_dict(state.best_weights)
    return state.curve


def _ndcg(
    model: Recommender,
    validation: HeldOut,
    settings: TrainingSettings,
    filter_seen: bool,
    device: str,
) -> float:
    """The validation NDCG of the model as it is."""
    ranks = rank(model, validation, filter_seen=filter_seen, device=device)
    return float(per_user("ndcg", ranks.target[:, 0], settings.validation_cutoff).mean())


def _fitted(
    model: Recommender,
    sequences: Sequences,
    device: str,
    validated: Callable[[], float] | None,
    report: Callable[[Sequence[Round], float], None],
) -> list[Round]:
    """Fit a model without gradients; the curve of what its validation finds, if there
    is one, so that a grid can choose among such models, too.
    """
    start = time.monotonic()
    model.fit(sequences)
    model.to(device)
    if validated is None:
        return []
    curve = [Round(0, 0, math.nan, validated(), best=True)]
    report(curve, time.monotonic() - start)
    return curve


def _compile(model: SequenceModel) -> None:
    # The compiler is to be told, too, where determinism is wanted
    # (lastitem.device.configure).
    torch.use_deterministic_algorithms(torch.are_deterministic_algorithms_enabled())
    model.compile(dynamic=True)


def _keep(
    checkpoint: Checkpoint,
    state: State,
    model: SequenceModel,
    optimizer: Optimizer,
    generator: torch.Generator,
) -> None:
    checkpoint.save(
        {
            "weights": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "random": random_states(generator, next(model.parameters()).device),
            "state": vars(state) | {"curve": [asdict(line) for line in state.curve]},
        }
    )


def _resumed(
    checkpoint: Checkpoint,
    model: SequenceModel,
    optimizer: Optimizer,
    generator: torch.Generator,
) -> State:
    """The state that a checkpoint holds, with everything else put back in place; a new
    one if it holds none.
    """
    parameters = list(model.parameters())
    device = parameters[0].device

    def fits(found: dict[str, Any]) -> bool:
        weights, best = found["weights"], found["state"]["best_weights"]
        return (
            _shapes(weights) == _shapes(best) == _shapes(model.state_dict())
            and _shapes(found["random"]) == _shapes(random_states(generator, device))
            and all(
                moment.shape == (() if name == "step" else parameters[place].shape)
                for place, moments in found["optimizer"]["state"].items()
                for name, moment in moments.items()
            )
        )

    found = checkpoint.load(fits)
    if found is None:
        return State(copy.deepcopy(model.state_dict()))
    model.load_state_dict(found["weights"])
    optimizer.load_state_dict(found["optimizer"])
    set_random_states(found["random"], generator, device)
    state = found["state"]
    checkpoint.say(f"goes on after epoch {state['epoch']}, from {checkpoint.path}")
    return State(**state | {"curve": [Round(**line) for line in state["curve"]]})


def _shapes(tensors: dict[str, Tensor]) -> dict[str, tuple[torch.dtype, torch.Size]]:
    return {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
