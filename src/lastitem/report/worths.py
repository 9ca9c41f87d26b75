"""What is worth what: the account of a model's accuracy, and what each intervention
changes.

With r(x) = Σ NDCG under intervention x / Σ NDCG of the ordered input on the same
candidates, over the cases for which x has a meaning, a statement here is a sum of such
ratios, with an interval from a bootstrap over users in which all ratios are of the same
drawn users.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas import DataFrame

from lastitem.arrays import Floats, Ints
from lastitem.evaluation.metrics import per_user
from lastitem.evaluation.recovery import hits
from lastitem.report.pooling import (
    COUNTS,
    POOLED,
    Bootstrap,
    mean_over_repeats,
    measured,
    summarize,
)
from lastitem.report.uncertainty import percentiles, resampled_ratios
from lastitem.study.interventions import ORDERED, OVERLAPPING
from lastitem.study.runs import RUN_COLUMNS, STUDY_COLUMNS

#: The group of all cases; targets with the time of the item before them, and others.
EVERYONE, TIED, UNTIED = "all", "tied", "untied"
#: What is said: parts of the account, in both directions, and what they share; the
#: change under an intervention, on the common candidates and on those of the accuracy.
ACCOUNT, LAST_FIRST, INTERACTION = "account", "account, last item first", "interaction"
CHANGE, CHANGE_OF_ACCURACY = "change", "change on the candidates of the accuracy"
#: Accuracy itself; shares of inputs that come out as they were, and of cases with a hit
#: as they were or changed; overlap of lists; what a yardstick has of the accuracy; and
#: which of two parts is larger.
ACCURACY, UNCHANGED, HIT, OVERLAP = "accuracy", "unchanged inputs", "cases with a hit", "overlap"
SHARE = "share of its accuracy"
BEYOND, LARGER = "full beyond partial", "last item more than items before"
#: Parts of the account.
ORDER, ITEMS, LAST, REST = (
    "order of the earlier items",
    "which items came before",
    "the last item",
    "needs no history",
)
BEFORE = "the earlier items and their order"
#: Both directions of the account, under :data:`LARGER`.
LAST_REPLACED_SECOND, LAST_REPLACED_FIRST = "last item second", "last item first"

#: The numerators and denominators that ratios are made of.
_COMMON, _PLAIN = "common", "plain"


class Term(NamedTuple):
    """A ratio in a statement: ``sign`` · Σ ``quantity`` / Σ of what it is held against,
    under ``intervention``.
    """

    sign: float
    quantity: str
    intervention: str


class Statement(NamedTuple):
    """``scale`` · (``constant`` + Σ terms), with its names."""

    reading: str
    part: str
    constant: float
    terms: Sequence[Term]
    scale: float = 100.0


def worths(effects: Iterable[DataFrame], cutoff: int, bootstrap: Bootstrap) -> DataFrame:
    """What each part of the history is worth, a row per study, group and statement.

    Parameters
    ----------
    effects : rows of interventions.parquet, a frame for each study.
    cutoff : K of NDCG@K and of hits.

    Returns
    -------
    A pooled table (:mod:`lastitem.report.pooling`) with the conditions ``group``
    (``all``; ``tied`` and ``untied`` targets; ``inputs of 2 to 9 items`` and the like),
    ``reading`` and ``part`` (an intervention, or a part of the account). In percent but
    for ``accuracy`` and ``overlap``. What needs an intervention that this study does
    not have is not there.
    """
    tables = [
        _of_group(rows, cutoff, bootstrap).assign(
            **dict(zip(STUDY_COLUMNS, study, strict=True)), group=group
        )
        for rows_of_study in effects
        for study, own in rows_of_study.groupby(STUDY_COLUMNS, sort=False)
        for group, rows in _groups(own)
    ]
    columns = [*STUDY_COLUMNS, "group", "reading", "part", *POOLED, *COUNTS]
    if not tables:
        return DataFrame(columns=columns)
    return pd.concat(tables, ignore_index=True)[columns]


def _groups(rows: DataFrame) -> Iterator[tuple[str, DataFrame]]:
    """The cases of a study in groups: all, by tie, by length of the input; a group that
    holds all is no group.
    """
    yield EVERYONE, rows
    chosen = [(name, rows["tied"] == tied) for name, tied in ((TIED, True), (UNTIED, False))]
    for number in sorted(set(rows["length_group"])):
        here = rows["length_group"] == number
        shortest, longest = rows.loc[here, "input_length"].agg(["min", "max"])
        span = f"{shortest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
        chosen.append((f"inputs of {span} item{'s' * (longest > 1)}", here))
    for name, here in chosen:
        if here.any() and not here.all():
            yield name, rows[here]


def _of_group(rows: DataFrame, cutoff: int, bootstrap: Bootstrap) -> DataFrame:
    """All statements about the cases of one study and group."""
    cases = _measured(rows, cutoff)
    names = list(dict.fromkeys(cases["intervention"]))
    statements = list(_statements(names))
    columns = list(dict.fromkeys(term[1:] for each in statements for term in each.terms))
    user, seed = (np.unique(cases[name], return_inverse=True)[1] for name in ("user", "seed"))
    of_name = {name: np.flatnonzero(cases["intervention"] == name) for name in names}

    def ratios(unit: Ints) -> tuple[Floats, Floats]:
        """Numerator and denominator [units, columns]."""
        sums = np.zeros((2, int(unit.max()) + 1, len(columns)))
        for place, (quantity, intervention) in enumerate(columns):
            here = of_name[intervention]
            for side, name in enumerate(_SIDES[quantity]):
                weight = cases[name].to_numpy(dtype=np.float64)[here]
                sums[side, :, place] = np.bincount(unit[here], weight, minlength=sums.shape[1])
        return sums[0], sums[1]

    of_users, of_seeds = ratios(user), ratios(seed)
    drawn = resampled_ratios(*of_users, resamples=bootstrap.resamples, seed=bootstrap.seed)
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = (of_users[0].sum(axis=0) / of_users[1].sum(axis=0))[None]
        by_seed = of_seeds[0] / of_seeds[1]
    table = DataFrame([each[:2] for each in statements], columns=["reading", "part"])
    said = [_said(statements, columns, found) for found in (whole, drawn, by_seed)]
    low, high = percentiles(said[1], 0.95)
    spread = said[2].std(axis=0, ddof=1) if len(said[2]) > 1 else np.full(len(table), np.nan)
    table[POOLED] = np.column_stack([said[0][0], low, high, spread])
    counts = {name: _counted(cases.iloc[here]) for name, here in of_name.items()}
    counted = [counts[each.terms[0].intervention] for each in statements]
    return table.assign(**dict(zip(COUNTS, zip(*counted, strict=True), strict=True)))


#: Quantity → its numerator and denominator, columns of :func:`_measured`.
_SIDES = {
    _COMMON: ("common_value", "common_ordered"),
    _PLAIN: ("value", "ordered"),
    ACCURACY: ("value", "one"),
    UNCHANGED: ("unchanged", "one"),
    HIT: ("hit", "one"),
    OVERLAP: ("overlap", "has_overlap"),
}


def _measured(rows: DataFrame, cutoff: int) -> DataFrame:
    """A row per run, intervention and case: NDCG under the intervention and of the
    ordered input, means over repeats.
    """
    by_case = [*RUN_COLUMNS, "case"]
    ranks = {
        "value": "target_rank",
        "common_value": "common_target_rank",
        "common_ordered": "common_ordered_rank",
    }
    known = rows["overlap"].notna()
    rows = rows.assign(
        **{name: per_user("ndcg", rows[rank].to_numpy(), cutoff) for name, rank in ranks.items()},
        overlap=rows["overlap"].fillna(0.0),
        has_overlap=known,
        hit=hits(rows["common_target_rank"].to_numpy(), cutoff)
        | hits(rows["common_ordered_rank"].to_numpy(), cutoff),
    )
    columns = [*ranks, "unchanged", "overlap", "has_overlap", "hit"]
    cases = mean_over_repeats(rows, ["intervention"], columns).assign(one=1.0)
    cases["hit"] = cases["hit"] > 0
    ordered = cases.loc[cases["intervention"] == ORDERED, [*by_case, "value"]]
    return cases.merge(ordered.rename(columns={"value": "ordered"}), on=by_case)


def _statements(names: Sequence[str]) -> Iterator[Statement]:
    """What can be said with these interventions."""
    for name in names:
        yield Statement(ACCURACY, name, 0.0, [Term(1, ACCURACY, name)], scale=1.0)
    for name in names:
        if name != ORDERED:
            yield Statement(CHANGE, name, -1.0, [Term(1, _COMMON, name)])
            yield Statement(CHANGE_OF_ACCURACY, name, -1.0, [Term(1, _PLAIN, name)])
            yield Statement(UNCHANGED, name, 0.0, [Term(1, UNCHANGED, name)])
            yield Statement(HIT, name, 0.0, [Term(1, HIT, name)])
    for name in OVERLAPPING:
        if name in names:
            yield Statement(OVERLAP, name, 0.0, [Term(1, OVERLAP, name)], scale=1.0)
    for reading, part, constant, terms in _SUMS:
        if all(name in names for name, _ in terms):
            own = [Term(sign, _COMMON, name) for name, sign in terms]
            yield Statement(reading, part, constant, own)


#: Reading, part, constant, and the ratios r with their factors. The first ratio says
#: whose cases are counted.
_SUMS: tuple[tuple[str, str, float, tuple[tuple[str, float], ...]], ...] = (
    (ACCOUNT, ORDER, 1.0, (("partial", -1),)),
    (ACCOUNT, ITEMS, 0.0, (("partial", 1), ("strangers_context", -1))),
    (ACCOUNT, LAST, 0.0, (("strangers_context", 1), ("stranger", -1))),
    (ACCOUNT, REST, 0.0, (("stranger", 1),)),
    (LAST_FIRST, LAST, 1.0, (("strangers_last", -1),)),
    (LAST_FIRST, BEFORE, 0.0, (("strangers_last", 1), ("stranger", -1))),
    (LAST_FIRST, REST, 0.0, (("stranger", 1),)),
    (
        INTERACTION,
        "of the last item and those before",
        1.0,
        (("strangers_context", -1), ("strangers_last", -1), ("stranger", 1)),
    ),
    (BEYOND, "full", 0.0, (("full", 1), ("partial", -1))),
    # Twice what a stranger's context leaves, less what both ends of the account have.
    (LARGER, LAST_REPLACED_SECOND, -1.0, (("strangers_context", 2), ("stranger", -1))),
    (LARGER, LAST_REPLACED_FIRST, 1.0, (("strangers_last", -2), ("stranger", 1))),
)


def _said(
    statements: Sequence[Statement], columns: Sequence[tuple[str, str]], ratios: Floats
) -> Floats:
    """[draws, statements] of ratios [draws, columns]."""
    place = {column: number for number, column in enumerate(columns)}
    said = np.empty((len(ratios), len(statements)))
    for number, each in enumerate(statements):
        value = np.full(len(ratios), each.constant)
        with np.errstate(invalid="ignore"):  # Infinite ratios, left out below.
            for term in each.terms:
                value = value + term.sign * ratios[:, place[term[1:]]]
        said[:, number] = each.scale * np.where(np.isfinite(value), value, np.nan)
    return said


def _counted(cases: DataFrame) -> tuple[int, int, int]:
    """Trainings, users, and cases of one training."""
    trainings = cases["seed"].nunique()
    return trainings, cases["user"].nunique(), round(len(cases) / trainings)


def yardsticks(
    ranks: DataFrame,
    evaluations: Sequence[Mapping[str, Any]],
    cutoff: int,
    baselines: Sequence[str],
    bootstrap: Bootstrap,
) -> DataFrame:
    """How much of a model's accuracy each yardstick has: Σ NDCG of the yardstick / Σ
    NDCG of the model, paired over users.

    Parameters
    ----------
    ranks : rows of ranks.parquet.
    evaluations : evaluation.json of each run.
    baselines : names of the yardsticks.

    Returns
    -------
    A pooled table with the condition ``yardstick``; beside it its mean
    ``validation_ndcg``, whether it ``reads_last_item_only``, and whether it is
    ``best_on_validation`` of those that do. Both are taken with the same seeds.
    """
    of_run = DataFrame(evaluations)[[*RUN_COLUMNS, "validation_ndcg", "reads_last_item_only"]]
    facts = of_run.groupby(STUDY_COLUMNS, sort=False)[of_run.columns[4:]].mean().reset_index()
    facts = facts[facts["model"].isin(baselines)].rename(columns={"model": "yardstick"})
    alone = facts["validation_ndcg"].where(facts["reads_last_item_only"] == 1)
    best = alone.groupby([facts["dataset"], facts["split"]]).transform("max")
    facts = facts.assign(
        reads_last_item_only=facts["reads_last_item_only"] == 1, best_on_validation=alone == best
    )
    ranks = ranks.assign(value=per_user("ndcg", ranks["target_rank"].to_numpy(), cutoff))
    is_yardstick = ranks["model"].isin(baselines)
    by_case = ["dataset", "split", "seed", "case", "user"]
    theirs = ranks.loc[is_yardstick, [*by_case, "model", "value"]]
    paired = ranks[~is_yardstick].merge(
        theirs.rename(columns={"model": "yardstick", "value": "value_of_yardstick"}), on=by_case
    )
    frame = measured(paired, paired["value_of_yardstick"], paired["value"], ["yardstick"])
    # What is without a hit of the model counts as well: the yardstick may have one.
    found = summarize(frame, ["yardstick"], bootstrap)
    of_pair = paired.groupby([*STUDY_COLUMNS, "yardstick"], sort=False)
    behind = DataFrame({"trainings": of_pair["seed"].nunique(), "users": of_pair["user"].nunique()})
    behind["cases"] = (of_pair.size() / behind["trainings"]).round().astype(int)
    keys = pd.MultiIndex.from_frame(found[[*STUDY_COLUMNS, "yardstick"]])
    found[COUNTS] = behind.reindex(keys).to_numpy()
    return found.merge(facts, on=["dataset", "split", "yardstick"], how="left")
