"""The paper's claims against summaries made by hand: what holds, what does not, what
has no meaning.
"""

import pandas as pd
import pytest

from lastitem.report.claims import CLAIMS, MECHANISM, claims
from lastitem.study.runs import PARTS
from tests.report.test_verdicts import SMALL, worths_of

STUDY = {"dataset": "d", "split": "loo", "model": "m"}
NONE = pd.DataFrame()


def rows(*facts, **columns):
    """Facts with the columns every summary has, and an interval of ± 0.01."""
    frame = pd.DataFrame([{**columns, **fact} for fact in facts])
    for side, shift in (("ci_low", -0.01), ("ci_high", 0.01)):
        frame[side] = frame["value"] + shift
    return frame.assign(**STUDY, users=100, trainings=2)


def study(
    wrong=-1.0,
    partial=1.0,
    full=-40.0,
    unchanged=2.0,
    hit=50.0,
    last=0.8,
    before=0.1,
    normalized=(0.3, 0.2),
    rate=(0.8, 0.5, 0.1),
    ratio=(0.3, 0.5, 0.9),
    recovered=(0.1, 0.3),
):
    """Summaries in which every claim holds, unless something is changed;
    λ = 1, 0.5, 0.
    """
    scales = (1.0, 0.5, 0.0)
    return {
        "worths": worths_of(
            {
                name: (value - 1.0, value + 1.0)
                for name, value in (
                    ("strangers_context", wrong),
                    ("last_only", -2.0),
                    ("partial", partial),
                    ("full", full),
                )
            },
            unchanged=unchanged,
            hit=hit,
            users=100,
            **STUDY,
        ),
        "rates": rows({"measure": "HRLI", "value": last}, {"measure": "HRL2I", "value": before}),
        "mixing": rows(
            *(
                {"layer": layer, "part": part, "value": value}
                for layer, own in enumerate(normalized, 1)
                for part, value in zip(PARTS, (0.9, 0.5, own), strict=True)
            ),
            {"layer": 0, "part": PARTS[-1], "value": 0.99},
            {"layer": 1, "part": "share of head 1", "value": 1.0},
        ),
        "curves": rows(
            *(
                {"residual_scale": scale, "value": value}
                for scale, value in zip(scales, rate, strict=True)
            ),
            measure="HRLI",
        ),
        "mixing_by_scale": rows(
            *(
                {"residual_scale": scale, "value": value}
                for scale, value in zip(scales, ratio, strict=True)
            ),
            layer=1,
            part=PARTS[-1],
        ),
        "recoveries": rows(
            *(
                {"residual_scale": scale, "value": value}
                for scale, value in zip(scales, (0.0, *recovered), strict=True)
            ),
            measure="recovery",
        ),
    }


#: The verdict is no claim.
HOLDING = dict.fromkeys(CLAIMS, "yes") | {"what it uses": ""}
OF_CHANGES = ["last item only", "order before the last", "order matters"]


def verdicts(**changed):
    found = claims(**{**study(), **changed})
    assert found["claim"].tolist() == list(CLAIMS)
    assert (found["users"] == 100).all() and (found["trainings"] == 2).all()
    return found.set_index("claim")


def test_all_hold():
    found = verdicts()
    assert found["holds"].to_dict() == HOLDING
    assert found["evidence"].to_dict() == {
        "what it uses": (
            "It hardly looks at which items came before the last; their order hardly counts."
        ),
        "last item only": "-1.0 % [-2.0, +0.0]",
        "order before the last": "+1.0 % [+0.0, +2.0]",
        "order matters": "-40.0 % [-41.0, -39.0]",
        "last-item privilege": "0.800 [0.790, 0.810] against 0.100 [0.090, 0.110]",
        "residual dominance": (
            "block 1: 0.300 [0.290, 0.310] of 0.900 [0.890, 0.910]; "
            "block 2: 0.200 [0.190, 0.210] of 0.900 [0.890, 0.910]"
        ),
        "dependence on λ": "0.800 (λ 1) to 0.100 (λ 0), at every step",
        "mixing on λ": "block 1: 0.300 (λ 1) to 0.900 (λ 0), at every step",
        "recovery": "0.100 to 0.300 (λ 0) of the recoverable targets",
    }


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        ("last item only", {"wrong": -6.5}),
        ("last item only", {"wrong": 7.0}),
        ("order before the last", {"partial": -6.5}),
        ("order before the last", {"partial": 7.0}),
        ("order matters", {"full": 7.0}),
        ("last-item privilege", {"last": 0.15, "before": 0.1}),
        ("residual dominance", {"normalized": (0.3, 0.93)}),
        ("dependence on λ", {"rate": (0.8, 0.81, 0.1)}),
        ("dependence on λ", {"rate": (0.8, 0.8, 0.1)}),
        ("mixing on λ", {"ratio": (0.3, 0.3, 0.9)}),
        ("mixing on λ", {"ratio": (0.3, 0.25, 0.9)}),
        ("recovery", {"recovered": (0.1, 0.0)}),
    ],
)
def test_each_can_fail(claim, changed):
    """An interval on the other side of the bound, one block of two, one step of the
    way: and nothing else changes.
    """
    found = verdicts(**study(**changed))
    assert found["holds"].to_dict() == HOLDING | {claim: "no"}


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        ("last item only", {"wrong": -4.5}),
        ("last item only", {"wrong": 5.5}),
        ("order before the last", {"partial": -4.5}),
        ("order before the last", {"partial": 5.5}),
        ("order matters", {"full": -0.5}),
        ("last-item privilege", {"last": 0.2, "before": 0.1}),
        ("residual dominance", {"normalized": (0.3, 0.89)}),
    ],
)
def test_an_interval_over_the_bound_decides_nothing(claim, changed):
    found = verdicts(**study(**changed))
    assert found["holds"].to_dict() == HOLDING | {claim: "undecided"}


def test_a_step_against_the_claim_is_shown():
    assert (
        verdicts(**study(rate=(0.8, 0.8125, 0.1)))
        .loc["dependence on λ", "evidence"]
        .endswith("largest rise of a step 0.0125")
    )
    assert (
        verdicts(**study(ratio=(0.3, 0.25, 0.9)))
        .loc["mixing on λ", "evidence"]
        .endswith("largest fall of a step 0.0500")
    )
    assert (
        verdicts(**study(rate=(0.8, 0.8, 0.1)))
        .loc["dependence on λ", "evidence"]
        .endswith("with a step that changes nothing")
    )


def test_without_attention_or_recovery_there_is_no_claim():
    found = verdicts(
        mixing=NONE.reindex(columns=["dataset", "split", "model", "layer", "part"]),
        curves=NONE,
        mixing_by_scale=NONE,
        recoveries=NONE,
    )
    without = {"residual dominance", "dependence on λ", "mixing on λ", "recovery"}
    assert set(found.index[found["holds"] == "n/a"]) == without
    assert verdicts(recoveries=NONE).loc["recovery", "holds"] == "n/a"


def test_one_scale_makes_no_step_and_zero_accuracy_no_change():
    """λ = 1 alone, and a model that hits nothing: n/a, not a verdict."""
    one = study()
    for name in ("curves", "mixing_by_scale", "recoveries"):
        one[name] = one[name][one[name]["residual_scale"] == 1.0]
    found = verdicts(**one)
    assert set(found.index[found["holds"] == "n/a"]) == {
        "dependence on λ",
        "mixing on λ",
        "recovery",
    }
    nothing = study()["worths"]
    nothing.loc[nothing["reading"] == "change", ["value", "ci_low", "ci_high"]] = float("nan")
    found = verdicts(worths=nothing)
    assert list(found.index[found["holds"] == "n/a"]) == OF_CHANGES
    assert set(found.loc[OF_CHANGES, "evidence"]) == {
        "no target is hit, so there is no relative change"
    }


@pytest.mark.parametrize(
    ("changed", "holds", "reason"),
    [
        ({"unchanged": 100.0}, "n/a", "every input is too short to be changed by it"),
        ({"hit": 9.0}, "undecided", "only 9 users have a hit"),
    ],
)
def test_a_shuffle_that_changes_nothing_or_few_hits_says_nothing(changed, holds, reason):
    """Though its interval is small: there is nothing that could have varied."""
    found = verdicts(**study(**changed))
    own = found.loc[OF_CHANGES]
    assert (own["holds"] == holds).all() and own["evidence"].str.endswith(f"; {reason}").all()
    assert found.loc["what it uses", "evidence"] == (
        f"These data do not tell which part of the history it uses: {reason}."
    )


def test_a_shuffle_without_any_effect_does_not_lower():
    without = study()["worths"]
    without.loc[without["reading"] == "change", ["value", "ci_low", "ci_high"]] = 0.0
    assert verdicts(worths=without).loc[OF_CHANGES, "holds"].tolist() == ["yes", "yes", "no"]


@pytest.mark.parametrize(
    ("full", "holds"),
    [
        ((-9.0, -0.1), "yes"),
        ((-9.0, 0.0), "undecided"),
        ((-0.1, 9.0), "undecided"),
        ((0.0, 9.0), "no"),
    ],
)
def test_a_shuffle_lowers_if_its_whole_interval_is_below_zero(full, holds):
    worths = worths_of({"strangers_context": SMALL, "full": full}, users=100, **STUDY)
    assert verdicts(worths=worths).loc["order matters", "holds"] == holds


def test_an_intervention_that_is_not_in_the_study_has_no_claim():
    found = verdicts(worths=worths_of({"full": (-9.0, -1.0)}, users=100, **STUDY))
    without = ["what it uses", "last item only", "order before the last"]
    assert list(found.index[found["holds"] == "n/a"]) == without
    assert set(found.loc[without, "evidence"]) == {"has no meaning for this model or these inputs"}


def test_of_groups_of_cases_there_are_no_claims():
    """Nor of what another model has."""
    own = study()["worths"]
    other = [own.assign(group="tied"), own.assign(model="n")]
    for table in other:
        table.loc[table["reading"] == "change", ["value", "ci_low", "ci_high"]] = -50.0
    pd.testing.assert_frame_equal(
        claims(**{**study(), "worths": pd.concat([*other, own])}), claims(**study())
    )


def test_the_claims_of_the_mechanism_are_claims():
    assert set(MECHANISM) < set(CLAIMS) and not {*MECHANISM} & {*OF_CHANGES}


def test_few_users_decide_nothing():
    found = verdicts_of({name: table.assign(users=9) for name, table in study(hit=100.0).items()})
    assert found["holds"].to_dict() == dict.fromkeys(CLAIMS, "undecided") | {"what it uses": ""}


def test_scales_above_one_are_not_what_the_claims_speak_of():
    changed = study()
    for name, value in (("curves", 0.0), ("mixing_by_scale", 1.0), ("recoveries", 0.0)):
        changed[name] = pd.concat(
            [changed[name], changed[name][:1].assign(residual_scale=1.5, value=value)]
        )
    assert verdicts(**changed)["holds"].to_dict() == HOLDING


def test_why_there_is_nothing_and_how_many_stand_behind_it():
    """Empty R, inputs of one item, no λ below 1: the reason; and the users of a claim
    are those of its own numbers.
    """
    changed = study()
    changed["recoveries"] = changed["recoveries"].assign(users=5)
    assert verdicts_of(changed).loc["recovery", ["holds", "users"]].tolist() == ["undecided", 5]
    changed["recoveries"] = changed["recoveries"].assign(value=float("nan"))
    assert verdicts_of(changed).loc["recovery", ["holds", "evidence"]].tolist() == [
        "n/a",
        "no target is recoverable",
    ]
    changed["rates"].loc[changed["rates"]["measure"] == "HRL2I", "value"] = float("nan")
    assert verdicts_of(changed).loc["last-item privilege", ["holds", "evidence"]].tolist() == [
        "n/a",
        "no input has two items",
    ]
    changed["curves"] = changed["curves"][:1]
    assert verdicts_of(changed).loc["mixing on λ", ["holds", "evidence"]].tolist() == [
        "n/a",
        "no λ below 1 in this study",
    ]


def verdicts_of(summaries):
    return claims(**summaries).set_index("claim")
