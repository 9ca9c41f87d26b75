"""Settings as dataclasses: each says once, beside its default, what it may be.

Light enough to be imported while a Snakefile is parsed. The schema of the config is
made of them (:func:`schema_of`), and a job checks with them what it is given
(:func:`checked`).
"""

import dataclasses
import difflib
import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from lastitem.errors import InputError

#: With fewer labels at a place, what is predicted there was hardly learned.
FEW_LABELS = 100
#: A type in a dataclass → its name in JSON Schema, and in words.
_TYPES = {
    "int": ("integer", "a whole number"),
    "float": ("number", "a finite number"),
    "bool": ("boolean", "true or false"),
    "str": ("string", "text"),
}
_LIMITS = {
    "minimum": (operator.ge, "at least"),
    "exclusiveMinimum": (operator.gt, "above"),
    "maximum": (operator.le, "at most"),
    "exclusiveMaximum": (operator.lt, "below"),
}
Kind = TypeVar("Kind")


def setting(default: Any, description: str, **rules: Any) -> Any:
    """A field of a settings dataclass.

    Parameters
    ----------
    rules : keywords of JSON Schema: ``minimum``, ``exclusiveMinimum``, ``maximum``,
        ``exclusiveMaximum``, ``enum``.
    """
    return dataclasses.field(default=default, metadata={"description": description, **rules})


def setting_of(kind: type, name: str, default: Any) -> Any:
    """The field ``name`` of another settings dataclass, with a default of its own."""
    return setting(default, **kind.__dataclass_fields__[name].metadata)  # type: ignore[attr-defined]


def schema_of(kind: type) -> dict[str, Any]:
    """JSON Schema of the settings that a dataclass holds: name → type and rules."""
    return {
        field.name: {"type": _TYPES[_type_of(field)][0], **field.metadata}
        for field in dataclasses.fields(kind)
        if _type_of(field) in _TYPES
    }


def checked(kind: type[Kind], values: Mapping[str, Any], where: str) -> Kind:
    """Make an instance of a settings dataclass.

    Raises
    ------
    InputError for an unknown name or a value that is not allowed; it says what is.
    """
    known = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := [name for name in values if name not in known]:
        names = ", ".join(map(repr, unknown))
        raise InputError(f"{where}: no setting {names}{instead(unknown[0], known)}")
    for name, value in values.items():
        if wanted := _wanted(value, known[name]):
            raise InputError(f"{where}: {name} is {value!r}; it must be {wanted}")
    return kind(**values)


def instead(value: object, known: Iterable[object]) -> str:
    """What may be meant by a value that is none of the known ones."""
    allowed = [str(option) for option in known]
    close = difflib.get_close_matches(str(value), allowed, n=2, cutoff=0.7)
    meant = f" — did you mean {' or '.join(map(repr, close))}?" if close else ""
    return f"{meant}; allowed: {', '.join(allowed) or 'none'}"


def _type_of(field: dataclasses.Field) -> str:
    # A name where annotations are postponed, else the type itself.
    return field.type if isinstance(field.type, str) else field.type.__name__


def _wanted(value: Any, field: dataclasses.Field) -> str:
    """What a value should be; empty if it is that."""
    kind, rules = _type_of(field), field.metadata
    if kind in _TYPES:
        # Python takes true for a number, too, and 2 for one with a point.
        found = type(value).__name__
        fits = found == kind or (kind, found) == ("float", "int")
        if not fits or (kind == "float" and not math.isfinite(value)):
            return _TYPES[kind][1]
    if "enum" in rules and value not in rules["enum"]:
        return "one of " + ", ".join(map(str, rules["enum"]))
    limits = [(*_LIMITS[name], rules[name]) for name in _LIMITS if name in rules]
    if all(holds(value, limit) for holds, _, limit in limits):
        return ""
    return " and ".join(f"{words} {limit:g}" for _, words, limit in limits)


#: Settings of training that only some losses use.
_OF_LOSSES = {"num_negatives": ("sampled_softmax", "gbce"), "calibration": ("gbce",)}


def unused(training: Mapping[str, Any]) -> dict[str, str]:
    """Settings of a training that its loss does not use → why, in words."""
    loss = training.get("loss", TrainingSettings.loss)
    return {
        name: f"the loss {loss} does not use it; {' and '.join(losses)} do"
        if len(losses) > 1
        else f"the loss {loss} does not use it; {losses[0]} does"
        for name, losses in _OF_LOSSES.items()
        if name in training and loss not in losses
    }


def used(training: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a training without those that its loss does not use: a change of
    these trains nothing anew.
    """
    return {name: value for name, value in training.items() if name not in unused(training)}


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """How a model is trained by gradient."""

    loss: str = setting(
        "softmax",
        "softmax: cross-entropy over the catalogue; bce: one uniform negative; "
        "sampled_softmax, gbce: several, for large catalogues.",
        enum=["softmax", "sampled_softmax", "bce", "gbce"],
    )
    num_negatives: int = setting(
        256, "Negatives drawn for each label by sampled_softmax and gbce.", minimum=1
    )
    calibration: float = setting(
        0.75, "t of gbce: 0 is plain BCE, 1 fully calibrated scores.", minimum=0, maximum=1
    )
    batch_size: int = setting(128, "Training examples per update.", minimum=1)
    learning_rate: float = setting(1e-3, "Of Adam.", exclusiveMinimum=0)
    maximum_epochs: int = setting(500, "Passes over the training examples at most.", minimum=1)
    patience: int = setting(
        10, "Validation steps without a better NDCG before training stops.", minimum=1
    )
    round_updates: int = setting(
        40,
        "A validation step follows the first epoch that completes so many updates, so that "
        "a small log is not stopped after a few dozen of them.",
        minimum=1,
    )
    validation_users: int = setting(
        1024, "Users ranked at each validation step, drawn by the seed.", minimum=1
    )
    validation_cutoff: int = setting(10, "K of the validation NDCG@K.", minimum=1)
    ema_decay: float = setting(
        0.0,
        "Decay of an exponential moving average of the weights, which is what is validated "
        "and kept; 0: the weights themselves.",
        minimum=0,
        exclusiveMaximum=1,
    )
    length_groups: int = setting(
        4,
        "Groups of similar length a batch is computed in: speed, not the gradient.",
        minimum=1,
    )
    precision: str = setting(
        "float32",
        "float32; bfloat16: products in the encoder in bfloat16, those of the loss in TF32, "
        "for GPUs.",
        enum=["float32", "bfloat16"],
    )
    compile: bool = setting(False, "Have torch compile the encoder: a minute at the start.")

    @property
    def drawn_negatives(self) -> int:
        """Negatives of each label: none for the full softmax, one for BCE
        as published.
        """
        return {"softmax": 0, "bce": 1}.get(self.loss, self.num_negatives)
