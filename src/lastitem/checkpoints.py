"""The state of an unfinished training, written after every epoch, so that a killed one goes on to the same result.

A state belongs to one key: a hash of everything the result depends on. A state with another key is never resumed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from lastitem.files import write_aside

_MODEL, _BEST, _OPTIMIZER = "model.", "best.", "optimizer."


def key_of(files: Iterable[str | Path], values: Mapping[str, Any]) -> str:
    """Hash the contents of files (data and code) and JSON values (settings); the names of the files do not count."""
    digest = hashlib.sha256(json.dumps(dict(values), sort_keys=True).encode())
    for path in files:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


class Checkpoint:
    """One file that holds all that a training needs to go on: weights, the best weights, Adam's moments, random states.

    Parameters
    ----------
    path : where it lies; None keeps nothing.   key : see :func:`key_of`.
    """

    def __init__(self, path: str | Path | None, key: str) -> None:
        self.path = None if path is None else Path(path)
        self.key = key

    def save(
        self,
        model: torch.nn.Module,
        best: Mapping[str, Tensor],
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
        values: Mapping[str, Any],
    ) -> None:
        """Write the state after an epoch, aside and renamed; ``values`` are what JSON can hold."""
        if self.path is None:
            return
        tensors = {_MODEL + name: tensor for name, tensor in model.state_dict().items()}
        tensors |= {_BEST + name: tensor for name, tensor in best.items()}
        for index, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"{_OPTIMIZER}{index}.{name}": tensor for name, tensor in moments.items()}
        tensors |= {f"random.{name}": state for name, state in _random_states(generator).items()}
        # Copies, because tensors that share memory cannot be written.
        tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
        with write_aside(self.path) as aside:
            safetensors.torch.save_file(tensors, aside, {"key": self.key, "values": json.dumps(dict(values))})

    def load(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Put a saved state back in place; returns the best weights and the values.

        None if there is no state, if it has another key, or if it is damaged: then everything starts anew.
        """
        if self.path is None or not self.path.is_file():
            return None
        try:
            with safetensors.safe_open(self.path, "pt") as file:
                found = file.metadata() or {}
                if found.get("key") != self.key:
                    return None
                tensors = {name: file.get_tensor(name) for name in file.offset_keys()}
        except safetensors.SafetensorError:
            return None
        model.load_state_dict(_under(_MODEL, tensors))
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _under(_OPTIMIZER, tensors).items():
            index, moment = name.split(".")
            state.setdefault(int(index), {})[moment] = tensor
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        _set_random_states(generator, _under("random.", tensors))
        device = next(model.parameters()).device
        return {name: tensor.to(device) for name, tensor in _under(_BEST, tensors).items()}, json.loads(found["values"])

    def remove(self) -> None:
        """Remove the state; the training is finished."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _random_states(generator: torch.Generator) -> dict[str, Tensor]:
    states = {"batches": generator.get_state(), "cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _set_random_states(generator: torch.Generator, states: Mapping[str, Tensor]) -> None:
    generator.set_state(states["batches"])
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
