"""Make one of the tables from the results of single runs: CSV (tidy), Markdown and
LaTeX.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from lastitem.errors import run
from lastitem.files import read_json
from lastitem.report import tables
from lastitem.report.claims import claims
from lastitem.report.summaries import (
    Bootstrap,
    accuracy,
    at_the_choice,
    chosen_scales,
    comparisons,
    last_item_hit_rates,
    mixing_at_readout,
    recovery_curves,
    recovery_sweep,
    shuffle_effects,
    sweep,
)
from lastitem.report.tie_order import tie_order_effects
from lastitem.study.runs import add_user_arguments, read_run_tables, read_user_ids


def make_table1(arguments: argparse.Namespace) -> tables.Table:
    """Dataset statistics."""
    return tables.table1(
        [read_json(path) for path in arguments.statistics], tables.read_csv(arguments.published)
    )


def make_table2(arguments: argparse.Namespace) -> tables.Table:
    """Accuracy."""
    found = accuracy(
        read_run_tables(arguments.ranks), arguments.cutoffs, Bootstrap.from_arguments(arguments)
    )
    evaluations = [read_json(path) for path in arguments.evaluations]
    return tables.table2(
        found, evaluations, tables.read_charts(arguments.charts), arguments.headline_cutoff
    )


def make_table3(arguments: argparse.Namespace) -> tables.Table:
    """Mixing ratios."""
    users = read_run_tables(arguments.mixing_users)
    readout = mixing_at_readout(users, Bootstrap.from_arguments(arguments))
    return tables.table3(read_run_tables(arguments.mixing), readout)


def make_table4(arguments: argparse.Namespace) -> tables.Table:
    """Recovery and chosen λ."""
    ranks = read_run_tables(arguments.rescale)
    curves = recovery_curves(ranks, arguments.headline_cutoff)
    not_applicable = list(ranks.attrs["not_applicable"])
    for name in (
        curves.loc[curves["recoverable"].isna(), tables.RUN_COLUMNS]
        .drop_duplicates()
        .itertuples(index=False)
    ):
        not_applicable.append((*name, "its earlier positions hold no earlier prediction"))
    choices = chosen_scales(curves, arguments.tolerances)
    spread = at_the_choice(
        ranks, choices, arguments.headline_cutoff, Bootstrap.from_arguments(arguments)
    )
    return tables.table4(
        choices, spread, not_applicable, arguments.headline_tolerance, arguments.headline_cutoff
    )


def make_table5(arguments: argparse.Namespace) -> tables.Table:
    """Tie order."""
    ranks, shuffled = read_run_tables(arguments.ranks), read_run_tables(arguments.shuffle)
    ids = read_user_ids(arguments.datasets, arguments.users)
    cutoff, bootstrap = arguments.headline_cutoff, Bootstrap.from_arguments(arguments)
    return tables.table5(
        tie_order_effects(ranks, shuffled, ids, cutoff, bootstrap, arguments.permutations), cutoff
    )


def make_comparisons(arguments: argparse.Namespace) -> tables.Table:
    """Every difference, paired over users."""
    found = comparisons(
        *(
            read_run_tables(paths)
            for paths in (arguments.ranks, arguments.shuffle, arguments.rescale)
        ),
        arguments.headline_cutoff,
        Bootstrap.from_arguments(arguments),
        arguments.permutations,
    )
    return tables.comparisons(found, arguments.headline_cutoff, arguments.permutations)


def make_claims(arguments: argparse.Namespace) -> tables.Table:
    """The paper's claims, held against the numbers."""
    bootstrap, cutoff = Bootstrap.from_arguments(arguments), arguments.headline_cutoff
    scaled = read_run_tables(arguments.rescale)
    found = claims(
        shuffle_effects(read_run_tables(arguments.shuffle), "ndcg", cutoff, bootstrap),
        last_item_hit_rates(read_run_tables(arguments.ranks), cutoff, bootstrap),
        mixing_at_readout(read_run_tables(arguments.mixing_users), bootstrap),
        sweep(scaled, cutoff, bootstrap),
        mixing_at_readout(read_run_tables(arguments.rescale_mixing), bootstrap, ["residual_scale"]),
        recovery_sweep(scaled, cutoff, bootstrap),
    )
    return tables.claims(found, tables.read_charts(arguments.charts), cutoff)


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, make the table, write its three files."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="table", required=True)
    makers: dict[str, Callable[[argparse.Namespace], tables.Table]] = {
        "table1": make_table1, "table2": make_table2, "table3": make_table3, "table4": make_table4,
        "table5": make_table5, "comparisons": make_comparisons, "claims": make_claims,
    }  # fmt: skip
    for name, maker in makers.items():
        command = commands.add_parser(name, help=maker.__doc__, description=maker.__doc__)
        command.set_defaults(maker=maker)
        command.add_argument("--csv", required=True, help="output")
        command.add_argument("--markdown", required=True, help="output")
        command.add_argument("--latex", required=True, help="output")
        if name == "table1":
            command.add_argument(
                "--statistics", required=True, nargs="+", help="statistics.json of each dataset"
            )
            command.add_argument("--published", required=True, help="CSV of the paper's Table 1")
        if name in ("table2", "claims"):
            command.add_argument(
                "--charts", required=True, help="CSV of the numbers in the paper's charts"
            )
        if name in ("table2", "table5", "comparisons", "claims"):
            command.add_argument(
                "--ranks", required=True, nargs="+", help="ranks.parquet of each run"
            )
        if name == "table2":
            command.add_argument(
                "--evaluations", required=True, nargs="+", help="evaluation.json of each run"
            )
            command.add_argument("--cutoffs", required=True, nargs="+", type=int)
        if name == "table3":
            command.add_argument(
                "--mixing", required=True, nargs="+", help="mixing.parquet of each run"
            )
        if name == "claims":
            command.add_argument(
                "--rescale-mixing",
                required=True,
                nargs="+",
                help="rescale_mixing.parquet of each run",
            )
        if name in ("table3", "claims"):
            command.add_argument(
                "--mixing-users", required=True, nargs="+", help="mixing_users.parquet of each run"
            )
        if name in ("table4", "comparisons", "claims"):
            command.add_argument(
                "--rescale", required=True, nargs="+", help="rescale.parquet of each run"
            )
        if name == "table4":
            command.add_argument("--tolerances", required=True, nargs="+", type=float)
            command.add_argument("--headline-tolerance", required=True, type=float)
        if name in ("table5", "comparisons", "claims"):
            command.add_argument(
                "--shuffle", required=True, nargs="+", help="shuffle.parquet of each run"
            )
        if name == "table5":
            add_user_arguments(command)
        if name in ("table5", "comparisons"):
            command.add_argument(
                "--permutations", required=True, type=int, help="random choices of each test"
            )
        if name in ("table2", "table4", "table5", "comparisons", "claims"):
            command.add_argument("--headline-cutoff", required=True, type=int)
        if name != "table1":
            Bootstrap.add_arguments(command)
    arguments = parser.parse_args(argv)
    tables.write(arguments.maker(arguments), arguments.csv, arguments.markdown, arguments.latex)


if __name__ == "__main__":
    run(main)
