"""Put the study on one page that opens from disk: answers, warnings, figures, tables,
settings and versions.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import yaml

from lastitem import __version__
from lastitem.errors import run
from lastitem.files import read_json, write_aside
from lastitem.report import page
from lastitem.report.tables import read_csv


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, read what was made, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tables", required=True, nargs="+", help="Markdown of each table; its CSV lies beside it"
    )
    parser.add_argument(
        "--figures", required=True, nargs="+", help="PNG of each figure; its CSV lies beside it"
    )
    parser.add_argument(
        "--titles", required=True, type=json.loads, help="JSON: name of a figure → what it shows"
    )
    parser.add_argument("--captions", required=True, help="folder with a text for each figure")
    parser.add_argument(
        "--descriptions",
        required=True,
        nargs="+",
        help="model.json of each run: the versions it was trained with",
    )
    parser.add_argument("--settings", required=True, type=json.loads, help="JSON: the config")
    parser.add_argument("--out", required=True, help="output (HTML)")
    arguments = parser.parse_args(argv)

    tables = {Path(path).stem: Path(path) for path in arguments.tables}
    figures = {Path(path).stem: Path(path) for path in arguments.figures}
    effects, rates = (read_csv(figures[name].with_suffix(".csv")) for name in ("fig1", "fig2"))
    statistics, accuracy = (
        read_csv(tables[name].with_suffix(".csv")) for name in ("table1", "table2")
    )
    trained = [read_json(path)["versions"] for path in arguments.descriptions]
    html = page.make(
        found=list(page.answers(effects, rates, arguments.settings["headline_cutoff"])),
        notes=[*page.warnings(statistics, accuracy), *page.version_warnings(trained)],
        figures=[
            page.figure_of(
                path, Path(arguments.captions) / f"{name}.rst", f"{name}: {arguments.titles[name]}"
            )
            for name, path in figures.items()
        ],
        tables=[page.read_table(path) for path in tables.values()],
        settings=yaml.safe_dump(arguments.settings, allow_unicode=True, sort_keys=False),
        trained=page.versions_of(trained),
        versions={
            "lastitem": __version__,
            "Python": platform.python_version(),
            **{name: version(name) for name in ("torch", "snakemake", "numpy")},
        },
    )
    with write_aside(arguments.out) as aside:
        aside.write_text(html, encoding="utf-8")


if __name__ == "__main__":
    run(main)
