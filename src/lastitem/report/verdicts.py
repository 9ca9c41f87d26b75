"""What a model uses of a history, in words, of the changes that interventions make.

A sentence says only what its intervals carry.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from lastitem.report.names import shown_intervention
from lastitem.report.worths import CHANGE, EVERYONE, HIT, LARGER, UNCHANGED
from lastitem.study.runs import STUDY_COLUMNS

#: A change in percent that is called small.
SMALL_CHANGE_PERCENT = 5.0
#: With fewer users than these behind it nothing is decided: a bootstrap over so few
#: holds its own sample for the world.
MINIMUM_USERS = 10
#: The changes that the verdict is made of.
SPOKEN_OF = ("strangers_context", "last_only", "partial", "strangers_last", "without_last")
#: Why a change says nothing of a model: inputs that it cannot change.
TOO_SHORT = "every input is too short to be changed by it"
_UNTOLD = "these data do not tell"


class Changes:
    """What the interventions change for one dataset, split and model, of
    :func:`lastitem.report.worths.worths`.
    """

    def __init__(self, worths: DataFrame, study: Sequence[str]) -> None:
        own = (worths[STUDY_COLUMNS] == list(study)).all(axis=1) & (worths["group"] == EVERYONE)
        self._rows = worths[own].set_index(["reading", "part"])

    def __contains__(self, intervention: str) -> bool:
        return (CHANGE, intervention) in self._rows.index

    def at(self, reading: str, part: str) -> Series:
        """The row of a reading; without a value where the study does not have it."""
        if (reading, part) in self._rows.index:
            return self._rows.loc[(reading, part)]
        return Series(np.nan, index=self._rows.columns, dtype=object)

    def under(self, intervention: str) -> Series:
        """The change of NDCG in percent, on the common candidates."""
        return self.at(CHANGE, intervention)

    def silence(self, intervention: str) -> str:
        """Why a change says nothing, whatever its interval is; empty if it does."""
        if intervention not in self:
            return f"{shown_intervention(intervention)} is not in this study"
        if self.at(UNCHANGED, intervention)["value"] >= 100.0:
            return TOO_SHORT
        # Of users with several targets the share is that of the targets, so this is at
        # most the number of users.
        row = self.at(HIT, intervention)
        hit = row["value"] / 100.0 * row["users"]
        return "" if hit >= MINIMUM_USERS - 0.5 else f"only {hit:.0f} users have a hit"

    def verdict(self) -> str:
        """Which part of the history the model uses, in a sentence."""
        silent = next((why for name in SPOKEN_OF[:3] if (why := self.silence(name))), "")
        if silent:
            return f"These data do not tell which part of the history it uses: {silent}."
        wrong, none, order = (self.under(name) for name in SPOKEN_OF[:3])
        uses = is_lower(wrong) and is_lower(none) and not is_small(wrong)
        # What is said with "and" stands before what begins anew.
        said = [_of_order(order, uses), self._of_last(uses)]
        said.sort(key=lambda part: part.startswith(";"))
        return f"{_of_items(wrong, none)}{''.join(said)}."

    def _of_last(self, uses: bool) -> str:
        """What is said of the last item, beside what stands before it."""
        if self.silence("strangers_last"):
            return ""
        of_both = self._rows[self._rows.index.get_level_values("reading") == LARGER]
        larger = [row for _, row in of_both.iterrows()]
        if not is_lower(self.under("strangers_last")):
            return f"; whether it uses the last item, {_UNTOLD}"
        if larger and all(row["ci_low"] > 0 for row in larger):
            return ", and the last item most" if uses else "; it uses the last item most"
        if larger and all(row["ci_high"] < 0 for row in larger):
            return ", and these more than the last item" if uses else "; it uses the last item less"
        return ", and the last item" if uses else "; it uses the last item"


def _of_items(wrong: Series, none: Series) -> str:
    """What is said of the items before the last: others in their place, and none."""
    if is_small(wrong):
        return "It hardly looks at which items came before the last"
    if is_lower(wrong):
        if is_lower(none):
            return "It uses which items came before the last"
        if none["ci_low"] > 0:
            return "Items before the last mislead it: it does better without them"
        if is_small(none):
            return "Other items before the last mislead it, but it does without its own"
        return f"Other items before the last mislead it; whether it needs its own, {_UNTOLD}"
    if wrong["ci_low"] > 0:
        return "The items before the last mislead it: with those of others it does better"
    return f"Whether it looks at which items came before the last, {_UNTOLD}"


def _of_order(order: Series, uses: bool) -> str:
    """What is said of the order of the earlier items."""
    if is_small(order):
        return ", hardly their order" if uses else "; their order hardly counts"
    if is_lower(order):
        return ", and their order" if uses else "; it uses their order"
    if order["ci_low"] > 0:
        return "; their order misleads it"
    return f"; whether their order counts, {_UNTOLD}"


def is_lower(change: Series) -> bool:
    """Whether the whole interval of a change lies below zero."""
    return bool(change["ci_high"] < 0)


def is_small(change: Series) -> bool:
    """Whether the whole interval of a change in percent is within ±
    :data:`SMALL_CHANGE_PERCENT`.
    """
    return bool(
        change["ci_low"] > -SMALL_CHANGE_PERCENT and change["ci_high"] < SMALL_CHANGE_PERCENT
    )


def percent(change: Series) -> str:
    """A change in percent with its interval, such as ``+0.8 % [-1.0, +3.0]``; there is
    none where the accuracy is zero.
    """
    if pd.isna(change["value"]):
        return "n/a"
    return f"{change['value']:+.1f} % [{change['ci_low']:+.1f}, {change['ci_high']:+.1f}]"


def unseen_percent(changes: Sequence[Series]) -> float:
    """How large a change may be that these data cannot tell from none: half of the
    widest interval.
    """
    widths = [(change["ci_high"] - change["ci_low"]) / 2 for change in changes]
    return float(np.nanmax([*widths, 0.0]))
