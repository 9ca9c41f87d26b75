"""Split a filtered log into training, validation and test parts, one row per user."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime

from lastitem.data.core import offsets_of
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
    arguments = _parse(argv)
    table = read_parquet(arguments.interactions)
    user, item, timestamp, tied = (
        table[column].to_numpy() for column in ("user", "item", "timestamp", "tied")
    )
    offsets = offsets_of(user)
    if arguments.kind == "loo":
        split = leave_one_out(offsets)
        print(
            "note: leave-one-out lets training see events that happened after other users' targets;"
            " gts does not"
        )
    else:
        split = global_temporal_split(
            offsets,
            timestamp,
            quantile=arguments.quantile,
            validation=arguments.validation_kind,
            validation_users=arguments.validation_users,
            seed=arguments.seed,
        )
    if not (split.train.length >= 2).any():
        raise _unusable(arguments, "no user has two training events")
    write_parquet(arguments.train, part_table(item, timestamp, offsets, split.train.length))
    counts = {"train": {"users": split.train.users, "events": split.train.events}}
    for name, part in (("validation", split.validation), ("test", split.test)):
        users, positions, without_history = target_positions(part, arguments.target, arguments.seed)
        if not len(users):
            raise _unusable(arguments, f"the {name} part holds no target")
        part = part.of_users(users)
        targets = (users, positions, tied[offsets[users] + positions])
        table = part_table(item, timestamp, offsets, part.length, targets)
        write_parquet(getattr(arguments, name), table)
        counts[name] = {
            "users": part.users,
            "targets": len(users),
            "targets_without_history": without_history,
            "events": part.events,
        }
    about = {"kind": arguments.kind, "target": arguments.target, "thresholds": split.thresholds}
    write_json(arguments.counts, about | counts)
    for name, threshold in split.thresholds.items():
        begin = datetime.fromtimestamp(threshold, UTC)
        print(f"{arguments.kind}: {name} begins after {begin:%Y-%m-%d %H:%M:%S} UTC")
    for name, found in counts.items():
        said = ", ".join(f"{key.replace('_', ' ')} {value:,}" for key, value in found.items())
        print(f"{arguments.kind}: {name}: {said}")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, text in (
        ("interactions", "Parquet written by core_filter.py"),
        ("train", "output (Parquet)"),
        ("validation", "output (Parquet)"),
        ("test", "output (Parquet)"),
        ("counts", "output: thresholds and counts (JSON)"),
    ):
        parser.add_argument(f"--{name}", required=True, help=text)
    parser.add_argument(
        "--kind",
        required=True,
        choices=SPLITS,
        help="gts: global temporal split; loo: leave-one-out",
    )
    parser.add_argument(
        "--quantile", type=float, default=0.9, help="gts: share of times before the threshold"
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
    return parser.parse_args(argv)


def _unusable(arguments: argparse.Namespace, fault: str) -> InputError:
    return InputError(
        f"{arguments.interactions}: under {arguments.kind} {fault}; use the other split or a larger"
        " log"
    )


if __name__ == "__main__":
    run(main)
