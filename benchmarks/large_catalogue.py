"""Training, ranking and a sweep over λ with 200,000 and with 2 million items: seconds,
largest memory, and how both grow with the catalogue.

Each figure is taken in a process of its own, on generated histories and an untrained
SASRec with vectors of 64 numbers. Training: one update of 64 sequences with the sampled
softmax and 256 negatives a label, as a mean of several after one to warm up. Ranking:
the test cases of 256 users, seen items left out, with a list of ten. Sweep: the same
users under three values of λ. A step of Adam moves every vector, so all three are at
best linear in the number of items.

    python benchmarks/large_catalogue.py

The last line is one JSON object with all figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from memory import peak_mib

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from lastitem.data.sequences import HeldOut, Sequences
from lastitem.device import configure
from lastitem.evaluation.ranking import rank
from lastitem.models.interface import SequenceModel
from lastitem.models.registry import build
from lastitem.study.settings import TrainingSettings
from lastitem.training.step import update

SMALLER, LARGER = 200_000, 2_000_000
LENGTH, BATCH, USERS, UPDATES = 50, 64, 256, 3
SCALES = (1.0, 0.5, 0.0)


def model_of(items: int) -> SequenceModel:
    """An untrained model of the default size."""
    torch.manual_seed(0)
    return build("sasrec", items, {"hidden_size": 64, "heads": 2, "maximum_length": LENGTH})


def histories(items: int, users: int) -> HeldOut:
    """Histories of random items, and a target for each."""
    random = np.random.default_rng(0)
    start = np.arange(users) * LENGTH
    codes = random.integers(1, items + 1, users * LENGTH).astype(np.int32)
    target = random.integers(1, items + 1, users).astype(np.int32)
    order = np.arange(users, dtype=np.int32)
    return HeldOut(codes, start, start + LENGTH, order, target, np.zeros(users, dtype=bool))


def training(items: int) -> float:
    """Seconds of an update."""
    model, cases = model_of(items).train(), histories(items, BATCH)
    sequences = Sequences(cases.items, cases.start, cases.end, cases.user)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    settings = TrainingSettings(batch_size=BATCH, loss="sampled_softmax", num_negatives=256)
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        update(model, optimizer, sequences, np.arange(BATCH), settings, generator, "cpu")

    step()
    start = time.perf_counter()
    for _ in range(UPDATES):
        step()
    return (time.perf_counter() - start) / UPDATES


def ranking(items: int) -> float:
    """Seconds of ranking all users."""
    model, cases = model_of(items), histories(items, USERS)
    start = time.perf_counter()
    rank(model, cases, filter_seen=True, list_length=10)
    return time.perf_counter() - start


def sweep(items: int) -> float:
    """Seconds of ranking all users under each λ."""
    model, cases = model_of(items), histories(items, USERS)
    start = time.perf_counter()
    for scale in SCALES:
        rank(model, cases, filter_seen=True, residual_scale=scale)
    return time.perf_counter() - start


FIGURES: dict[str, Callable[[int], float]] = {
    "training": training,
    "ranking": ranking,
    "sweep": sweep,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count(), help="CPU threads (default: all)"
    )
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    configure("cpu", arguments.threads)
    if arguments.one:
        name, items = arguments.one
        print(json.dumps({"seconds": FIGURES[name](int(items)), "peak_mib": peak_mib()}))
        return
    print(f"{'':<12}{'items':>12}{'seconds':>10}{'peak, GiB':>12}{'times as long':>16}")
    found: dict[str, dict[str, float]] = {}
    for name in FIGURES:
        for items in (SMALLER, LARGER):
            command = [sys.executable, __file__, "--threads", str(arguments.threads)]
            done = subprocess.run(
                [*command, "--one", name, str(items)], capture_output=True, text=True, check=True
            )
            found[f"{name} {items}"] = one = json.loads(done.stdout)
            growth = one["seconds"] / found[f"{name} {SMALLER}"]["seconds"]
            print(
                f"{name:<12}{items:>12,}{one['seconds']:>10.2f}{one['peak_mib'] / 1024:>12.2f}"
                f"{growth:>16.1f}",
                flush=True,
            )
    print(json.dumps({"threads": arguments.threads, "figures": found}))


if __name__ == "__main__":
    main()
