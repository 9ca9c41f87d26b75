"""Make a summary of a study, of the files of its runs or of other summaries."""

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lastitem import __version__
from lastitem.arguments import add_files, add_study, function_in
from lastitem.errors import run
from lastitem.files import read_json
from lastitem.report import summaries
from lastitem.report.pooling import Bootstrap
from lastitem.study.runs import (
    Rows,
    RunTables,
    Stamp,
    made_with,
    read_run_tables,
    read_summary,
    read_user_ids,
    write_summary,
)


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, read, summarize, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("summary", type=function_in(summaries), help="its function")
    add_files(
        parser,
        "+",
        inputs="what it is made of, in the order of its function: summaries, and files of each run"
        " or dataset, told apart by their names; model.json tells the versions of the trainings",
    )
    add_study(parser)
    add_files(parser, out="output (Parquet)")
    arguments = parser.parse_args(argv)

    read: dict[str, Any] = {}
    for name, group in itertools.groupby(arguments.inputs, lambda path: Path(path).name):
        paths = list(group)
        if name.endswith(".json"):
            read[name] = [read_json(path) for path in paths]
        elif name == "users.parquet":
            # Datasets are named in the order of their runs, and so are their users.
            datasets = list(dict.fromkeys(read["ranks.parquet"].rows["dataset"]))
            read[name] = read_user_ids(datasets, paths)
        elif name == "interventions.parquet":
            read[name] = RunTables(paths)
        elif Path(paths[0]).parent.name == "summaries":
            read[name] = read_summary(paths[0], arguments.studies)
        else:
            read[name] = read_run_tables(paths)
    trained = (description["versions"] for description in read.pop("model.json", ()))
    if "bootstrap" in arguments.settings:
        arguments.settings["bootstrap"] = Bootstrap(**arguments.settings["bootstrap"])
    tables = [found for found in read.values() if isinstance(found, Rows | RunTables)]
    frames = [found.rows if isinstance(found, Rows) else found for found in read.values()]
    rows = arguments.summary(*frames, **arguments.settings)

    here = {"lastitem": __version__, "numpy": np.__version__, "pandas": pd.__version__}
    versions = [*(made_with("trained", known) for known in trained), made_with("made", here)]
    stamp = Stamp.joined(arguments.study, [found.stamp for found in tables], versions)
    missing = list(dict.fromkeys(entry for found in tables for entry in found.missing))
    write_summary(arguments.out, Rows(rows, missing, stamp))


if __name__ == "__main__":
    run(main)
