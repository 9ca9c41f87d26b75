"""Make one of the tables of a study from its summaries: CSV (tidy), Markdown, LaTeX and
JSON.
"""

import argparse
from collections.abc import Sequence

from lastitem.arguments import add_shown
from lastitem.errors import run
from lastitem.report import tables
from lastitem.report.table import write
from lastitem.study.runs import Stamp, read_csv, read_summary


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, make the table, write it in every form asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_shown(parser, tables, ".csv, .md, .tex or .json")
    arguments = parser.parse_args(argv)

    summaries = [read_summary(path, arguments.studies) for path in arguments.summaries]
    published = [read_csv(path) for path in arguments.published]
    table = arguments.function(*summaries, *published, **arguments.settings)
    stamp = Stamp.joined(arguments.study, [summary.stamp for summary in summaries])
    for path in arguments.out:
        write(table, path, stamp)


if __name__ == "__main__":
    run(main)
