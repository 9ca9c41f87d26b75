"""Scale the attention residual at inference, λ = 0 … 1: ranks, last-item ranks, shuffles, recovery and mixing for each λ."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from lastitem import diagnosis
from lastitem.decomposition import PARTS, decompose
from lastitem.errors import run
from lastitem.ranking import rank
from lastitem.rescaling import READOUT_OFFSETS
from lastitem.runs import Run, write_run_table
from lastitem.sequences import read_held_out
from lastitem.shuffling import ORDERS, reorder

NO_ATTENTION = "no attention block"


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, sweep λ over validation and test, write ranks and mixing ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    diagnosis.add_arguments(parser)
    parser.add_argument("--validation", required=True, help="validation part (Parquet): λ is chosen on it")
    parser.add_argument("--filter-seen", required=True, choices=("true", "false"), help="leave seen items out of the lists")
    parser.add_argument("--scales", required=True, nargs="+", help="the grid of λ; holds 1")
    parser.add_argument("--repeats", required=True, type=int, help="shuffles of each kind")
    parser.add_argument("--shuffle-seed", type=int, default=0, help="with user and repeat decides each permutation")
    parser.add_argument("--ranks", required=True, help="output: a row per part, λ, order, repeat and case (Parquet)")
    parser.add_argument("--mixing", required=True, help="output: mixing ratios of each user by λ (Parquet)")
    arguments = parser.parse_args(argv)

    this = Run.from_arguments(arguments)
    model = diagnosis.prepare(arguments)
    if not model.has_attention:
        for path in (arguments.ranks, arguments.mixing):
            write_run_table(path, this, {}, note=NO_ATTENTION)
        return

    ranks: list[dict[str, np.ndarray]] = []
    mixing: list[dict[str, np.ndarray]] = []
    for part in ("validation", "test"):
        cases = read_held_out(getattr(arguments, part))
        for scale in map(float, arguments.scales):
            for order in ORDERS if part == "test" else ("ordered",):
                for repeat in range(1 if order == "ordered" else arguments.repeats):
                    # Recovery is fixed at λ = 1; only a model that reads prefixes has earlier predictions to go back to.
                    going_back = model.reads_prefixes and scale == 1.0 and order == "ordered"
                    found = rank(
                        model,
                        cases,
                        filter_seen=arguments.filter_seen == "true",
                        residual_scale=scale,
                        offsets=READOUT_OFFSETS if going_back else (0,),
                        reorder=reorder(order, arguments.shuffle_seed, repeat),
                        device=arguments.device,
                    )
                    rows = {
                        "part": np.full(len(cases), part),
                        "residual_scale": np.full(len(cases), scale),
                        "order": np.full(len(cases), order),
                        "repeat": np.full(len(cases), repeat, dtype=np.int32),
                        "case": np.arange(len(cases), dtype=np.int32),
                        "user": cases.user,
                        "target_rank": found.target[:, 0],
                        "last_rank": found.last,
                        "last_but_one_rank": found.last_but_one,
                    }
                    for offset in READOUT_OFFSETS[1:]:
                        back = found.target[:, offset] if going_back else np.full(len(cases), -1, dtype=np.int32)
                        rows[f"target_rank_back_{offset}"] = back
                    ranks.append(rows)
            if part == "test":
                parts = decompose(model, cases, residual_scale=scale, map_positions=0, device=arguments.device)
                shape = parts.latest.shape
                mixing.append(
                    {
                        "residual_scale": np.full(parts.latest.size, scale),
                        "user": np.repeat(parts.user, shape[1] * shape[2]),
                        "layer": np.broadcast_to(np.arange(1, shape[1] + 1)[None, :, None], shape).ravel(),
                        "part": np.broadcast_to(np.array(PARTS)[None, None, :], shape).ravel(),
                        "latest": parts.latest.ravel(),
                    }
                )
            print(f"{part}: residual scale {scale:g} done", flush=True)
    for path, tables in ((arguments.ranks, ranks), (arguments.mixing, mixing)):
        write_run_table(path, this, {name: np.concatenate([rows[name] for rows in tables]) for name in tables[0]})


if __name__ == "__main__":
    run(main)
