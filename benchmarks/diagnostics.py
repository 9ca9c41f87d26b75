"""Time and memory of the diagnostics against the literal way, on generated inputs and
an untrained SASRec.

Decomposition: mixing ratios of all positions and maps of the newest 15, from what the
blocks did. The literal way forms the L×L×d tensor of all parts; both must agree to
1e-5. Ranking: users × length × items. The literal way projects all positions onto the
catalogue, a thousand users at a time, and sorts it at the last; targets must get the
same ranks. Sweep: 11 values of λ with mixing ratios and moved-back read-outs, against
11 plain rankings. Memory: diagnosis on a large catalogue, the whole process.

    python benchmarks/diagnostics.py

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
from typing import Any

import numpy as np
import torch
from memory import peak_mib

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from lastitem.data.padding import pad
from lastitem.data.sequences import HeldOut
from lastitem.evaluation.decomposition import decompose, mixing_ratios, newest_maps
from lastitem.evaluation.interventions import intervention
from lastitem.evaluation.probing import BlockTrace, probing
from lastitem.evaluation.ranking import rank
from lastitem.evaluation.rescaling import rank_scaled
from lastitem.models.interface import SequenceModel
from lastitem.models.registry import build

LENGTH, SIZE, NEWEST = 128, 64, 15
SCALES = [step / 10 for step in range(11)]


def model_of(items: int) -> SequenceModel:
    """An untrained SASRec with weights spread out as a trained one's are."""
    torch.manual_seed(0)
    model = build(
        "sasrec", items, {"hidden_size": SIZE, "blocks": 2, "heads": 2, "maximum_length": LENGTH}
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
    return model.eval()


def cases_of(users: int, items: int) -> HeldOut:
    """Full-length histories of items drawn uniformly."""
    random = np.random.default_rng(0)
    start = np.arange(users) * LENGTH
    user = np.arange(users, dtype=np.int32)
    flat, target = (
        random.integers(1, items + 1, count).astype(np.int32) for count in (users * LENGTH, users)
    )
    return HeldOut(flat, start, start + LENGTH, user, target, np.zeros(users, dtype=bool))


def literal_parts(trace: BlockTrace) -> list[torch.Tensor]:
    """The parts of Attn, AttnRes and AttnResLN as [B, L, L, d]."""
    source = torch.einsum("bhje,hed->bhjd", trace.values, trace.output_weight)
    attention = torch.einsum("bhij,bhjd->bijd", trace.attention, source)
    with_residual = attention.clone()
    place = torch.arange(attention.shape[1])
    with_residual[:, place, place] += trace.residual_scale * trace.residual
    deviation = (trace.before_norm.var(dim=-1, unbiased=False) + trace.norm_epsilon).sqrt()[
        :, :, None, None
    ]
    normalized = (
        trace.norm_weight * (with_residual - with_residual.mean(dim=-1, keepdim=True)) / deviation
    )
    return [attention, with_residual, normalized]


def literal_decomposition(traces: Sequence[BlockTrace]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Ratios [3, B, L] and norms of the newest parts [B, P, P] of each block."""
    found = []
    for trace in traces:
        ratios, norms = [], torch.empty(0)
        for part in literal_parts(trace):
            place = torch.arange(part.shape[1])
            own = part[:, place, place]
            own_norm, other_norm = own.norm(dim=-1), (part.sum(dim=2) - own).norm(dim=-1)
            ratios.append(other_norm / (other_norm + own_norm))
            norms = part.norm(dim=-1)
        found.append((torch.stack(ratios), norms[:, -NEWEST:, -NEWEST:]))
    return found


def our_decomposition(traces: Sequence[BlockTrace]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The same from sums over sources and Gram matrices."""
    batch, length = traces[0].before_norm.shape[:2]
    start, end = torch.zeros(batch, dtype=torch.int64), torch.full((batch,), length)
    return [(mixing_ratios(trace), newest_maps(trace, start, end, NEWEST)[1]) for trace in traces]


def seconds(work: Callable[[], object], repeats: int = 1) -> float:
    """Seconds of one run, the mean of several after one to warm up."""
    if repeats > 1:
        work()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - start) / repeats


def traces_of(batch: int) -> list[BlockTrace]:
    """What both blocks did for a batch."""
    model, cases = model_of(1000), cases_of(batch, 1000)
    items, length = pad(cases, np.arange(batch), LENGTH)
    with probing(model, query="every") as traces:
        model.encode(items, length)
    return traces


def memory_of(what: str) -> float:
    """Child process: MiB that a way of decomposing 32 inputs needs above what was there
    before.
    """
    traces = traces_of(32)
    before = peak_mib()
    (literal_decomposition if what == "literal" else our_decomposition)(traces)
    return peak_mib() - before


def measure_decomposition(repeats: int) -> dict[str, float]:
    """Both ways on one batch of 32."""
    traces = traces_of(32)
    ours, literal = our_decomposition(traces), literal_decomposition(traces)
    pairs = [
        (a, b)
        for one, other in zip(ours, literal, strict=True)
        for a, b in zip(one, other, strict=True)
    ]
    if any(not torch.equal(a.isnan(), b.isnan()) for a, b in pairs):
        sys.exit("one way has no value where the other has one")
    difference = max(float((a - b).nan_to_num().abs().max()) for a, b in pairs)
    found = {
        "difference": difference,
        "literal_seconds": seconds(lambda: literal_decomposition(traces), 2),
        "seconds": seconds(lambda: our_decomposition(traces), repeats),
    }
    for name in ("literal", "ours"):
        found[f"{name}_mib"] = float(child("--memory-of", name))
    return found


def literal_ranks(model: SequenceModel, cases: HeldOut, rows: int = 1000) -> np.ndarray:
    """Rank of each target: every position projected, the catalogue sorted
    at the last.
    """
    ranks = []
    for first in range(0, len(cases), rows):
        index = np.arange(first, min(first + rows, len(cases)))
        items, length = pad(cases, index, LENGTH)
        scores = (model.encode(items, length) @ model.item_vectors().T)[
            torch.arange(len(index)), length - 1
        ]
        for row, case in enumerate(index):
            scores[
                row,
                torch.from_numpy(cases.items[cases.start[case] : cases.end[case]].astype(np.int64))
                - 1,
            ] = -torch.inf
        order = scores.argsort(dim=1, descending=True, stable=True) + 1
        wanted = torch.from_numpy(cases.target[index].astype(np.int64))[:, None]
        place = (order == wanted).int().argmax(dim=1) + 1
        ranks.append(torch.where(scores.gather(1, wanted - 1)[:, 0] == -torch.inf, 0, place))
    return torch.cat(ranks).numpy()


def measure_ranking(users: int, literal_users: int, items: int) -> dict[str, float]:
    """Ranking and sweep; the literal way on fewer users, counted up."""
    model, cases = model_of(items), cases_of(users, items)
    few = cases.select(np.arange(literal_users))
    literal = literal_ranks(model, few)
    agree = float((rank(model, few, filter_seen=True).target[:, 0] == literal).mean())
    keywords: dict[str, Any] = {"repeat": 0, "shuffle_seed": 0, "filter_seen": True}
    return {
        "users": users,
        "equal_ranks": agree,
        "literal_seconds": seconds(lambda: literal_ranks(model, few)) * users / literal_users,
        "seconds": seconds(lambda: rank(model, cases, filter_seen=True)),
        "shuffled_seconds": seconds(
            lambda: rank(
                model,
                cases,
                filter_seen=True,
                change=intervention("full", cases, model.input_length),
            )
        ),
        "sweep_seconds": seconds(
            lambda: [
                rank_scaled(
                    model, few, residual_scale=scale, order="ordered", mixing=True, **keywords
                )
                for scale in SCALES
            ]
        ),
        "plain_seconds": seconds(lambda: [rank(model, few, filter_seen=True) for _ in SCALES]),
    }


def large_catalogue(users: int, items: int) -> float:
    """Child process: what the diagnosis jobs do, one after another, on many items; MiB
    of the process at most.
    """
    model, cases = model_of(items), cases_of(users, items)
    rank(model, cases, filter_seen=True, list_length=100)
    rank_scaled(
        model,
        cases,
        residual_scale=1.0,
        order="ordered",
        repeat=0,
        shuffle_seed=0,
        filter_seen=True,
        mixing=True,
    )
    decompose(model, cases)
    return peak_mib()


def child(*arguments: str) -> str:
    """The last line of this script in a process of its own."""
    command = [sys.executable, __file__, "--threads", str(torch.get_num_threads()), *arguments]
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()[-1]


@torch.inference_mode()
def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--users", type=int, default=20_000, help="users that are ranked (default: 20,000)"
    )
    parser.add_argument(
        "--literal-users",
        type=int,
        default=1000,
        help="users that are ranked the literal way, and swept (default: 1,000)",
    )
    parser.add_argument(
        "--items", type=int, default=12_000, help="items of the catalogue (default: 12,000)"
    )
    parser.add_argument(
        "--large-items", type=int, default=150_000, help="items of the large one (default: 150,000)"
    )
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count(), help="CPU threads (default: all)"
    )
    parser.add_argument("--memory-of", choices=("literal", "ours"), help=argparse.SUPPRESS)
    parser.add_argument("--large-catalogue", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    torch.set_num_threads(arguments.threads)
    if arguments.memory_of:
        return print(memory_of(arguments.memory_of))
    if arguments.large_catalogue:
        return print(large_catalogue(arguments.users, arguments.large_items))

    print(f"{'':<44}{'literal':>12}{'here':>12}{'ratio':>10}")
    parts = measure_decomposition(repeats=20)
    parts["speedup"], parts["memory_share"] = (
        parts["literal_seconds"] / parts["seconds"],
        parts["ours_mib"] / parts["literal_mib"],
    )
    print(
        f"{'ratios and maps, 32 × 128 × 64, s':<44}{parts['literal_seconds']:>12.3f}"
        f"{parts['seconds']:>12.4f}{parts['speedup']:>9.1f}×"
    )
    print(
        f"{'  extra memory, MiB':<44}{parts['literal_mib']:>12.0f}{parts['ours_mib']:>12.0f}"
        f"{parts['memory_share']:>10.3f}",
        flush=True,
    )
    ranking = measure_ranking(arguments.users, arguments.literal_users, arguments.items)
    ranking["speedup"] = ranking["literal_seconds"] / ranking["seconds"]
    ranking["sweep_ratio"] = ranking["sweep_seconds"] / ranking["plain_seconds"]
    label = f"ranking, {arguments.users:,} × 128 × {arguments.items:,}, s"
    print(
        f"{label:<44}{ranking['literal_seconds']:>12.1f}{ranking['seconds']:>12.2f}"
        f"{ranking['speedup']:>9.1f}×"
    )
    print(f"{'  all shuffled, s':<44}{'':>12}{ranking['shuffled_seconds']:>12.2f}")
    label = f"sweep of 11 λ beside 11 rankings, {arguments.literal_users:,}, s"
    print(
        f"{label:<44}{ranking['plain_seconds']:>12.2f}{ranking['sweep_seconds']:>12.2f}"
        f"{ranking['sweep_ratio']:>10.2f}",
        flush=True,
    )
    large = float(
        child(
            "--large-catalogue",
            "--users",
            str(arguments.users),
            "--large-items",
            str(arguments.large_items),
        )
    )
    label = f"diagnosis of {arguments.users:,} × {arguments.large_items:,}, MiB"
    print(f"{label:<44}{'':>12}{large:>12,.0f}")
    figures = {
        "benchmark": "diagnostics",
        "threads": arguments.threads,
        "decomposition": parts,
        "ranking": ranking,
        "large_catalogue_mib": large,
    }
    print(json.dumps(figures))
    if parts["difference"] > 1e-5 or ranking["equal_ranks"] < 1:
        sys.exit(
            f"the two ways differ: parts by {parts['difference']:.1e},"
            f" {1 - ranking['equal_ranks']:.1%} of the ranks"
        )


if __name__ == "__main__":
    main()
