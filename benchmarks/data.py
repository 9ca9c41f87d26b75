"""Time and memory of core filter + encoding + global temporal split, against the same
steps written literally with pandas.

A log with a heavy tail of users and items is generated into a Parquet file. Each way
then runs in a process of its own: it reads the file, filters to the 5-core, encodes and
splits. The seconds of the three steps and the largest resident memory of the process
are compared, and both must give the same sequences, thresholds and targets. A log too
large for pandas is compared, per event, with one of 10 million events of the same users
and items instead.

    python benchmarks/data.py --events 8_000_000 --users 20_000 --items 150_000
    python benchmarks/data.py --events 100_000_000

The last line is one JSON object with all figures.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from memory import peak_mib

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

MINIMUM_EVENTS, QUANTILE = 5, 0.9
LARGEST_FOR_PANDAS = 20_000_000
REFERENCE_EVENTS = 10_000_000
COLUMNS = {"user": "user_id", "item": "item_id", "timestamp": "timestamp"}
_CHUNK = 4_000_000


def generate(path: Path, events: int, users: int, items: int, seed: int) -> None:
    """Write a log in random order: user and item frequencies fall off as a power of the
    rank, times cover 400 days.
    """
    random = np.random.default_rng(seed)
    # Popular ids are spread over the whole range, as they are in a real log.
    spread = {
        name: random.permutation(count) for name, count in (("user_id", users), ("item_id", items))
    }
    schema = pa.schema([(name, pa.int64()) for name in ("user_id", "item_id", "timestamp")])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, events, _CHUNK):
            count = min(_CHUNK, events - start)
            columns = {
                "user_id": spread["user_id"][(users * random.random(count) ** 2).astype(np.int64)],
                "item_id": spread["item_id"][(items * random.random(count) ** 3).astype(np.int64)],
                "timestamp": 1_500_000_000 + random.integers(0, 400 * 86_400, count),
            }
            writer.write_table(pa.table(columns, schema=schema))


def run_lastitem(path: Path, clock: Callable[[str], None]) -> dict[str, Any]:
    """The project's way: ids are encoded while the file streams in."""
    from lastitem.data.core import core_filter
    from lastitem.data.interactions import read_interactions
    from lastitem.data.readers.reading import read_rows
    from lastitem.data.readers.rows import BadRows
    from lastitem.data.splits import global_temporal_split, part_table, target_positions

    clock("start")
    form = {"format": "parquet", "columns": COLUMNS}
    log = read_interactions(path, form)
    clock("read")
    core = core_filter(log, minimum_events=MINIMUM_EVENTS)
    del log
    clock("core and encoding")
    offsets = core.offsets
    split = global_temporal_split(offsets, core.timestamp, quantile=QUANTILE)
    parts = {"train": part_table(core.item, core.timestamp, offsets, split.train.length)}
    for name, part in (("validation", split.validation), ("test", split.test)):
        users, positions, _ = target_positions(part, "last", 0)
        length = np.zeros(len(part.length), dtype=np.int64)
        length[users] = part.length[users]
        parts[name] = part_table(
            core.item,
            core.timestamp,
            offsets,
            length,
            (users, positions, core.tied[offsets[users] + positions]),
        )
    clock("split")
    # What of the reading is decoding the file, which pandas does apart from its steps.
    for _ in read_rows(path, form, BadRows()):
        pass
    clock("decoding alone")
    return {
        "thresholds": split.thresholds,
        **{
            name: _digest(*_lists(table["user"], table["items"], table["timestamps"]))
            for name, table in parts.items()
        },
    }


def run_pandas(path: Path, clock: Callable[[str], None]) -> dict[str, Any]:
    """The literal way: sort, shift, value_counts, isin, groupby."""
    import pandas as pd

    clock("start")
    log = pd.read_parquet(path)
    clock("read")

    def without_repeats(log: pd.DataFrame) -> pd.DataFrame:
        return log[
            (log["user_id"] != log["user_id"].shift()) | (log["item_id"] != log["item_id"].shift())
        ]

    log = without_repeats(log.sort_values(["user_id", "timestamp"], kind="stable"))
    while True:
        before = len(log)
        for column in ("user_id", "item_id"):
            counts = log[column].value_counts()
            log = log[log[column].isin(counts.index[counts >= MINIMUM_EVENTS])]
        log = without_repeats(log)
        if len(log) == before:
            break
    log = log.assign(
        user=log["user_id"].map(
            {id_: code for code, id_ in enumerate(sorted(log["user_id"].unique()))}
        ),
        item=log["item_id"].map(
            {id_: code for code, id_ in enumerate(sorted(log["item_id"].unique()), start=1)}
        ),
    )[["user", "item", "timestamp"]]
    clock("core and encoding")

    def split_at_quantile(log: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, float]:
        threshold = log["timestamp"].quantile(QUANTILE)
        by_user = log.groupby("user")["timestamp"]
        second = log[by_user.cumcount() == 1].set_index("user")["timestamp"]
        last = by_user.last()
        early = log[
            log["user"].isin(second.index[second <= threshold]) & (log["timestamp"] <= threshold)
        ]
        return early, log[log["user"].isin(last.index[last > threshold])], threshold

    early, test, test_threshold = split_at_quantile(log)
    train, validation, validation_threshold = split_at_quantile(early)
    # A sequence of one event holds no history to predict its event from.
    parts = {
        name: part[part.groupby("user")["item"].transform("size") > 1]
        for name, part in (("validation", validation), ("test", test))
    }
    rows = {
        name: part.groupby("user").agg(list) for name, part in {"train": train, **parts}.items()
    }
    clock("split")
    return {
        "thresholds": {"test": float(test_threshold), "validation": float(validation_threshold)},
        **{
            name: _digest(
                *_lists(
                    *(
                        pa.chunked_array([pa.array(column)])
                        for column in (part.index, part["item"], part["timestamp"])
                    )
                )
            )
            for name, part in rows.items()
        },
    }


def _lists(
    users: pa.ChunkedArray, items: pa.ChunkedArray, times: pa.ChunkedArray
) -> list[np.ndarray]:
    import pyarrow.compute as pc

    return [
        users.to_numpy(),
        pc.list_value_length(items).to_numpy(),
        pc.list_flatten(items).to_numpy(),
        pc.list_flatten(times).to_numpy(),
    ]


def _digest(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype=np.int64))
    return digest.hexdigest()


def measure(way: str, path: Path) -> dict[str, Any]:
    """Run one way in a process of its own; returns seconds by step, peak memory (MiB)
    and digests of the outputs.
    """
    command = [sys.executable, __file__, "--run", way, "--log", str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def run_here(way: str, path: Path) -> None:
    """The child process: print what :func:`measure` reads."""
    marks: dict[str, float] = {}
    memory: dict[str, float] = {}

    def clock(step: str) -> None:
        marks[step] = time.perf_counter()
        memory[step] = peak_mib()

    outputs = {"lastitem": run_lastitem, "pandas": run_pandas}[way](path, clock)
    steps = list(marks)
    seconds = {step: marks[step] - marks[before] for before, step in itertools.pairwise(steps)}
    decoding = seconds.pop("decoding alone", seconds["read"])
    print(
        json.dumps(
            {
                "seconds": seconds,
                "decoding_seconds": decoding,
                "peak_mib": max(memory.values()),
                "imports_mib": memory["start"],
                "outputs": outputs,
            }
        )
    )


def row(name: str, events: int, found: dict[str, Any]) -> str:
    """One line of the printed table."""
    seconds = found["seconds"]
    total = sum(seconds.values())
    steps = "".join(f"{value:>20.2f}" for value in seconds.values())
    return (
        f"{name:<26}{steps}{total:>10.2f}{events / total / 1e6:>14.2f}{found['peak_mib']:>12,.0f}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, generate, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--events", type=int, default=8_000_000, help="rows of the log (default: 8,000,000)"
    )
    parser.add_argument(
        "--users", type=int, default=200_000, help="distinct users (default: 200,000)"
    )
    parser.add_argument(
        "--items", type=int, default=500_000, help="distinct items (default: 500,000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the generated log")
    parser.add_argument(
        "--repeats",
        type=int,
        default=3,
        help="runs of each way; the fastest one counts (default: 3)",
    )
    parser.add_argument(
        "--folder",
        help=(
            "where the generated log goes for the time of the run (24 bytes an event at most);"
            " default: the system's"
        ),
    )
    parser.add_argument("--run", choices=["lastitem", "pandas"], help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.run:
        return run_here(arguments.run, arguments.log)

    users, items = arguments.users, arguments.items
    with_pandas = arguments.events <= LARGEST_FOR_PANDAS
    other_run = ("pandas", arguments.events) if with_pandas else ("lastitem", REFERENCE_EVENTS)
    runs = [("lastitem", arguments.events), other_run]
    print(
        f"{'':<26}{'read, number ids, s':>20}{'core, encoding, s':>20}{'split, s':>20}"
        f"{'total, s':>10}{'M events/s':>14}{'peak, MiB':>12}"
    )
    measured = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        log = Path(folder) / "log.parquet"
        generated = 0
        for way, events in runs:
            if generated != events:
                generate(log, events, users, items, arguments.seed)
                generated = events
            found = [measure(way, log) for _ in range(arguments.repeats)]
            # The fastest run is the least disturbed one; the largest memory is the one
            # to plan for.
            fastest = min(found, key=lambda run: sum(run["seconds"].values()))
            measured.append(fastest | {"peak_mib": max(run["peak_mib"] for run in found)})
            print(row(f"{way}, {events:,}", events, measured[-1]), flush=True)
    ours, other = measured
    figures: dict[str, Any] = {
        "benchmark": "data",
        "events": arguments.events,
        "users": users,
        "items": items,
        "seed": arguments.seed,
        "repeats": arguments.repeats,
    }
    totals = [sum(found["seconds"].values()) for found in measured]
    # Numbering the ids happens while the file is read, and is part of encoding: only
    # the decoding is taken off.
    steps = [
        total - found["decoding_seconds"] for total, found in zip(totals, measured, strict=True)
    ]
    figures |= {
        "seconds": ours["seconds"],
        "decoding_seconds": ours["decoding_seconds"],
        "peak_mib": ours["peak_mib"],
        "events_per_second": arguments.events / totals[0],
    }
    if with_pandas:
        figures |= {
            "pandas_seconds": other["seconds"],
            "pandas_peak_mib": other["peak_mib"],
            "speedup": steps[1] / steps[0],
            "speedup_with_decoding": totals[1] / totals[0],
            "memory_ratio": ours["peak_mib"] / other["peak_mib"],
            "equal_outputs": ours["outputs"] == other["outputs"],
        }
        print(
            f"core, encoding and split {figures['speedup']:.1f} times faster"
            f" ({figures['speedup_with_decoding']:.1f} with decoding the file),"
            f" {figures['memory_ratio']:.2f} of the peak memory, outputs equal:"
            f" {figures['equal_outputs']}"
        )
    else:
        figures |= {
            "reference_events": REFERENCE_EVENTS,
            "reference_seconds": other["seconds"],
            "reference_peak_mib": other["peak_mib"],
            "seconds_per_event_ratio": (
                (totals[0] / arguments.events) / (totals[1] / REFERENCE_EVENTS)
            ),
        }
        print(
            f"{figures['seconds_per_event_ratio']:.2f} times the seconds per event of the run with"
            f" {REFERENCE_EVENTS:,} events"
        )
    print(json.dumps(figures))
    if with_pandas and not figures["equal_outputs"]:
        sys.exit("the two ways disagree")


if __name__ == "__main__":
    main()
