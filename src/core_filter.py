"""Read a raw log, reduce it to its p-core, encode users and items, and count what was
read, dropped and kept.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from lastitem.data.core import TIE_ORDERS, core_filter, describe, statistics, write_core
from lastitem.data.interactions import raw_counts, read_interactions
from lastitem.errors import InputError, run
from lastitem.files import read_json, write_json


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, read, filter, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, text in (
        ("dataset", "name for messages and tables"),
        ("log", "the raw log as it was downloaded"),
        ("provenance", "JSON written by download.py; names the source"),
        ("interactions", "output: user, item, timestamp (Parquet)"),
        ("users", "output: user code → original id (Parquet)"),
        ("items", "output: item code → original id (Parquet)"),
        ("statistics", "output: counts and the row of Table 1 (JSON)"),
    ):
        parser.add_argument(f"--{name}", required=True, help=text)
    parser.add_argument(
        "--sources",
        required=True,
        type=json.loads,
        help="JSON: source → {form: how its file is read}",
    )
    parser.add_argument("--minimum-events", required=True, type=int, help="p of the p-core")
    parser.add_argument(
        "--ties", required=True, choices=TIE_ORDERS, help="order of a user's events with equal time"
    )
    parser.add_argument("--seed", type=int, default=0, help="of --ties random")
    arguments = parser.parse_args(argv)

    provenance = read_json(arguments.provenance)
    source = provenance["source"]
    where = f"{arguments.dataset}, source {source!r} ({provenance['address']})"
    if source not in arguments.sources:
        raise InputError(
            f"{where}: the config has no such source any more; found:"
            f" {', '.join(arguments.sources)}. Delete {arguments.log} to have it fetched anew"
        )
    try:
        log = read_interactions(arguments.log, arguments.sources[source]["form"])
    except InputError as error:
        registry = f"registry.{arguments.dataset}"
        raise InputError(
            f"{where}: {error}\nHow the file is read stands in the config under {registry} (under"
            f" {registry}.sources.{source}.form, where it lists sources); if it is not the log at"
            f" all, delete {Path(arguments.log).parent}"
        ) from None
    try:
        core = core_filter(
            log, minimum_events=arguments.minimum_events, ties=arguments.ties, seed=arguments.seed
        )
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    write_core(core, arguments.interactions, arguments.users, arguments.items)
    counts = {
        "dataset": arguments.dataset,
        "raw": raw_counts(log),
        "minimum_events": arguments.minimum_events,
        "ties": arguments.ties,
        "rounds": core.rounds,
        "core": statistics(core),
        "provenance": provenance,
    }
    write_json(arguments.statistics, counts)
    print(describe(counts))


if __name__ == "__main__":
    run(main)
