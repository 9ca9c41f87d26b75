"""Rank the catalogue for every test case: recommendations, accuracy, coverage, and the
ranks of the user's own last items.
"""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import torch

from lastitem import device
from lastitem.arguments import add_seen_filter, add_trained_model, filters_seen, parser_of, run_of
from lastitem.data.sequences import HeldOut, read_held_out, read_training
from lastitem.errors import run
from lastitem.evaluation.metrics import coverage
from lastitem.evaluation.ranking import NO_RANK, rank
from lastitem.evaluation.recommendations import recommendations_table
from lastitem.files import read_column, write_json
from lastitem.models.interface import Recommender
from lastitem.models.registry import load
from lastitem.study.runs import Run, write_run_table
from lastitem.study.settings import FEW_LABELS


def parsed(argv: Sequence[str] | None) -> Namespace:
    """The options of this script."""
    parser = parser_of(
        __doc__,
        add_trained_model,
        add_seen_filter,
        train="training part (Parquet): tells which targets are cold",
        users="user map (Parquet): code → original id",
        items="item map (Parquet): code → original id",
        recommendations="output: the best items of each case, with original ids (Parquet)",
        ranks="output: a row per test case (Parquet)",
        summary="output: coverage and counts (JSON)",
    )
    parser.add_argument("--cutoffs", required=True, type=int, nargs="+", help="K of coverage@K")
    parser.add_argument(
        "--recommendation-length", required=True, type=int, help="items recommended for each case"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, rank, write ranks, recommendations and coverage."""
    arguments = parsed(argv)
    place = device.configure(arguments.device, arguments.threads)
    model, description = load(arguments.weights, arguments.description)
    model = model.to(place)
    cases, training = read_held_out(arguments.test), read_training(arguments.train)
    found = rank(
        model,
        cases,
        filter_seen=filters_seen(arguments),
        list_length=max(*arguments.cutoffs, arguments.recommendation_length),
        device=place,
    )
    cold, lost = ~np.isin(cases.target, training.flattened), found.target[:, 0] == NO_RANK
    this = run_of(arguments)
    hardly_learned, cut_short = learned(model, cases, this, place)
    columns = {
        "case": np.arange(len(cases), dtype=np.int32),
        "user": cases.user,
        "target": cases.target,
        "input_length": cases.length.astype(np.int32),
        "tied": cases.tied,
        "cold": cold,
        "target_rank": found.target[:, 0],
        "last_rank": found.last,
        "last_but_one_rank": found.last_but_one,
    }
    write_run_table(arguments.ranks, this, columns)
    user_ids = read_column(arguments.users, "user_id")
    item_ids = read_column(arguments.items, "item_id")
    write_run_table(
        arguments.recommendations,
        this,
        recommendations_table(found, cases, user_ids, item_ids, arguments.recommendation_length),
    )
    assert found.lists is not None
    summary = {
        **asdict(this),
        "ranking": "full catalogue",
        "filter_seen": filters_seen(arguments),
        "items": model.items,
        "users": len(np.unique(cases.user)),
        "targets": len(cases),
        "cold_targets": int(cold.sum()),
        "targets_lost_to_filter": int(lost.sum()),
        "hardly_learned": hardly_learned,
        "cut_short": cut_short,
        "validation_ndcg": (description.get("best") or {}).get("validation_ndcg"),
        "reads_last_item_only": model.reads_last_item_only,
        "coverage": {
            str(cutoff): coverage(found.lists, model.items, cutoff) for cutoff in arguments.cutoffs
        },
    }
    write_json(arguments.summary, summary)


def learned(model: Recommender, cases: HeldOut, this: Run, place: str) -> tuple[int, int]:
    """How many cases are read at a place with few labels in training, and how many
    inputs are longer than training reached; said in words, too.
    """
    name, count = f"[{this.dataset} {this.split} {this.model} seed={this.seed}]", len(cases)
    length = np.minimum(cases.length, model.input_length)
    labels = model.readout_labels(torch.from_numpy(length).to(place))
    hardly = 0 if labels is None else int((labels < FEW_LABELS).sum())
    if hardly:
        print(
            f"{name} warning: {hardly:,} of {count:,} cases are read at a place that had fewer than"
            f" {FEW_LABELS} labels in training; train longer, or on more sequences"
        )
    short = int((cases.length > model.input_length).sum()) if model.is_cut_short else 0
    if short:
        print(
            f"{name} {short:,} of {count:,} inputs are longer than training reached: of these the"
            f" newest {model.input_length} items are read"
        )
    return hardly, short


if __name__ == "__main__":
    run(main)
