"""Make one of the figures of a study from its summaries, with the numbers behind it."""

import argparse
from collections.abc import Sequence

import pandas as pd

from lastitem.arguments import add_shown
from lastitem.errors import run
from lastitem.report import figures
from lastitem.report.drawing import save
from lastitem.study.runs import Stamp, read_summary, write_csv


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, draw, write the figure and its numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_shown(parser, figures, ".pdf, .svg, .png or .csv")
    arguments = parser.parse_args(argv)

    summaries = [read_summary(path, arguments.studies) for path in arguments.summaries]
    frames = [summary.rows for summary in summaries]
    drawn = arguments.function(*frames, **arguments.settings)
    for path in arguments.out:
        if path.endswith(".csv"):
            stamp = Stamp.joined(arguments.study, [summary.stamp for summary in summaries])
            write_csv(pd.concat(frames, ignore_index=True), path, stamp)
        else:
            save(drawn, path)


if __name__ == "__main__":
    run(main)
