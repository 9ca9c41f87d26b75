"""Make one of the figures of a study from its summaries, with the numbers behind it; or
draw how one training went.
"""

import argparse
from collections.abc import Sequence

import pandas as pd

from lastitem.arguments import add_run, add_study, run_of
from lastitem.errors import run
from lastitem.report import figures
from lastitem.report.drawing import save
from lastitem.study.runs import Stamp, read_summary, write_csv


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, draw, write the figure and its numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="figure", required=True)
    for name in figures.FUNCTIONS:
        command = commands.add_parser(name)
        command.add_argument(
            "--summaries", required=True, nargs="+", help="what it shows, in this order (Parquet)"
        )
        command.add_argument("--published", nargs="*", help="none: figures show no paper's numbers")
        add_study(command)
    curve = commands.add_parser("learning_curve")
    add_run(curve)
    curve.set_defaults(summaries=[])
    curve.add_argument("--curve", required=True, help="learning_curve.csv of the run")
    curve.add_argument("--cutoff", required=True, type=int, help="K of the validation NDCG")
    for command in commands.choices.values():
        command.add_argument(
            "--out", required=True, nargs="+", help="outputs: .pdf, .png, .csv, by their ending"
        )
    arguments = parser.parse_args(argv)

    summaries = [read_summary(path, arguments.studies) for path in arguments.summaries]
    if arguments.figure == "learning_curve":
        facts = pd.read_csv(arguments.curve)
        drawn = figures.learning_curve(facts, run_of(arguments), arguments.cutoff)
    else:
        frames = [summary.rows for summary in summaries]
        facts = pd.concat(frames, ignore_index=True)
        drawn = figures.FUNCTIONS[arguments.figure](*frames, **arguments.settings)
    for path in arguments.out:
        if path.endswith(".csv"):
            stamp = Stamp.joined(arguments.study, [summary.stamp for summary in summaries])
            write_csv(facts, path, stamp)
        else:
            save(drawn, path)


if __name__ == "__main__":
    run(main)
