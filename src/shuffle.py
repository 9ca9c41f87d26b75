"""Shuffle the history at inference: all items but the last (partial), or all (full),
several times each.
"""

from collections.abc import Sequence

import numpy as np
from tqdm import tqdm

from lastitem import device
from lastitem.arguments import (
    add_seen_filter,
    add_shuffles,
    add_trained_model,
    filters_seen,
    parser_of,
    run_of,
)
from lastitem.data.sequences import read_held_out
from lastitem.errors import run
from lastitem.evaluation.ranking import rank
from lastitem.evaluation.shuffling import orders_and_repeats, reorder
from lastitem.models.registry import load
from lastitem.study.runs import stack, write_run_table


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, rank under each order, write one row per case,
    order and repeat.
    """
    parser = parser_of(
        __doc__, add_trained_model, add_seen_filter, add_shuffles, out="output (Parquet)"
    )
    arguments = parser.parse_args(argv)

    place = device.configure(arguments.device, arguments.threads)
    model = load(arguments.weights, arguments.description)[0].to(place)
    cases = read_held_out(arguments.test)
    tables = []
    for order, repeat in tqdm(
        orders_and_repeats(arguments.repeats), desc="shuffle", unit="ranking", disable=None
    ):
        found = rank(
            model,
            cases,
            filter_seen=filters_seen(arguments),
            reorder=reorder(order, arguments.shuffle_seed, repeat),
            device=place,
        )
        tables.append(
            {
                "case": np.arange(len(cases), dtype=np.int32),
                "user": cases.user,
                "order": order,
                "repeat": np.int32(repeat),
                "target_rank": found.target[:, 0],
                "unchanged": found.unchanged,
            }
        )
    write_run_table(arguments.out, run_of(arguments), stack(tables))


if __name__ == "__main__":
    run(main)
