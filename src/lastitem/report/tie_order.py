"""The tie-order study: what the order of events with equal time does to the headline
measures.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from pandas import DataFrame

from lastitem.report.pooling import (
    INTERVAL,
    Bootstrap,
    against_ordered,
    count_everyone,
    finite,
    in_percent,
    last_items,
    measured,
    summarize,
    sums,
)
from lastitem.report.uncertainty import bootstrap_difference, holm, swap_test
from lastitem.study.interventions import ORDERED
from lastitem.study.runs import (
    RUN_COLUMNS,
    STUDY_COLUMNS,
    TARGET_GROUPS,
    TIE_ORDER_MEASURES,
    TIES_DIFFERENCE,
)


def tie_order(
    ranks: DataFrame,
    effects: Iterable[DataFrame],
    user_ids: Mapping[str, Sequence[str]],
    cutoff: int,
    bootstrap: Bootstrap,
    permutations: int,
) -> DataFrame:
    """The headline measures by the order of ties, for all targets, tied and untied
    ones, and what the order makes of them.

    Parameters
    ----------
    ranks : rows of ranks.parquet of the runs of the tie-order study; their datasets are
        named ``{dataset}.ties-item`` or ``{dataset}.ties-random-{draw}``.
    effects : rows of their interventions.parquet, a frame for each study.
    user_ids : dataset (so named) → original id of each user code: users are paired by
        id, since the filter may keep others where a repeat of an item hinges on a tie.

    Returns
    -------
    Conditions ``ties`` (``item``, ``random``, ``item - random``), ``targets`` and
    ``measure``. Trainings on several random orders count like seeds: they are pooled,
    and ``sd_seeds`` and ``trainings`` are over all of an order. The difference of
    two means over trainings is over the users of both orders (whose target is tied, or
    untied, in both), ``p`` of a test that swaps a user's two sides, ``p_holm``
    corrected for all differences; both are empty in other rows.
    """
    by_case = [*RUN_COLUMNS, "case"]
    shuffles = (rows[rows["intervention"].isin([ORDERED, "partial", "full"])] for rows in effects)
    shuffled = pd.concat([against_ordered(rows, "ndcg", cutoff) for rows in shuffles]).merge(
        ranks[[*by_case, "tied"]], on=by_case, validate="many_to_one"
    )
    parts = []
    for measure, order in (
        ("NDCG", ORDERED),
        ("partial shuffle, %", "partial"),
        ("full shuffle, %", "full"),
    ):
        rows = shuffled[shuffled["intervention"] == order]
        against = np.ones(len(rows)) if order == ORDERED else rows["metric_value_ordered"]
        parts.append(measured(rows, rows["metric_value"], against, ["tied"], measure=measure))
    frame = pd.concat([*parts, *last_items(ranks, cutoff, ["tied"])])
    ids = frame.groupby("dataset", sort=False)["user"].transform(
        lambda codes: np.asarray(user_ids[codes.name])[codes]
    )
    frame = _by_tie_order(frame.assign(user=pd.factorize(ids)[0]))
    tied = np.where(frame["tied"], "tied", "untied")
    frame = pd.concat([frame.assign(targets="all"), frame.assign(targets=tied)])

    conditions = ["ties", "targets", "measure"]
    under_each = in_percent(summarize(frame, conditions, bootstrap))
    under_each = count_everyone(
        under_each, under_each["measure"].str.endswith("%"), "NDCG", ["ties", "targets"]
    )
    table = pd.concat(
        [under_each, _tie_differences(frame, bootstrap, permutations)], ignore_index=True
    )
    columns = [*STUDY_COLUMNS, *conditions]
    names = [*TARGET_GROUPS, "item", "random", TIES_DIFFERENCE, *TIE_ORDER_MEASURES]
    rank = {name: place for place, name in enumerate(names)}
    table = table.sort_values(
        columns, key=lambda column: column.map(lambda value: rank.get(value, value)), kind="stable"
    )
    return table[[*columns, *(column for column in table if column not in columns)]].reset_index(
        drop=True
    )


def _tie_differences(frame: DataFrame, bootstrap: Bootstrap, permutations: int) -> DataFrame:
    """Item order less random order of every measure: means over trainings, for the
    users of both.
    """
    tables = []
    for study, group in frame.groupby(STUDY_COLUMNS, sort=False):
        trainings = group.groupby("ties")["seed"].nunique()
        if set(trainings.index) != {"item", "random"}:
            continue
        side, share = group["ties"] == "random", 1.0 / group["ties"].map(trainings)
        # A user without accuracy may gain from a shuffle; one without a last but one
        # item has no hit rate of it.
        counted = (group["denominator"] != 0) | group["measure"].str.endswith("%")
        weights = (share * weight for weight in (group["numerator"], group["denominator"], counted))
        table, totals = sums(group, ["targets", "measure"], side.to_numpy(np.int64), weights)
        cases = totals.pop()
        in_both = (cases > 0).all(axis=2, keepdims=True)
        numerator, denominator = (np.where(in_both, total, 0.0) for total in totals)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = finite(numerator.sum(axis=0) / denominator.sum(axis=0))
        table = table.assign(**dict(zip(STUDY_COLUMNS, study, strict=True)), ties=TIES_DIFFERENCE)
        table["value"] = value[:, 0] - value[:, 1]
        table["ci_low"], table["ci_high"] = bootstrap_difference(
            numerator, denominator, resamples=bootstrap.resamples, seed=bootstrap.seed
        )
        table.loc[table["measure"].str.endswith("%"), INTERVAL] *= 100.0
        table["trainings"], table["users"] = int(trainings.sum()), in_both.sum(axis=(0, 2))
        table["cases"] = np.where(in_both, cases, 0.0)[:, :, 0].sum(axis=0).round().astype(int)
        table["p"] = swap_test(
            numerator, denominator, permutations=permutations, seed=bootstrap.seed
        )
        tables.append(table)
    if not tables:
        return DataFrame(columns=["p", "p_holm"])
    differences = pd.concat(tables, ignore_index=True)
    known = differences["p"].notna()
    differences.loc[known, "p_holm"] = holm(differences.loc[known, "p"].to_numpy(dtype=np.float64))
    return differences


def _by_tie_order(frame: DataFrame) -> DataFrame:
    """The dataset without its order; ``ties`` names the order, and each training on one
    of several has a number of its own as its seed.
    """
    named = frame["dataset"].str.extract(
        r"^(?P<dataset>.+)\.ties-(?P<ties>item|random)(?:-(?P<draw>\d+))?$"
    )
    training = frame["seed"].astype(str) + "/" + named["draw"].fillna("")
    return frame.assign(
        dataset=named["dataset"], ties=named["ties"], seed=pd.factorize(training)[0]
    )
