"""The state of an unfinished training, written after every epoch, so that a killed one
goes on to the same result.

A state belongs to one key: a hash of everything the result depends on. A state with
another key is never resumed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from lastitem.files import write_aside

_MODEL, _BEST, _OPTIMIZER, _RANDOM = "model.", "best.", "optimizer.", "random."


def key_of(files: Iterable[str | Path], values: Mapping[str, Any]) -> str:
    """Hash the contents of files (data and code) and JSON values (settings); the names
    of the files do not count.
    """
    digest = hashlib.sha256(json.dumps(dict(values), sort_keys=True).encode())
    for path in files:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


class Checkpoint:
    """One file that holds all that a training needs to go on: weights, the best
    weights, Adam's moments, random states.

    Parameters
    ----------
    path : where it lies; None keeps nothing.
    key : see :func:`key_of`.
    say : told in words whether a training goes on from a state, and why not from one
        that is there.
    """

    def __init__(
        self, path: str | Path | None, key: str, say: Callable[[str], None] = lambda text: None
    ) -> None:
        self.path = None if path is None else Path(path)
        self.key = key
        self.say = say

    def save(
        self,
        model: torch.nn.Module,
        best: Mapping[str, Tensor],
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
        values: Mapping[str, Any],
    ) -> None:
        """Write the state after an epoch, aside and renamed; ``values`` are what JSON
        can hold.
        """
        if self.path is None:
            return
        tensors = {_MODEL + name: tensor for name, tensor in model.state_dict().items()}
        tensors |= {_BEST + name: tensor for name, tensor in best.items()}
        for index, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"{_OPTIMIZER}{index}.{name}": tensor for name, tensor in moments.items()}
        tensors |= {
            _RANDOM + name: state
            for name, state in _random_states(generator, _device(model)).items()
        }
        # Copies, because tensors that share memory cannot be written.
        tensors = {
            name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()
        }
        written = json.dumps(dict(values))
        metadata = {"key": self.key, "values": written, "digest": _digest(tensors, written)}
        with write_aside(self.path) as aside:
            aside.write_bytes(safetensors.torch.save(tensors, metadata))

    def load(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Put a saved state back in place; returns the best weights and the values.

        None if there is no state, if it has another key, or if it is damaged: then
        nothing is changed and everything starts anew.
        """
        if self.path is None or not self.path.is_file():
            return None
        try:
            with safetensors.safe_open(self.path, "pt") as file:
                found = file.metadata() or {}
                if found.get("key") != self.key:
                    self.say(f"{self.path} is of other settings, data or code: starts anew")
                    return None
                tensors = {name: file.get_tensor(name) for name in file.offset_keys()}
            if found["digest"] != _digest(tensors, found["values"]):
                raise ValueError("not what was written")
            values = json.loads(found["values"])
            state = _optimizer_state(_under(_OPTIMIZER, tensors), list(model.parameters()))
            for prefix, now in (
                (_MODEL, model.state_dict()),
                (_BEST, model.state_dict()),
                (_RANDOM, _random_states(generator, _device(model))),
            ):
                if _shapes(_under(prefix, tensors)) != _shapes(now):
                    raise ValueError(f"{prefix}* does not fit")
        except (safetensors.SafetensorError, LookupError, ValueError):
            self.say(f"{self.path} is damaged: starts anew")
            return None
        model.load_state_dict(_under(_MODEL, tensors))
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        _set_random_states(generator, _under(_RANDOM, tensors), _device(model))
        return {
            name: tensor.to(_device(model)) for name, tensor in _under(_BEST, tensors).items()
        }, values

    def remove(self) -> None:
        """Remove the state; the training is finished."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _device(model: torch.nn.Module) -> torch.device:
    return next(model.parameters()).device


def _digest(tensors: Mapping[str, Tensor], values: str) -> str:
    """sha256 of all that is in a state, so that a bit that flipped is noticed."""
    digest = hashlib.sha256(values.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def _optimizer_state(
    tensors: Mapping[str, Tensor], parameters: Sequence[Tensor]
) -> dict[int, dict[str, Tensor]]:
    """Moments by parameter and name; LookupError or ValueError if they are not of these
    parameters.
    """
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, moment = name.split(".")
        if tensor.shape != (() if moment == "step" else parameters[int(index)].shape):
            raise ValueError(f"{name} does not fit")
        state.setdefault(int(index), {})[moment] = tensor
    return state


def _random_states(generator: torch.Generator, device: torch.device) -> dict[str, Tensor]:
    states = {"batches": generator.get_state(), "cpu": torch.get_rng_state()}
    if device.type == "cuda":
        # Of the GPU that trains, which of several need not be torch's current one.
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _set_random_states(
    generator: torch.Generator, states: Mapping[str, Tensor], device: torch.device
) -> None:
    generator.set_state(states["batches"])
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
