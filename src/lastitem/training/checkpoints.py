"""The state of an unfinished training, written after every epoch, so that a killed one
goes on to the same result.

A state belongs to one key: a hash of everything the result depends on. A state with
another key is never resumed.
"""

import hashlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from lastitem.files import write_aside


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
    """One file that holds all that a training needs to go on.

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

    def save(self, content: Mapping[str, Any]) -> None:
        """Write tensors and plain values, nested in dictionaries and lists, aside and
        renamed.
        """
        if self.path is None:
            return
        written = io.BytesIO()
        torch.save({"key": self.key, **content}, written)
        with write_aside(self.path) as aside:
            aside.write_bytes(written.getbuffer())

    def load(self) -> dict[str, Any] | None:
        """What was saved, on the CPU; None if there is nothing, if it has another key,
        or if it is damaged: then everything starts anew.

        Nothing in the file is run: torch's restricted reader takes tensors and plain
        values alone.
        """
        if self.path is None or not self.path.is_file():
            return None
        try:
            # Every part has a checksum, so a bit that flipped is noticed.
            with zipfile.ZipFile(self.path) as archive:
                if archive.testzip() is not None:
                    raise zipfile.BadZipFile
            content = torch.load(self.path, map_location="cpu", weights_only=True)
            key = content.pop("key")
        except (
            zipfile.BadZipFile, pickle.UnpicklingError, ArithmeticError, AttributeError, EOFError,
            LookupError, NotImplementedError, RuntimeError, TypeError, ValueError,
        ):  # fmt: skip
            self.say(f"{self.path} is damaged: starts anew")
            return None
        if key != self.key:
            self.say(f"{self.path} is of other settings, data or code: starts anew")
            return None
        return content

    def remove(self) -> None:
        """Remove the state; the training is finished."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def random_states(generator: torch.Generator, device: torch.device) -> dict[str, torch.Tensor]:
    """The states of the generators that a training draws from."""
    states = {"batches": generator.get_state(), "cpu": torch.get_rng_state()}
    if device.type == "cuda":
        # Of the GPU that trains, which of several need not be torch's current one.
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_random_states(
    states: Mapping[str, torch.Tensor], generator: torch.Generator, device: torch.device
) -> None:
    """Put back what :func:`random_states` told."""
    generator.set_state(states["batches"])
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
