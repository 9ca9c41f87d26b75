"""Fetch a raw log from the first of its sources that works, and note where it came
from.
"""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lastitem.data.download.local_files import FINGERPRINTS
from lastitem.data.download.sources import fetch_first, keep, take_kept
from lastitem.errors import run
from lastitem.files import write_json


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, fetch, write the file and its provenance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True, help="name for messages")
    parser.add_argument(
        "--sources",
        required=True,
        type=_read_json,
        help=(
            "JSON: name → {url | share | package | by_hand | path | generated, …}; local files"
            " first, the others in this order"
        ),
    )
    parser.add_argument("--licence", help="terms of the data, said before a download")
    parser.add_argument(
        "--fingerprints",
        type=_read_json,
        default={},
        help="JSON: local file → its state, noted beside the output",
    )
    parser.add_argument(
        "--kept",
        choices=("true", "false"),
        default="false",
        help="take what was fetched before, if it still fits",
    )
    parser.add_argument(
        "--out", required=True, type=Path, help="where the file goes, as it was served"
    )
    parser.add_argument("--provenance", required=True, help="JSON: source, address, bytes, sha256")
    arguments = parser.parse_args(argv)
    fetched = arguments.dataset, arguments.sources, arguments.out
    found = take_kept(*fetched, arguments.fingerprints) if arguments.kept == "true" else None
    if found is None:
        found = fetch_first(*fetched, arguments.licence)
        keep(arguments.out, found, arguments.fingerprints)
    write_json(arguments.out.with_name(FINGERPRINTS), arguments.fingerprints)
    write_json(arguments.provenance, found)


def _read_json(text: str) -> dict[str, Any]:
    try:
        # Bytes as they were given: in the C locale Python takes é in an argument for
        # two broken characters.
        return json.loads(os.fsencode(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON ({error})") from None


if __name__ == "__main__":
    run(main)
