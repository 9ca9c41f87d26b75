"""Split a filtered log into training, validation and test parts, one row per user."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from lastitem.data.splits import (
    SPLITS,
    TARGETS,
    VALIDATION_KINDS,
    global_temporal_split,
    leave_one_out,
    part_table,
    target_positions,
)
from lastitem.errors import InputError, run
from lastitem.files import read_parquet, write_json, write_parquet


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, split, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interactions", required=True, help="Parquet written by core_filter.py")
    parser.add_argument(
        "--kind",
        required=True,
        choices=SPLITS,
        help="gts: global temporal split; loo: leave-one-out",
    )
    parser.add_argument(
        "--quantile",
        type=float,
        default=0.9,
        help="gts: share of the timestamps before the threshold",
    )
    parser.add_argument(
        "--validation-kind",
        choices=VALIDATION_KINDS,
        default="by_time",
        help="gts: how validation is cut",
    )
    parser.add_argument(
        "--validation-users", type=int, default=1024, help="gts with by_user: users held out"
    )
    parser.add_argument(
        "--target", choices=TARGETS, default="last", help="which held-out events are predicted"
    )
    parser.add_argument("--seed", type=int, default=0, help="of by_user and of --target random")
    parser.add_argument("--train", required=True, help="output (Parquet)")
    parser.add_argument("--validation", required=True, help="output (Parquet)")
    parser.add_argument("--test", required=True, help="output (Parquet)")
    parser.add_argument("--counts", required=True, help="output: thresholds and counts (JSON)")
    arguments = parser.parse_args(argv)

    table = read_parquet(arguments.interactions)
    user, item, timestamp, tied = (
        table[column].to_numpy() for column in ("user", "item", "timestamp", "tied")
    )
    offsets = np.concatenate(([0], np.cumsum(np.bincount(user))))
    if arguments.kind == "loo":
        split = leave_one_out(offsets)
    else:
        split = global_temporal_split(
            offsets,
            timestamp,
            quantile=arguments.quantile,
            validation=arguments.validation_kind,
            validation_users=arguments.validation_users,
            seed=arguments.seed,
        )
    counts: dict[str, Any] = {
        "kind": arguments.kind,
        "target": arguments.target,
        "thresholds": split.thresholds,
    }
    counts["train"] = {
        "users": int((split.train.length > 0).sum()),
        "events": int(split.train.length.sum()),
    }
    if not (split.train.length >= 2).any():
        raise InputError(
            f"{arguments.interactions}: under {arguments.kind} no user has two training events; use"
            " the other split or a larger log"
        )
    write_parquet(arguments.train, part_table(item, timestamp, offsets, split.train.length))
    for name, part, path in (
        ("validation", split.validation, arguments.validation),
        ("test", split.test, arguments.test),
    ):
        users, positions, without_history = target_positions(part, arguments.target, arguments.seed)
        if not len(users):
            raise InputError(
                f"{arguments.interactions}: under {arguments.kind} the {name} part holds no target;"
                " use the other split or a larger log"
            )
        length = np.where(np.isin(np.arange(len(part.length)), users), part.length, 0)
        targets = (users, positions, tied[offsets[users] + positions])
        write_parquet(path, part_table(item, timestamp, offsets, length, targets))
        counts[name] = {
            "users": len(np.unique(users)),
            "targets": len(users),
            "targets_without_history": without_history,
            "events": int(length.sum()),
        }
    if arguments.kind == "loo":
        print(
            "note: leave-one-out lets training see events that happened after other users' targets;"
            " gts does not"
        )
    write_json(arguments.counts, counts)
    for name, threshold in split.thresholds.items():
        print(
            f"{arguments.kind}: {name} begins after"
            f" {datetime.fromtimestamp(threshold, UTC):%Y-%m-%d %H:%M:%S} UTC"
        )
    for name in ("train", "validation", "test"):
        print(
            f"{arguments.kind}: {name}: "
            + ", ".join(f"{key.replace('_', ' ')} {value:,}" for key, value in counts[name].items())
        )


if __name__ == "__main__":
    run(main)
