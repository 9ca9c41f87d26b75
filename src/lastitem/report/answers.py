"""What the page says in words: an answer per model, and what to know before trusting
the numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
from pandas import DataFrame, Series

from lastitem.data.core import UNUSUAL_TIES_PERCENT
from lastitem.report.names import shown_name
from lastitem.report.verdicts import SPOKEN_OF, Changes, percent, unseen_percent
from lastitem.report.worths import ACCOUNT, EVERYONE, SHARE, UNCHANGED
from lastitem.study.runs import ALL_SEEDS, RUN_COLUMNS, STUDY_COLUMNS
from lastitem.study.settings import FEW_LABELS

#: With fewer users than these, intervals are wide enough to be told of.
FEW_USERS = 1000
#: Shares from which a reader is warned.
MANY_COLD_PERCENT, MANY_LOST_PERCENT, MANY_UNCHANGED_PERCENT = 5.0, 1.0, 20.0
MANY_FILTERED_PERCENT = 50.0
#: How far the size of a known log may be from the paper's.
OTHER_EDITION_PERCENT = 1.0
#: Items for each place of a list, below which a hit says little.
FEW_ITEMS_A_PLACE = 5


class Part(NamedTuple):
    """A part of the account, in percent of the accuracy, with its interval."""

    name: str
    value: float
    ci_low: float
    ci_high: float


@dataclass(frozen=True)
class Answer:
    """What was found for one model on one log.

    Attributes
    ----------
    model, log : of whom it is said.
    verdict : what the model uses, in words.
    sentences : the numbers behind it; what these data could not show; what a yardstick
        that sees the last item alone has.
    account : the parts that the accuracy is made of, for a small chart.
    """

    model: str
    log: str
    verdict: str
    sentences: Sequence[str]
    account: Sequence[Part]


def answers(worths: DataFrame, models: Sequence[str], cutoff: int) -> Iterator[Answer]:
    """A verdict and its numbers for each dataset, split and model.

    Parameters
    ----------
    worths : worths.csv, :func:`lastitem.report.tables.worths`.
    models : names of the models that are asked, yardsticks not among them.
    cutoff : K of all.
    """
    asked = worths[worths["model"].isin(models)]
    for study, group in asked.groupby(STUDY_COLUMNS, sort=False):
        dataset, split, model = study
        changes = Changes(worths, study)
        own = group[group["reading"] == SHARE]
        parts = group[(group["group"] == EVERYONE) & (group["reading"] == ACCOUNT)]
        yield Answer(
            model=shown_name(model),
            log=f"{dataset} ({split})",
            verdict=changes.verdict(),
            sentences=[*_numbers(changes, cutoff), *_of_yardstick(own, shown_name(model))],
            account=[
                Part(row["part"], *(float(row[name]) for name in ("value", "ci_low", "ci_high")))
                for row in parts.to_dict("records")
                if pd.notna(row["value"])
            ],
        )


def _numbers(changes: Changes, cutoff: int) -> Iterator[str]:
    """The changes that the verdict is made of, and what they could not show."""
    known = {name: changes.under(name) for name in SPOKEN_OF if name in changes}
    if not known:
        return
    told = [f"{words} {percent(known[name])}" for name, words in _WORDS.items() if name in known]
    first = next(iter(known.values()))
    seeds = int(first["trainings"])
    yield (
        f"Change of NDCG@{cutoff}: {'; '.join(told)}; n = {int(first['users']):,} users, {seeds}"
        f" seed{'s' * (seeds > 1)}."
    )
    yield (
        f"A change of less than about {unseen_percent(list(known.values())):.0f} % these users"
        " cannot tell from none."
    )
    kept = changes.at(UNCHANGED, "partial")["value"]
    if kept > MANY_UNCHANGED_PERCENT:
        yield (
            f"{kept:.0f} % of the inputs are too short for a shuffle of the items before the last"
            " to change them, or stay as they were."
        )


#: What each change is of, in words.
_WORDS = {
    "strangers_context": "another user's items before the last",
    "last_only": "no items before the last",
    "partial": "their order shuffled",
    "strangers_last": "another user's last item",
    "without_last": "without the last item",
}


def _of_yardstick(yardsticks: DataFrame, model: str) -> Iterator[str]:
    """What the best of the yardsticks that see the last item alone has."""
    if yardsticks.empty:  # A study without them has none of their columns.
        return
    best = yardsticks[yardsticks["best_on_validation"].astype(str) == "True"]
    for row in best.head(1).to_dict("records"):
        yield (
            f"{row['value']:.0f} % [{row['ci_low']:.0f}, {row['ci_high']:.0f}] of {model}'s"
            " accuracy is had from"
            f" the last item alone, by {shown_name(row['yardstick'])}. That speaks of the data,"
            f" not of what {model} does."
        )


def warnings(statistics: DataFrame, accuracy: DataFrame, worths: DataFrame) -> Iterator[str]:
    """What a reader should know before trusting the numbers.

    Parameters
    ----------
    statistics : table1.csv.
    accuracy : table2.csv.
    worths : worths.csv.
    """
    yield from _of_logs(statistics)
    yield from _of_accuracy(accuracy, statistics)
    shares = worths[worths["reading"] == SHARE]
    for row in shares[shares["ci_high"] >= 100.0].to_dict("records"):
        yield (
            f"{shown_name(row['model'])} on {row['dataset']} ({row['split']}) is not shown to be"
            f" better than {shown_name(row['part'])}, which has {row['value']:.0f} %"
            f" [{row['ci_low']:.0f}, {row['ci_high']:.0f}] of its accuracy."
        )


def _of_logs(statistics: DataFrame) -> Iterator[str]:
    """What is unusual about the logs."""
    published = statistics[statistics["source"] == "paper"].set_index("dataset")
    for row in statistics[statistics["source"] == "measured"].to_dict("records"):
        if row["tied_transitions_percent"] > UNUSUAL_TIES_PERCENT:
            yield (
                f"{row['dataset']}: {row['tied_transitions_percent']:.1f} % of the consecutive"
                f" events and {row['tied_targets_percent']:.1f} % of the targets have the same time"
                f" as the event before. Their order is no order of clicks (ties: {row['ties']}),"
                " and part of what is found may be that order; table5 and fig7 tell how much,"
                " where made."
            )
        for name in ("interactions", "users", "items"):
            raw, kept = row[f"raw_{name}"], row[name]
            what = "events" if name == "interactions" else name
            if kept < (1 - MANY_FILTERED_PERCENT / 100) * raw:
                yield (
                    f"{row['dataset']}: the core filter left {int(kept):,} of {int(raw):,} {what};"
                    " what is found is about these. A smaller p_core keeps more."
                )
            if row["dataset"] in published.index:
                theirs = published.loc[row["dataset"], name]
                if abs(kept - theirs) > OTHER_EDITION_PERCENT / 100 * theirs:
                    yield (
                        f"{row['dataset']}: {int(kept):,} {what} where the paper has"
                        f" {int(theirs):,}. Is it another edition of the log, or another filter?"
                        " Its numbers are not the paper's."
                    )


def _of_accuracy(accuracy: DataFrame, statistics: DataFrame) -> Iterator[str]:
    """What is unusual about the test parts, and about models on them."""
    measured = statistics[statistics["source"] == "measured"].set_index("dataset")
    per_study = accuracy.drop_duplicates(["dataset", "split"])
    for row in per_study.to_dict("records"):
        name, cases = f"{row['dataset']} ({row['split']})", row["cases"]
        if row["users"] < FEW_USERS:
            yield f"{name}: only {row['users']:,} users are tested; the intervals are wide."
        items = measured.loc[row["dataset"], "items"]
        left = items - measured.loc[row["dataset"], "avg_length"] * bool(row["filter_seen"])
        largest = accuracy.loc[of_log(accuracy, row), "cutoff"].max()
        if left < FEW_ITEMS_A_PLACE * largest:
            yield (
                f"{name}: about {left:.0f} items can be recommended to a user, and lists are up to"
                f" {largest:.0f} long: a hit says little. Smaller cutoffs say more."
            )
        if row["cold_targets"] > MANY_COLD_PERCENT / 100 * cases:
            yield (
                f"{name}: {row['cold_targets']:,} of {cases:,} targets never occur in training; no"
                " model here can learn them. table2 has the accuracy without them, too."
            )
        if row["targets_lost_to_filter"] > MANY_LOST_PERCENT / 100 * cases:
            yield (
                f"{name}: {row['targets_lost_to_filter']:,} of {cases:,} targets are in the user's"
                " history already, so the seen filter makes them misses; consider filter_seen:"
                " false."
            )
    for row in accuracy.drop_duplicates(STUDY_COLUMNS).to_dict("records"):
        name, cases = f"{row['model']} on {row['dataset']} ({row['split']})", row["cases"]
        if row["hardly_learned"]:
            yield (
                f"{name}: {row['hardly_learned']:,} of {cases:,} cases are read at a place that had"
                f" fewer than {FEW_LABELS} labels in training; what is predicted there was hardly"
                " learned."
            )
        if row["cut_short"]:
            yield (
                f"{name}: {row['cut_short']:,} of {cases:,} inputs are longer than training"
                " reached; of these only the newest items are read, as many as it did reach."
            )
    once = list(dict.fromkeys(accuracy.loc[accuracy["trainings"] == 1, "model"]))
    if once:
        yield (
            f"Trained once (one seed): {', '.join(once)}. Their intervals are over users and say"
            " nothing about another training."
        )


def choice_warnings(choices: DataFrame) -> Iterator[str]:
    """Where λ could not be chosen by what it costs; ``choices`` is table4.csv."""
    if "validation_hit_rate_at_1" not in choices:
        return
    of_seeds = choices[(choices["seed"].astype(str) != ALL_SEEDS)].drop_duplicates(RUN_COLUMNS)
    for row in of_seeds[of_seeds["validation_hit_rate_at_1"] == 0].to_dict("records"):
        yield (
            f"{shown_name(row['model'])} on {row['dataset']} ({row['split']}), seed {row['seed']}:"
            " nothing is hit on validation at λ = 1, so every λ was allowed; the choice of λ says"
            " nothing."
        )


def of_log(table: DataFrame, row: Mapping[str, Any]) -> Series:
    """Whether rows are of the dataset and split of a row."""
    return (table["dataset"] == row["dataset"]) & (table["split"] == row["split"])


def training_warnings(descriptions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Which trainings were still getting better when they ended; ``descriptions`` holds
    the model.json of each run.
    """
    for description in descriptions:
        best, run = description["best"], description["run"]
        last = description["training"]["maximum_epochs"]
        if best and best["epoch"] == last:
            yield (
                f"{run['model']} on {run['dataset']} ({run['split']}), seed {run['seed']}:"
                f" validation was best in the last of {last} epochs, so training was cut short;"
                " raise maximum_epochs."
            )


def versions_of(trained: Sequence[Mapping[str, str]]) -> list[str]:
    """The different sets of versions that models were trained with, each as text."""
    return sorted(
        {", ".join(f"{name} {number}" for name, number in versions.items()) for versions in trained}
    )


def version_warnings(trained: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """What a reader should know of versions: ``trained`` holds those of each run."""
    if len(found := versions_of(trained)) > 1:
        yield (
            f"The models were trained with different versions ({'; '.join(found)}); numbers may"
            " differ for that alone."
        )
