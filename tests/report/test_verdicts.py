"""Verdicts of made-up intervals, on both sides of each rule; what data cannot tell; and
what is called small, lower, unseen.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from lastitem.report.verdicts import Changes, is_lower, is_small, percent, unseen_percent
from lastitem.report.worths import (
    CHANGE,
    HIT,
    LARGER,
    LAST_REPLACED_FIRST,
    LAST_REPLACED_SECOND,
    UNCHANGED,
)
from lastitem.study.interventions import known

STUDY = {"dataset": "d", "split": "gts", "model": "m"}
#: Intervals on each side of the rules, and between.
FAR_BELOW, JUST_BELOW, SMALL, WIDE, FAR_ABOVE = (
    (-40.0, -30.0),
    (-9.0, -0.1),
    (-4.9, 4.9),
    (-9.0, 9.0),
    (6.0, 9.0),
)


def change(low, high):
    return pd.Series({"value": (low + high) / 2, "ci_low": low, "ci_high": high})


def worths_of(changes, larger=(), unchanged=2.0, hit=50.0, users=1000, group="all", **study):
    """A table of what is worth what: intervention → ends of its interval; of both
    directions of the account whether the last item is more.
    """
    rows = []
    for name, (low, high) in changes.items():
        rows.append((CHANGE, name, (low + high) / 2, low, high))
        for reading, value in ((UNCHANGED, unchanged), (HIT, hit)):
            rows.append((reading, name, value, value, value))
    for part, (low, high) in zip((LAST_REPLACED_SECOND, LAST_REPLACED_FIRST), larger, strict=False):
        rows.append((LARGER, part, (low + high) / 2, low, high))
    table = pd.DataFrame(rows, columns=["reading", "part", "value", "ci_low", "ci_high"])
    return table.assign(**STUDY | study, group=group, users=users, trainings=2)


def changes_of(wrong=SMALL, none=SMALL, order=SMALL, last=None, **columns):
    changes = {"strangers_context": wrong, "last_only": none, "partial": order}
    changes |= {} if last is None else {"strangers_last": last}
    return Changes(worths_of(changes, **columns), list(STUDY.values()))


@pytest.mark.parametrize(
    ("wrong", "none", "said"),
    [
        (FAR_BELOW, FAR_BELOW, "It uses which items came before the last"),
        (JUST_BELOW, JUST_BELOW, "It uses which items came before the last"),
        (
            FAR_BELOW,
            (0.1, 2.0),
            "Items before the last mislead it: it does better without them",
        ),
        (
            FAR_BELOW,
            FAR_ABOVE,
            "Items before the last mislead it: it does better without them",
        ),
        (
            FAR_BELOW,
            SMALL,
            "Other items before the last mislead it, but it does without its own",
        ),
        (
            FAR_BELOW,
            WIDE,
            "Other items before the last mislead it; whether it needs its own, these data do not"
            " tell",
        ),
        (
            FAR_BELOW,
            (-5.0, 4.0),
            "Other items before the last mislead it; whether it needs its own, these data do not"
            " tell",
        ),
        (SMALL, FAR_BELOW, "It hardly looks at which items came before the last"),
        # Below zero for sure, and small for sure.
        ((-4.0, -1.0), (-4.0, -1.0), "It hardly looks at which items came before the last"),
        ((-4.9, 0.0), FAR_ABOVE, "It hardly looks at which items came before the last"),
        ((1.0, 4.9), SMALL, "It hardly looks at which items came before the last"),
        (
            FAR_ABOVE,
            FAR_BELOW,
            "The items before the last mislead it: with those of others it does better",
        ),
        (
            (0.1, 5.0),
            SMALL,
            "The items before the last mislead it: with those of others it does better",
        ),
        (
            WIDE,
            FAR_BELOW,
            "Whether it looks at which items came before the last, these data do not tell",
        ),
        (
            (-5.0, 0.0),
            SMALL,
            "Whether it looks at which items came before the last, these data do not tell",
        ),
    ],
)
def test_what_is_said_of_the_items_before_the_last(wrong, none, said):
    """Other items in their place, and none: the whole interval is on a side of zero, or
    within ± 5 %, or nothing is said.
    """
    verdict = changes_of(wrong, none).verdict()
    uses = said.startswith("It uses")
    assert verdict == said + (", hardly their order." if uses else "; their order hardly counts.")


@pytest.mark.parametrize(
    ("order", "beside_use", "else_said"),
    [
        (SMALL, ", hardly their order", "; their order hardly counts"),
        ((-4.9, -0.1), ", hardly their order", "; their order hardly counts"),
        ((0.1, 4.9), ", hardly their order", "; their order hardly counts"),
        (FAR_BELOW, ", and their order", "; it uses their order"),
        (JUST_BELOW, ", and their order", "; it uses their order"),
        (FAR_ABOVE, "; their order misleads it", "; their order misleads it"),
        ((0.1, 5.0), "; their order misleads it", "; their order misleads it"),
        (
            WIDE,
            "; whether their order counts, these data do not tell",
            "; whether their order counts, these data do not tell",
        ),
        (
            (-5.0, 0.0),
            "; whether their order counts, these data do not tell",
            "; whether their order counts, these data do not tell",
        ),
    ],
)
def test_what_is_said_of_their_order(order, beside_use, else_said):
    uses = changes_of(FAR_BELOW, FAR_BELOW, order).verdict()
    assert uses == f"It uses which items came before the last{beside_use}."
    hardly = changes_of(SMALL, SMALL, order).verdict()
    assert hardly == f"It hardly looks at which items came before the last{else_said}."


MORE, LESS, SAME = (1.0, 9.0), (-9.0, -1.0), (-1.0, 1.0)


@pytest.mark.parametrize(
    ("last", "larger", "beside_use", "else_said"),
    [
        (None, (), "", ""),
        (
            WIDE,
            (MORE, MORE),
            "; whether it uses the last item, these data do not tell",
            "; whether it uses the last item, these data do not tell",
        ),
        (
            FAR_ABOVE,
            (LESS, LESS),
            "; whether it uses the last item, these data do not tell",
            "; whether it uses the last item, these data do not tell",
        ),
        (FAR_BELOW, (MORE, MORE), ", and the last item most", "; it uses the last item most"),
        (
            FAR_BELOW,
            (LESS, LESS),
            ", and these more than the last item",
            "; it uses the last item less",
        ),
        (FAR_BELOW, (MORE, LESS), ", and the last item", "; it uses the last item"),
        (FAR_BELOW, (MORE, SAME), ", and the last item", "; it uses the last item"),
        (FAR_BELOW, (SAME, LESS), ", and the last item", "; it uses the last item"),
        (FAR_BELOW, ((0.0, 9.0), MORE), ", and the last item", "; it uses the last item"),
        (FAR_BELOW, (), ", and the last item", "; it uses the last item"),
    ],
)
def test_what_is_said_of_the_last_item(last, larger, beside_use, else_said):
    """It is the most, or less, only if it is so whichever part is replaced first."""
    uses = changes_of(FAR_BELOW, FAR_BELOW, last=last, larger=larger).verdict()
    assert uses == f"It uses which items came before the last, hardly their order{beside_use}."
    hardly = changes_of(last=last, larger=larger).verdict()
    assert hardly.endswith(f"; their order hardly counts{else_said}.")


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (FAR_ABOVE, "their order misleads it"),
        (WIDE, "whether their order counts, these data do not tell"),
    ],
)
@pytest.mark.parametrize(
    ("larger", "of_last"),
    [(MORE, ", and the last item most"), (LESS, ", and these more than the last item")],
)
def test_the_last_item_is_no_part_of_what_misleads_or_is_not_told(order, said, larger, of_last):
    """What is said with "and" stands before what begins anew."""
    uses = changes_of(FAR_BELOW, FAR_BELOW, order, FAR_BELOW, larger=(larger, larger))
    assert uses.verdict() == f"It uses which items came before the last{of_last}; {said}."


# Silence


UNTOLD = "These data do not tell which part of the history it uses: {}."


def test_inputs_that_nothing_changes_say_nothing():
    told = UNTOLD.format("every input is too short to be changed by it")
    assert changes_of(unchanged=100.0).verdict() == told
    assert "too short" not in changes_of(unchanged=99.9).verdict()


@pytest.mark.parametrize(
    ("hit", "users", "silent"),
    [(0.9, 1000, True), (0.94, 1000, True), (0.96, 1000, False), (100.0, 9, True)],
)
def test_fewer_than_ten_users_with_a_hit_say_nothing(hit, users, silent):
    """Of a share of cases, rounded to whole users."""
    verdict = changes_of(FAR_BELOW, hit=hit, users=users).verdict()
    assert (verdict == UNTOLD.format("only 9 users have a hit")) == silent


@pytest.mark.parametrize("left_out", ["strangers_context", "last_only", "partial"])
def test_an_intervention_that_is_not_there_says_nothing(left_out):
    table = worths_of({name: SMALL for name in ("strangers_context", "last_only", "partial")})
    changes = Changes(table[table["part"] != left_out], list(STUDY.values()))
    assert changes.verdict() == UNTOLD.format(f"{known(left_out).shown} is not in this study")
    assert left_out not in changes and "full" not in changes
    assert math.isnan(changes.under(left_out)["value"])
    assert math.isnan(changes.under(left_out)["users"])


def test_an_intervention_of_the_last_item_that_says_nothing_is_passed_over():
    """The others are told of as if it were not there."""
    table = worths_of({"strangers_context": SMALL, "last_only": SMALL, "partial": SMALL})
    last = worths_of({"strangers_last": FAR_BELOW}, unchanged=100.0)
    verdict = Changes(pd.concat([table, last]), list(STUDY.values())).verdict()
    assert verdict.endswith("; their order hardly counts.")


def test_a_change_without_a_value_is_not_told():
    """Nothing is hit in order, and something is under the interventions."""
    nothing = (math.nan, math.nan)
    verdict = changes_of(nothing, nothing, nothing, nothing, larger=(nothing, nothing)).verdict()
    assert verdict == (
        "Whether it looks at which items came before the last, these data do not tell; whether"
        " their order counts, these data do not tell; whether it uses the last item, these data"
        " do not tell."
    )


def test_each_is_judged_by_its_own_study_and_by_all_cases():
    """Other models and logs, and groups of cases, do not count."""
    own = worths_of({name: SMALL for name in ("strangers_context", "last_only", "partial")})
    far = {name: FAR_BELOW for name in ("strangers_context", "last_only", "partial")}
    others = [
        worths_of(far, model="other"),
        worths_of(far, dataset="e"),
        worths_of(far, split="loo"),
        worths_of(far, group="tied"),
    ]
    for table in (pd.concat([own, *others]), pd.concat([*others, own])):
        verdict = Changes(table, list(STUDY.values())).verdict()
        assert verdict.startswith("It hardly looks")
        other = Changes(table, ["d", "gts", "other"]).verdict()
        assert other.startswith("It uses which items")


# Words for numbers


@pytest.mark.parametrize(
    ("low", "high", "lower", "small"),
    [
        (-9.0, -6.0, True, False),
        (-9.0, -0.1, True, False),
        (-9.0, 0.0, False, False),
        (-4.9, -0.1, True, True),
        (-5.0, 1.0, False, False),
        (-4.9, 4.9, False, True),
        (-1.0, 5.0, False, False),
        (6.0, 9.0, False, False),
        (math.nan, math.nan, False, False),
    ],
)
def test_lower_and_small_are_of_the_whole_interval(low, high, lower, small):
    assert is_lower(change(low, high)) is lower
    assert is_small(change(low, high)) is small


def test_a_change_has_its_sign_and_interval():
    assert percent(change(-1.04, 3.06)) == "+1.0 % [-1.0, +3.1]"
    assert percent(change(-3.0, -1.0)) == "-2.0 % [-3.0, -1.0]"
    assert percent(change(math.nan, math.nan)) == "n/a"


def test_what_cannot_be_told_from_none_is_half_of_the_widest_interval():
    changes = [change(-1.0, 3.0), change(-20.0, -8.0), change(math.nan, math.nan)]
    assert unseen_percent(changes) == 6.0
    assert unseen_percent(changes[:1]) == 2.0
    assert unseen_percent([]) == unseen_percent(changes[2:]) == 0.0
    assert isinstance(unseen_percent([change(np.float64(0), np.float64(1))]), float)
