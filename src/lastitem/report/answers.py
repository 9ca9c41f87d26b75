"""What the page says in words: an answer per model, and what to know before trusting
the numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pandas import DataFrame, Series

from lastitem.data.core import UNUSUAL_TIES_PERCENT
from lastitem.report.claims import SMALL_CHANGE_PERCENT, is_small, percent, why_silent
from lastitem.study.runs import BEYOND, STUDY_COLUMNS
from lastitem.study.settings import FEW_LABELS

#: With fewer users than these, intervals are wide enough to be told of.
FEW_USERS = 1000
#: Shares from which a reader is warned.
MANY_COLD_PERCENT, MANY_LOST_PERCENT, MANY_UNCHANGED_PERCENT = 5.0, 1.0, 20.0
MANY_FILTERED_PERCENT = 50.0


@dataclass(frozen=True)
class Answer:
    """What was found for one model on one log: a verdict in words and the sentence with
    its numbers.
    """

    verdict: str
    sentence: str


def answers(effects: DataFrame, rates: DataFrame, cutoff: int) -> Iterator[Answer]:
    """A verdict and a sentence for each dataset, split and model.

    Parameters
    ----------
    effects : fig1.csv, :func:`lastitem.report.summaries.shuffles`.
    rates : fig2.csv, :func:`lastitem.report.summaries.last_item_hit_rates`.
    cutoff : K of both.
    """
    for study, group in effects.groupby(STUDY_COLUMNS, sort=False):
        dataset, split, model = study
        change = group[group["measure"] == "change_percent"].set_index("order")
        partial, full = change.loc["partial"], change.loc["full"]
        beyond = group[(group["measure"] == BEYOND) & (group["order"] == "full")].iloc[0]
        own = rates[(rates[STUDY_COLUMNS] == list(study)).all(axis=1)].set_index("measure")
        kept = group[group["measure"] == "unchanged_percent"].set_index("order")["value"]
        seeds = int(group["trainings"].iloc[0])
        last = own.loc["HRLI"]
        sentence = (
            f"{model} on {dataset} ({split}): shuffling all but the last item changes NDCG@{cutoff}"
            f" by {percent(partial)}, shuffling everything by {percent(full)}; the last item itself"
            f" stands in {share(last)} of the users' top {cutoff}"
        )
        if "HRL2I" in own.index and pd.notna(own.loc["HRL2I", "value"]):
            sentence += f", the one before it in {share(own.loc['HRL2I'])}"
        if kept["partial"] > MANY_UNCHANGED_PERCENT:
            sentence += (
                f"; {kept['partial']:.0f} % of the inputs are too short for the first shuffle to"
                " change them, or stay as they were"
            )
        users = int(group["users"].iloc[0])
        silent = why_silent(group, "partial") or why_silent(group, "full")
        said = f"These data do not tell: {silent}." if silent else verdict(partial, full, beyond)
        yield Answer(said, f"{sentence} (n = {users:,} users, {seeds} seed{'s' * (seeds > 1)}).")


def verdict(partial: Series, full: Series, beyond: Series) -> str:
    """What the two shuffles say, each a change in percent with its interval; ``beyond``
    is what the full one changes more.

    They keep the set of the items, so they tell what the order is worth, and not
    whether the earlier items count at all.
    """
    unmoved = is_small(partial)
    if not unmoved and partial["ci_high"] < 0:
        a_little = " a little" if partial["ci_low"] > -2 * SMALL_CHANGE_PERCENT else ""
        return f"It uses the order of the items before the last{a_little}."
    if not unmoved and partial["ci_low"] > 0:
        return "The order of the items before the last misleads it."
    if unmoved and is_small(full):
        return "It does not mind the order of the history."
    if beyond["ci_high"] < 0:
        if not unmoved:
            return (
                "Which item is last matters; whether the order before does, these data do not tell."
            )
        a_little = "" if beyond["ci_high"] < -2 * SMALL_CHANGE_PERCENT else " a little"
        return (
            f"Which item is last matters{a_little}, the order of those before it"
            f" {'hardly does' if partial['ci_high'] < 0 else 'does not'}."
        )
    if beyond["ci_low"] > 0:
        return "Which item is last misleads it."
    return "These data do not tell."


def share(row: Series) -> str:
    """A share with its interval in percent, such as ``86.1 % [85.0, 87.2]``."""
    return f"{100 * row['value']:.1f} % [{100 * row['ci_low']:.1f}, {100 * row['ci_high']:.1f}]"


def warnings(statistics: DataFrame, accuracy: DataFrame) -> Iterator[str]:
    """What a reader should know before trusting the numbers.

    Parameters
    ----------
    statistics : table1.csv.
    accuracy : table2.csv.
    """
    for row in statistics[statistics["source"] == "measured"].to_dict("records"):
        if row["tied_transitions_percent"] > UNUSUAL_TIES_PERCENT:
            yield (
                f"{row['dataset']}: {row['tied_transitions_percent']:.1f} % of the consecutive"
                f" events and {row['tied_targets_percent']:.1f} % of the targets have the same time"
                f" as the event before. Their order is no order of clicks (ties: {row['ties']}),"
                " and part of what is found may be that order; table5 and fig7 tell how much,"
                " where made."
            )
        for what, name in (("events", "interactions"), ("users", "users"), ("items", "items")):
            raw, kept = row[f"raw_{name}"], row[name]
            if kept < (1 - MANY_FILTERED_PERCENT / 100) * raw:
                yield (
                    f"{row['dataset']}: the core filter left {int(kept):,} of {int(raw):,} {what};"
                    " what is found is about these. A smaller p_core keeps more."
                )
    per_study = accuracy.drop_duplicates(["dataset", "split"])
    for row in per_study.to_dict("records"):
        name, cases = f"{row['dataset']} ({row['split']})", row["cases"]
        if row["users"] < FEW_USERS:
            yield f"{name}: only {row['users']:,} users are tested; the intervals are wide."
        if row["cold_targets"] > MANY_COLD_PERCENT / 100 * cases:
            yield (
                f"{name}: {row['cold_targets']:,} of {cases:,} targets never occur in training; no"
                " model here can learn them."
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
