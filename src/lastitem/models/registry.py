"""Names of models, their settings, and their files: safetensors weights beside a JSON
description.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch

from lastitem.errors import InputError
from lastitem.files import read_json, write_aside, write_json
from lastitem.models.attention import BLOCK_ORDERS
from lastitem.models.bert4rec import BERT4Rec
from lastitem.models.bsarec import BSARec
from lastitem.models.duorec import DuoRec
from lastitem.models.gru4rec import GRU4Rec
from lastitem.models.interface import SequenceModel
from lastitem.models.popularity import Popularity
from lastitem.models.sasrec import SASRec

ARCHITECTURES: dict[str, type[SequenceModel]] = {
    "sasrec": SASRec,
    "gru4rec": GRU4Rec,
    "bert4rec": BERT4Rec,
    "bsarec": BSARec,
    "duorec": DuoRec,
    "popularity": Popularity,
}


def build(architecture: str, items: int, settings: Mapping[str, Any]) -> SequenceModel:
    """Make an untrained model for items 1 … ``items``.

    Raises
    ------
    InputError for an unknown architecture or setting, or a size that does not fit; it
    lists what is allowed.
    """
    if architecture not in ARCHITECTURES:
        raise InputError(
            f"architecture: {architecture!r} is not known; allowed: {', '.join(ARCHITECTURES)}"
        )
    kind = ARCHITECTURES[architecture]
    allowed = [name for name in inspect.signature(kind).parameters if name != "items"]
    unknown = [name for name in settings if name not in allowed]
    if unknown:
        raise InputError(
            f"{architecture}: no setting {', '.join(unknown)}; allowed: {', '.join(allowed)}"
        )
    if settings.get("block_order", "post") not in BLOCK_ORDERS:
        raise InputError(
            f"block_order: {settings['block_order']!r} is not known; allowed:"
            f" {', '.join(BLOCK_ORDERS)}"
        )
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()
    } | dict(settings)
    if "heads" in defaults and defaults["hidden_size"] % defaults["heads"]:
        raise InputError(
            f"{architecture}: hidden_size {defaults['hidden_size']} is not a multiple of heads"
            f" {defaults['heads']}"
        )
    return kind(items, **settings)


def save(
    model: SequenceModel, description: Mapping[str, Any], weights: str | Path, json: str | Path
) -> None:
    """Write the weights (safetensors) and the description (JSON, with the sha256 of the
    weights), each aside and renamed.
    """
    content = safetensors.torch.save(
        {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    )
    with write_aside(weights) as aside:
        aside.write_bytes(content)
    write_json(json, {**description, "weights_sha256": hashlib.sha256(content).hexdigest()})


def load(weights: str | Path, json: str | Path) -> tuple[SequenceModel, dict[str, Any]]:
    """Read a model written by :func:`save`, ready to predict (evaluation mode, on the
    CPU); nothing is unpickled.

    Raises
    ------
    InputError if a file is missing, damaged, or the weights do not fit the description.
    """
    if not Path(weights).is_file():
        raise InputError(f"{weights}: no such file")
    description, content = read_json(json), Path(weights).read_bytes()
    anew = "delete it to have the model trained anew"
    try:
        architecture, items, settings, digest = (
            description[key] for key in ("architecture", "items", "settings", "weights_sha256")
        )
        model = build(architecture, items, settings)
    except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError, InputError) as error:
        raise InputError(f"{json}: does not describe a model ({error}); {anew}") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise InputError(
            f"{weights}: not the weights that {json} describes (their sha256 is another); {anew}"
        )
    try:
        model.load_state_dict(safetensors.torch.load(content))
    except (safetensors.SafetensorError, RuntimeError) as error:
        raise InputError(
            f"{weights}: not the weights that {json} describes ({error}); {anew}"
        ) from None
    return model.eval(), description
