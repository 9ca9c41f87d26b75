"""Put the study on one page that opens from disk: answers, warnings, figures, tables,
settings and versions.
"""

import argparse
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import yaml

from lastitem import __version__
from lastitem.arguments import add_files, add_study
from lastitem.errors import run
from lastitem.files import read_json, write_aside
from lastitem.report import answers, page
from lastitem.study.config import unused_settings


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, read what was made, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_files(
        parser,
        "+",
        tables="JSON of each table; its CSV lies beside it",
        figures="SVG of each figure; its CSV lies beside it",
        titles="what each figure shows",
        captions="a text for each figure",
        descriptions="model.json of each run: how it was trained, and with which versions",
    )
    parser.add_argument("--folded", nargs="*", default=[], help="names of what is shown folded")
    add_study(parser)
    add_files(parser, out="output (HTML)")
    arguments = parser.parse_args(argv)

    studies, settings = arguments.studies, arguments.settings
    figures = [Path(path) for path in arguments.figures]
    facts = {
        path.stem: page.read_facts(path.with_suffix(".csv"), studies)
        for path in (*map(Path, arguments.tables), *figures)
    }
    descriptions = [read_json(path) for path in arguments.descriptions]
    trained = [description["versions"] for description in descriptions]
    notes = [
        *answers.warnings(facts["table1"], facts["table2"], facts["worths"]),
        *answers.choice_warnings(facts["table4"]),
        *answers.training_warnings(descriptions),
        *unused_settings(settings),
        *answers.version_warnings(trained),
    ]
    for note in notes:
        print(f"warning: {note}")
    html = page.make(
        found=list(
            answers.answers(facts["worths"], settings["models"], settings["headline_cutoff"])
        ),
        notes=notes,
        figures=[
            page.figure_of(path, caption, f"{path.stem}: {title}", path.stem in arguments.folded)
            for path, caption, title in zip(
                figures, arguments.captions, arguments.titles, strict=True
            )
        ],
        tables=[
            page.read_layout(path, studies, arguments.folded, facts[Path(path).stem])
            for path in arguments.tables
        ],
        settings=yaml.safe_dump(settings, allow_unicode=True, sort_keys=False),
        trained=answers.versions_of(trained),
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
