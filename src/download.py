"""Fetch a raw log from the first of its sources that works, and note where it came from."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from lastitem.downloading import fetch_first
from lastitem.errors import run
from lastitem.files import write_json


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, fetch, write the file and its provenance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", required=True, help="name for messages")
    parser.add_argument(
        "--sources",
        required=True,
        type=json.loads,
        help="JSON: name → {url | package | path, bytes, sha256}, tried in this order",
    )
    parser.add_argument("--out", required=True, help="where the file goes, as it was served")
    parser.add_argument("--provenance", required=True, help="JSON: source, address, bytes, sha256")
    arguments = parser.parse_args(argv)
    write_json(arguments.provenance, fetch_first(arguments.dataset, arguments.sources, arguments.out))


if __name__ == "__main__":
    run(main)
