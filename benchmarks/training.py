"""Time of a training step against the literal way, what each part of the difference is
worth, and memory of a large catalogue.

The literal way pads a batch to its longest sequence, forms whole attention matrices,
projects every position onto the catalogue and takes one cross-entropy. Both ways run on
the same batches of Amazon Beauty (leave-one-out, length limit 200, batch 256, full
softmax) and of MovieLens 100K, one after the other, several times: the median of the
ratios is given. On the first batch, with dropout off, their losses must agree to 1e-5.
The parts are measured by taking one of them back at a time. The literal way has the
cheap dropout of lastitem; how much slower torch's own makes it is given beside it.

Needs the splits:

    snakemake results/beauty/loo/split.json --configfile config/check.yaml
    snakemake results/ml-100k/loo/split.json
    python benchmarks/training.py

The last line is one JSON object with all figures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from memory import peak_mib
from numpy.typing import NDArray
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from lastitem.data.sequences import Sequences, read_training
from lastitem.device import configure
from lastitem.files import read_parquet
from lastitem.models import dropout as dropouts
from lastitem.models.attention import MultiHeadAttention
from lastitem.models.bert4rec import BERT4Rec
from lastitem.models.interface import SequenceModel
from lastitem.models.registry import build
from lastitem.study.settings import TrainingSettings, schema_of
from lastitem.training import losses
from lastitem.training.batches import make_batch
from lastitem.training.step import update

BATCH, LENGTH = 256, 200
SIZES = {"hidden_size": 64, "maximum_length": LENGTH}
CASES = {
    ("beauty", "sasrec"): {**SIZES, "heads": 2, "dropout": 0.5},
    ("beauty", "bert4rec"): {**SIZES, "heads": 2, "dropout": 0.2},
    ("beauty", "gru4rec"): {**SIZES, "dropout": 0.3},
    ("ml-100k", "sasrec"): {**SIZES, "heads": 2, "dropout": 0.3},
}
PARTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "one length group": {"length_groups": 1},
    "last block everywhere": {"labelled_only": False},
    "no chunks in the loss": {"chunked": False},
    "torch's own dropout": {"cheap_dropout": False},
    "whole attention matrices": {"attention_in_parts": False},
}
#: The encoder of the literal way. It has the cheap dropout, as it always had, so
#: that figures of all versions compare; that of plain torch does not.
LITERAL_ENCODER = PARTS["whole attention matrices"]
PLAIN_ENCODER = LITERAL_ENCODER | PARTS["torch's own dropout"]
ON_GPU: dict[str, dict[str, Any]] = {
    "bfloat16": {"precision": "bfloat16"},
    "compiled": {"compile": True},
}


def encode_everywhere(
    model: SequenceModel, items: torch.Tensor, length: torch.Tensor
) -> torch.Tensor:
    """The vectors of all positions."""
    if isinstance(model, BERT4Rec):
        # Of the class: that of the model may be replaced (without).
        return BERT4Rec.forward(model, items, length)
    return model.encode(items, length)


def literal_loss(
    model: SequenceModel, sequences: Sequences, index: NDArray[np.int64], generator: torch.Generator
) -> tuple[torch.Tensor, int]:
    """Mean cross-entropy over the labels, every position of the padded batch projected
    onto the catalogue.
    """
    batch = make_batch(model, sequences, index, 0, generator)
    batch = batch.to(next(model.parameters()).device)
    hidden = encode_everywhere(model, batch.items, batch.length)
    label = torch.full(batch.labelled.shape, -100, device=batch.labelled.device)
    label[batch.labelled] = batch.label - 1
    scores = hidden @ model.item_vectors().T
    return functional.cross_entropy(scores.flatten(0, 1), label.flatten(), ignore_index=-100), len(
        batch.label
    )


def literal_step(
    model: SequenceModel,
    optimizer: torch.optim.Optimizer,
    sequences: Sequences,
    index: NDArray[np.int64],
    generator: torch.Generator,
) -> None:
    """One update the literal way."""
    optimizer.zero_grad()
    literal_loss(model, sequences, index, generator)[0].backward()
    optimizer.step()


@contextmanager
def without(
    model: SequenceModel,
    chunked: bool = True,
    cheap_dropout: bool = True,
    labelled_only: bool = True,
    attention_in_parts: bool = True,
) -> Iterator[None]:
    """Take back one part of what makes a step of the model fast."""
    chunk, level, mix = losses.CHUNK_SCORES, dropouts.dropout, MultiHeadAttention.mix
    if not labelled_only:
        model.forward = lambda items, length, at: encode_everywhere(model, items, length).flatten(
            0, 1
        )[at]
    if not chunked:
        losses.CHUNK_SCORES = 1 << 40
    if not cheap_dropout:
        dropouts.dropout = functional.dropout  # type: ignore[assignment]
    if not attention_in_parts:
        MultiHeadAttention.mix = whole_attention  # type: ignore[method-assign]
    try:
        yield
    finally:
        losses.CHUNK_SCORES, dropouts.dropout = chunk, level
        MultiHeadAttention.mix = mix  # type: ignore[method-assign]


def whole_attention(
    attention: MultiHeadAttention,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
) -> torch.Tensor:
    """Weighted sums of values, with dropout on the whole matrix of weights."""
    weights = attention.weights(q, k, mask)
    return dropouts.dropout(weights, attention.dropout, attention.training) @ v


def seconds(
    step: Callable[[NDArray[np.int64]], object], batches: Sequence[NDArray[np.int64]]
) -> float:
    """Mean seconds of a step over the batches, after one to warm up."""
    step(batches[0])
    _wait()
    start = time.perf_counter()
    for index in batches:
        step(index)
    _wait()
    return (time.perf_counter() - start) / len(batches)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def multiply_rate(device: str) -> float:
    """Floating-point operations per second of the machine's own float32 product of
    large matrices.
    """
    size = 2048
    a, b = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
    times = []
    for _ in range(7):
        _wait()
        start = time.perf_counter()
        a @ b
        _wait()
        times.append(time.perf_counter() - start)
    return 2 * size**3 / statistics.median(times)


class Case:
    """One dataset and model: what both ways compute, and in which time.

    Parameters
    ----------
    steps : batches for each way but the literal one.
    literal_steps : batches on which both ways are compared.
    """

    training = TrainingSettings(batch_size=BATCH)

    def __init__(
        self, dataset: str, architecture: str, device: str, steps: int, literal_steps: int
    ) -> None:
        folder = Path("results") / dataset
        sequences = read_training(folder / "loo/train.parquet")
        self.sequences = sequences.select(np.flatnonzero(sequences.length >= 2))
        self.items = read_parquet(folder / "core/items.parquet").num_rows
        self.architecture, self.settings = architecture, CASES[dataset, architecture]
        self.device, self.generator = device, torch.Generator().manual_seed(0)
        order = torch.randperm(len(self.sequences), generator=self.generator).numpy()
        count = min(steps, len(order) // BATCH)
        self.batches = [order[place * BATCH : (place + 1) * BATCH] for place in range(count)]
        self.compared = self.batches[:literal_steps]

    def fresh(self, **changed: Any) -> tuple[SequenceModel, torch.optim.Optimizer]:
        """A new model of the same first weights."""
        torch.manual_seed(0)
        model = build(self.architecture, self.items, {**self.settings, **changed})
        model = model.to(self.device).train()
        return model, torch.optim.Adam(model.parameters(), fused=True)

    def loss_difference(self) -> float:
        """Between both ways on the first batch, with dropout off."""
        # The same masks for both ways: BERT4Rec draws them group by group.
        one_group = replace(self.training, length_groups=1)
        index = np.sort(self.batches[0])
        model, optimizer = self.fresh(dropout=0.0)
        generator = torch.Generator().manual_seed(1)
        ours, labels = update(
            model, optimizer, self.sequences, index, one_group, generator, self.device
        )
        by_length = index[np.argsort(self.sequences.length[index], kind="stable")]
        with torch.no_grad():
            plain, _ = self.fresh(dropout=0.0)
            generator = torch.Generator().manual_seed(1)
            literal = literal_loss(plain, self.sequences, by_length, generator)[0]
        return abs(float(ours) / labels - float(literal))

    def here(self, batches: Sequence[NDArray[np.int64]], **change: Any) -> float:
        """Seconds of an update, with what ``change`` says (:data:`PARTS`)."""
        model, optimizer = self.fresh()
        of_training = TrainingSettings.__dataclass_fields__
        changed = replace(self.training, **{k: v for k, v in change.items() if k in of_training})
        if changed.compile:
            model.compile(dynamic=True)
        with without(model, **{k: v for k, v in change.items() if k not in of_training}):
            return seconds(
                lambda index: update(
                    model, optimizer, self.sequences, index, changed, self.generator, self.device
                ),
                batches,
            )

    def literal(self, **taken_back: Any) -> float:
        """Seconds of an update the literal way."""
        model, optimizer = self.fresh()
        with without(model, **taken_back):
            return seconds(
                lambda index: literal_step(model, optimizer, self.sequences, index, self.generator),
                self.compared,
            )

    def operations(self) -> int:
        """Floating-point operations of an update."""
        model, optimizer = self.fresh()
        counter = FlopCounterMode(display=False)
        with counter:
            update(
                model,
                optimizer,
                self.sequences,
                self.batches[0],
                self.training,
                self.generator,
                self.device,
            )
        return counter.get_total_flops()


def measure(case: Case, runs: int) -> dict[str, Any]:
    """Losses, seconds and operations of both ways."""
    difference = case.loss_difference()
    changes = PARTS | (ON_GPU if case.device != "cpu" else {})
    parts = {name: case.here(case.batches, **change) for name, change in changes.items()}
    pairs = [(case.literal(**LITERAL_ENCODER), case.here(case.compared)) for _ in range(runs)]
    literal, here = map(statistics.median, zip(*pairs, strict=True))
    tokens = np.minimum(case.sequences.length[case.batches[0]] - 1, LENGTH).sum()
    return {
        "loss_difference": difference,
        "literal_seconds": literal,
        "seconds": here,
        "speedups": sorted(slow / fast for slow, fast in pairs),
        "speedup": statistics.median(slow / fast for slow, fast in pairs),
        "speedup_over_plain_torch": case.literal(**PLAIN_ENCODER) / here,
        "parts_seconds": parts,
        "operations": case.operations(),
        "tokens_per_second": float(tokens) / parts["as it is"],
    }


def large_catalogue(loss: str) -> dict[str, float]:
    """Child process: one step with 150,000 items, length 128, batch 256, d 64; seconds
    and the process's largest memory.
    """
    settings = TrainingSettings(batch_size=BATCH, loss=loss)
    items, length = 150_000, 128
    random = np.random.default_rng(0)
    flat = random.integers(1, items + 1, BATCH * (length + 1)).astype(np.int32)
    start = np.arange(BATCH) * (length + 1)
    sequences = Sequences(flat, start, start + length + 1, np.arange(BATCH, dtype=np.int32))
    model = build(
        "sasrec", items, {"hidden_size": 64, "heads": 2, "maximum_length": length}
    ).train()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    began = time.perf_counter()
    update(
        model,
        optimizer,
        sequences,
        np.arange(BATCH),
        settings,
        torch.Generator().manual_seed(0),
        "cpu",
    )
    return {"seconds": time.perf_counter() - began, "peak_mib": peak_mib()}


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=20,
        help="batches for each way but the literal one (default: 20)",
    )
    parser.add_argument(
        "--literal-steps",
        type=int,
        default=5,
        help="batches on which both ways are compared (default: 5)",
    )
    parser.add_argument(
        "--runs", type=int, default=5, help="how often both ways are timed (default: 5)"
    )
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count(), help="CPU threads (default: all)"
    )
    parser.add_argument(
        "--device",
        default="cpu",
        help="cpu or cuda (default: cpu); on a GPU also bfloat16 and the compiled encoder",
    )
    known = schema_of(TrainingSettings)["loss"]["enum"]
    parser.add_argument("--large-catalogue", choices=known, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    configure(arguments.device, arguments.threads)
    if arguments.large_catalogue:
        return print(json.dumps(large_catalogue(arguments.large_catalogue)))

    missing = sorted(
        {name for name, _ in CASES if not Path(f"results/{name}/loo/train.parquet").is_file()}
    )
    if missing:
        sys.exit(
            f"no split of {', '.join(missing)} under results/; make it"
            f" first:\n{__doc__.split('Needs the splits:')[1].split('python')[0]}"
        )
    rate = multiply_rate(arguments.device)
    print(
        f"{'':<20}{'literal, s':>12}{'here, s':>10}{'faster':>8}{'than torch':>12}"
        f"{'of the multiply rate':>22}  "
        " seconds with one part taken back"
    )
    found: dict[str, Any] = {}
    for dataset, architecture in CASES:
        compared = Case(
            dataset, architecture, arguments.device, arguments.steps, arguments.literal_steps
        )
        case = measure(compared, arguments.runs)
        case["share_of_multiply_rate"] = (
            case["operations"] / case["parts_seconds"]["as it is"] / rate
        )
        found[f"{dataset} {architecture}"] = case
        parts = ", ".join(f"{name} {value:.3f}" for name, value in case["parts_seconds"].items())
        print(
            f"{dataset + ' ' + architecture:<20}{case['literal_seconds']:>12.2f}"
            f"{case['seconds']:>10.3f}{case['speedup']:>8.1f}"
            f"{case['speedup_over_plain_torch']:>12.1f}"
            f"{case['share_of_multiply_rate']:>22.2f}"
            f"   {parts}",
            flush=True,
        )
    large = {}
    for loss in ("softmax", "sampled_softmax"):
        command = [
            sys.executable,
            __file__,
            "--large-catalogue",
            loss,
            "--threads",
            str(arguments.threads),
        ]
        large[loss] = json.loads(
            subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        )
        cost = f"{large[loss]['seconds']:.1f} s a step, {large[loss]['peak_mib']:,.0f} MiB at most"
        print(f"150,000 items, length 128, batch 256, {loss}: {cost}", flush=True)
    wrong = [name for name, case in found.items() if not case["loss_difference"] <= 1e-5]
    figures = {
        "benchmark": "training",
        "device": arguments.device,
        "threads": arguments.threads,
        "multiply_rate": rate,
        "cases": found,
        "large_catalogue": large,
    }
    print(json.dumps(figures))
    if wrong:
        sys.exit(f"the losses of the two ways differ: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
