"""Models by name or import path, and their files: safetensors weights beside a JSON
description.
"""

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch

from lastitem.errors import InputError
from lastitem.files import read_json, write_aside, write_json
from lastitem.models.interface import Recommender
from lastitem.models.settings import ARCHITECTURES, import_path


def build(architecture: str, items: int, settings: Mapping[str, Any]) -> Recommender:
    """Make an untrained model for items 1 … ``items``.

    Parameters
    ----------
    architecture : a name of :data:`lastitem.models.settings.ARCHITECTURES`, or
        ``package.module:Class``, a subclass of
        :class:`lastitem.models.interface.Recommender` that is looked for in the working
        directory, then on PYTHONPATH.

    Raises
    ------
    InputError for an unknown architecture or setting, or a value that does not fit; it
        lists what is allowed.
    """
    kind = _class_of(architecture)
    signature = inspect.signature(kind)
    try:
        signature.bind(items, **settings)
    except TypeError as error:
        raise InputError(f"{architecture}: {error}; its class takes {signature}") from None
    return kind(items, **settings)


class ClassNotFoundError(InputError):
    """A class of somebody's own is not where the process looks for it: no fault of what
    was made with it.
    """


def _class_of(architecture: str) -> type[Recommender]:
    if ":" not in (path := import_path(architecture)):
        raise InputError(
            f"architecture: {architecture!r} is not known; allowed: {', '.join(ARCHITECTURES)}, or"
            " package.module:Class of your own"
        )
    module, _, name = path.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        kind = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise ClassNotFoundError(
            f"architecture: {path}: {error}; work in the folder where it lies, or put that on"
            " PYTHONPATH"
        ) from None
    if not (isinstance(kind, type) and issubclass(kind, Recommender)):
        raise ClassNotFoundError(
            f"architecture: {module} has no {name} that is a subclass of"
            " lastitem.models.interface.Recommender"
        )
    return kind


def save(
    model: Recommender, description: Mapping[str, Any], weights: str | Path, json: str | Path
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


def load(weights: str | Path, json: str | Path) -> tuple[Recommender, dict[str, Any]]:
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
    except ClassNotFoundError as error:
        raise InputError(f"{json}: {error}") from None
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
