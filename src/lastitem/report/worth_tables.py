"""The table of what is worth what."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from lastitem.report.names import shown_intervention, shown_name
from lastitem.report.pooling import POOLED
from lastitem.report.table import Table, cell, counts, laid_out, with_interval
from lastitem.report.worths import (
    ACCOUNT,
    ACCURACY,
    BEYOND,
    CHANGE,
    CHANGE_OF_ACCURACY,
    EVERYONE,
    HIT,
    LARGER,
    OVERLAP,
    SHARE,
    UNCHANGED,
)
from lastitem.study.interventions import ORDERED, known
from lastitem.study.runs import STUDY_COLUMNS, Rows


def worths(summary: Rows, yardsticks: Rows, cutoff: int) -> Table:
    """What is worth what: a row per log, model, group of cases and statement.

    Parameters
    ----------
    summary : :func:`lastitem.report.worths.worths`.
    yardsticks : :func:`lastitem.report.worths.yardsticks`.
    """
    of_yardsticks = yardsticks.rows.assign(
        group=EVERYONE,
        reading=SHARE,
        part=yardsticks.rows["yardstick"],
        **{name: 100.0 * yardsticks.rows[name] for name in POOLED},
    )
    facts = pd.concat(
        [summary.rows, *([of_yardsticks] if len(of_yardsticks) else [])], ignore_index=True
    )
    facts["cut_percent"] = _cut(facts)
    shown = facts[[_is_shown(row) for row in facts.itertuples()]]
    models = list(dict.fromkeys(shown["model"]))
    rows = []
    keys = ["dataset", "split", "group", "reading", "part"]
    for key, own in shown.groupby(keys, sort=False):
        first = own.iloc[0]
        head = ("Dataset", "Split", "Cases", "Reading")
        row = dict(zip(head, key[:4], strict=True)) | {"Of": _shown_part(first)}
        row["Inputs changed"] = cell("{:.0f} %", first["cut_percent"])
        for fact in own.to_dict("records"):
            plain = fact["reading"] in (ACCURACY, OVERLAP)
            row[shown_name(fact["model"])] = with_interval(fact, form=".3f" if plain else "+.1f")
        rows.append(row | {"n": counts(own["users"])})
    order = ["Dataset", "Split", "Cases", "Reading", "Of", "Inputs changed"]
    layout = laid_out(rows).reindex(columns=[*order, *map(shown_name, models), "n"])
    caption = (
        f"What is worth what, of NDCG@{cutoff} on the test part. Change: under an intervention"
        " against the ordered input on the same candidates, which leave out the seen items (where"
        " these are filtered) and what the intervention brought in; beside it on the candidates of"
        " the accuracy. Account: order of the earlier items, which items came before, the last"
        " item, and what needs no history add up to 100 %; a part may be negative. The other"
        " direction replaces the last item first; the interaction is what both share. Replacing is"
        " not removing: wrong items cost more than none. Overlap: share of the top"
        f" {cutoff} that is that of the ordered list; its floor is that of the stranger. Share of"
        " its accuracy: what a yardstick has of the model's. Mean over draws and seeds, ± standard"
        " deviation over seeds where there are several; in brackets the bootstrap interval over"
        " users. In percent, but for accuracy and overlap. Inputs changed: share that the"
        " intervention changes, for the first model."
    )
    return Table(facts, layout, caption, keys=len(order))


def _is_shown(row: Any) -> bool:
    """Whether readers are shown a statement: of single groups the account and what it
    costs to replace a part.
    """
    if row.group != EVERYONE:
        return row.reading == ACCOUNT or (row.reading, row.part) in _OF_GROUPS
    if row.reading == ACCURACY:
        return row.part == ORDERED
    if row.reading == CHANGE_OF_ACCURACY:
        # Of the others both are one.
        return known(row.part).fills
    return row.reading not in (UNCHANGED, HIT, BEYOND, LARGER)


_OF_GROUPS = ((CHANGE, "strangers_context"), (CHANGE, "last_only"), (CHANGE, "strangers_last"))


def _cut(facts: DataFrame) -> Series:
    """Beside a change, the share of inputs in percent that the intervention changes."""
    keys = [*STUDY_COLUMNS, "group", "part"]
    unchanged = facts[facts["reading"] == UNCHANGED].set_index(keys)["value"]
    found = unchanged.reindex(pd.MultiIndex.from_frame(facts[keys])).to_numpy(dtype=float)
    of_change = facts["reading"].isin([CHANGE, CHANGE_OF_ACCURACY])
    return Series(np.where(of_change, 100.0 - found, np.nan), index=facts.index)


def _shown_part(row: Mapping[str, Any]) -> str:
    of_interventions = (ACCURACY, CHANGE, CHANGE_OF_ACCURACY, OVERLAP)
    if row["reading"] in of_interventions:
        return shown_intervention(row["part"])
    return shown_name(row["part"])
