"""The study on one page that opens from disk: the answer in a sentence per model, then
figures, tables, settings.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from lastitem.errors import InputError
from lastitem.report.claims import SMALL_CHANGE_PERCENT, is_small, percent, why_silent
from lastitem.report.summaries import BEYOND, STUDY_COLUMNS

#: Shares and numbers from which a reader is warned.
MANY_TIES_PERCENT, FEW_USERS, MANY_COLD_PERCENT, MANY_LOST_PERCENT, MANY_UNCHANGED_PERCENT = (
    10.0,
    1000,
    5.0,
    1.0,
    20.0,
)
#: Dots per inch of the pictures (:func:`lastitem.report.figures.save`).
FIGURE_DPI = 200
_TEMPLATE = Path(__file__).with_name("page.html.jinja")


@dataclass(frozen=True)
class Answer:
    """What was found for one model on one log: a verdict in words and the sentence with
    its numbers.
    """

    verdict: str
    sentence: str


def answers(effects: pd.DataFrame, rates: pd.DataFrame, cutoff: int) -> Iterator[Answer]:
    """A verdict and a sentence for each dataset, split and model.

    Parameters
    ----------
    effects : fig1.csv, :func:`lastitem.report.summaries.shuffle_effects`.
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
        seeds = int(group["seeds"].iloc[0])
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


def verdict(partial: pd.Series, full: pd.Series, beyond: pd.Series) -> str:
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


def share(row: pd.Series) -> str:
    """A share with its interval in percent, such as ``86.1 % [85.0, 87.2]``."""
    return f"{100 * row['value']:.1f} % [{100 * row['ci_low']:.1f}, {100 * row['ci_high']:.1f}]"


def warnings(statistics: pd.DataFrame, accuracy: pd.DataFrame) -> Iterator[str]:
    """What a reader should know before trusting the numbers.

    Parameters
    ----------
    statistics : table1.csv.
    accuracy : table2.csv.
    """
    for row in statistics[statistics["source"] == "measured"].to_dict("records"):
        if row["tied_transitions_percent"] > MANY_TIES_PERCENT:
            yield (
                f"{row['dataset']}: {row['tied_transitions_percent']:.1f} % of the consecutive"
                f" events and {row['tied_targets_percent']:.1f} % of the targets have the same time"
                f" as the event before. Their order is no order of clicks (ties: {row['ties']}),"
                " and part of what is found may be that order; table5 and fig7 tell how much,"
                " where made."
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
    once = list(dict.fromkeys(accuracy.loc[accuracy["seeds"] == 1, "model"]))
    if once:
        yield (
            f"Trained once (one seed): {', '.join(once)}. Their intervals are over users and say"
            " nothing about another training."
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


def read_table(path: str | Path) -> dict[str, Any]:
    """Take a table's Markdown apart: ``name``, ``title``, ``caption``, ``header`` and
    ``rows`` of cells (``text``, ``bold``).
    """
    caption, _, body = Path(path).read_text(encoding="utf-8").partition("\n\n")
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in body.splitlines()
        if line.startswith("|")
    ]
    if len(lines) < 2:
        raise InputError(f"{path}: holds no table; delete it to have it made anew")
    title = re.match(r"(?:Table \d+\. )?.*?(?=\.(?:\s|$)|$)", caption)
    rows = [
        [{"text": cell.strip("*"), "bold": cell.startswith("**")} for cell in line]
        for line in lines[2:]
    ]
    return {
        "name": Path(path).stem,
        "title": title[0] if title else "",
        "caption": caption,
        "header": lines[0],
        "rows": rows,
    }


def make(
    *,
    found: Sequence[Answer],
    notes: Sequence[str],
    figures: Sequence[Mapping[str, Any]],
    tables: Sequence[Mapping[str, Any]],
    settings: str,
    trained: Sequence[str],
    versions: Mapping[str, str],
) -> str:
    """The page as HTML: nothing is loaded from anywhere, and whatever comes from data
    is text, never markup.
    """
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        answers=found,
        warnings=notes,
        figures=figures,
        tables=tables,
        settings=settings,
        trained=trained,
        versions=versions,
    )


def figure_of(png: str | Path, caption: str | Path, title: str) -> dict[str, Any]:
    """A figure for :func:`make`: its picture, its width on the page (pixels of 1/96
    inch), and the text that the report shows too.
    """
    text, picture = Path(caption).read_text(encoding="utf-8").strip(), Path(png).read_bytes()
    # A PNG begins with its signature and the header chunk, whose first number is the
    # width.
    width = round(int.from_bytes(picture[16:20], "big") * 96 / FIGURE_DPI)
    return {
        "name": Path(png).stem,
        "title": title,
        "caption": text,
        "width": width,
        "data": base64.b64encode(picture).decode(),
    }
