"""Shuffle the history at inference: all items but the last (partial), or all (full), several times each."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from lastitem import diagnosis
from lastitem.errors import run
from lastitem.ranking import rank
from lastitem.runs import Run, write_run_table
from lastitem.sequences import read_held_out
from lastitem.shuffling import ORDERS, reorder


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, rank under each order, write one row per case, order and repeat."""
    parser = argparse.ArgumentParser(description=__doc__)
    diagnosis.add_arguments(parser)
    parser.add_argument("--filter-seen", required=True, choices=("true", "false"), help="leave seen items out of the lists")
    parser.add_argument("--repeats", required=True, type=int, help="shuffles of each kind")
    parser.add_argument("--shuffle-seed", type=int, default=0, help="with user and repeat decides each permutation")
    parser.add_argument("--out", required=True, help="output (Parquet)")
    arguments = parser.parse_args(argv)

    model = diagnosis.prepare(arguments)
    cases = read_held_out(arguments.test)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("case", "user", "order", "repeat", "target_rank", "unchanged")}
    for order in ORDERS:
        for repeat in range(1 if order == "ordered" else arguments.repeats):
            found = rank(
                model,
                cases,
                filter_seen=arguments.filter_seen == "true",
                reorder=reorder(order, arguments.shuffle_seed, repeat),
                device=arguments.device,
            )
            parts["case"].append(np.arange(len(cases), dtype=np.int32))
            parts["user"].append(cases.user)
            parts["order"].append(np.full(len(cases), order))
            parts["repeat"].append(np.full(len(cases), repeat, dtype=np.int32))
            parts["target_rank"].append(found.target[:, 0])
            parts["unchanged"].append(found.unchanged)
    columns = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    write_run_table(arguments.out, Run.from_arguments(arguments), columns)


if __name__ == "__main__":
    run(main)
