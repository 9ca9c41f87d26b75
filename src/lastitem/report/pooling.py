"""Pooling over users and seeds: a mean, rate or relative change, with its interval.

A pooled table has the columns of a study (dataset, split, model), those of its
conditions, and

``value``
    Σ numerator / Σ denominator over all cases and seeds (a mean, a rate or a relative
    change); empty where nothing is there to divide by
``ci_low``, ``ci_high``
    95 % bootstrap interval over users; a user's cases and seeds stay together
``sd_seeds``
    standard deviation of the value over seeds; empty with one seed
``trainings``, ``users``, ``cases``
    how many stand behind it; cases are those of one training (their mean over seeds)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas import DataFrame, Series

from lastitem.arrays import Floats
from lastitem.evaluation.metrics import per_user
from lastitem.evaluation.recovery import hits
from lastitem.report.uncertainty import bootstrap_ratio, sign_flip_test
from lastitem.study.interventions import ORDERED
from lastitem.study.runs import RUN_COLUMNS, STUDY_COLUMNS

INTERVAL = ["value", "ci_low", "ci_high"]
POOLED, COUNTS = [*INTERVAL, "sd_seeds"], ["trainings", "users", "cases"]


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are drawn."""

    resamples: int = 1000
    seed: int = 0


def summarize(
    frame: DataFrame, conditions: Sequence[str], bootstrap: Bootstrap, permutations: int = 0
) -> DataFrame:
    """Pool ``numerator`` over ``denominator`` for each study row and condition.

    Parameters
    ----------
    frame : a row per run, condition and case: the run's columns, ``conditions``,
        ``user``, ``numerator``, ``denominator``. A case whose denominator is 0 is out
        of the measure.
    permutations : if numerators are paired differences, adds ``p`` of
        :func:`lastitem.report.uncertainty.sign_flip_test` over users.

    Returns
    -------
    The pooled table described above, in order of appearance.
    """
    tables = []
    for study, group in frame.groupby(STUDY_COLUMNS, sort=False):
        table = _pool(group, list(conditions), bootstrap, permutations)
        for place, (column, name) in enumerate(zip(STUDY_COLUMNS, study, strict=True)):
            table.insert(place, column, name)
        tables.append(table)
    if tables:
        return pd.concat(tables, ignore_index=True)
    tested = ["p"] if permutations else []
    return DataFrame(columns=[*STUDY_COLUMNS, *conditions, *POOLED, *COUNTS, *tested])


def _pool(
    group: DataFrame, conditions: list[str], bootstrap: Bootstrap, permutations: int
) -> DataFrame:
    """What :func:`summarize` says of one dataset, split and model."""
    seed, seeds = pd.factorize(group["seed"])
    weights = (group["numerator"], group["denominator"], group["denominator"] != 0)
    table, (numerator, denominator, present) = sums(group, conditions, seed, weights)
    of_users = numerator.sum(axis=2), denominator.sum(axis=2)
    low, high = bootstrap_ratio(*of_users, resamples=bootstrap.resamples, seed=bootstrap.seed)
    # A condition may have fewer seeds than others of its study: two models are compared
    # on those that both have.
    has = (present > 0).any(axis=0)
    count = has.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        by_seed = np.ma.masked_array(finite(numerator.sum(axis=0) / denominator.sum(axis=0)), ~has)
        value = finite(numerator.sum(axis=(0, 2)) / denominator.sum(axis=(0, 2)))
    spread = np.full(len(table), np.nan)
    if len(seeds) > 1:
        spread = np.where(count > 1, np.ma.filled(by_seed.std(axis=1, ddof=1), np.nan), np.nan)
    cases = (present.sum(axis=(0, 2)) / np.maximum(count, 1)).round().astype(int)
    counts = count, (present.sum(axis=2) > 0).sum(axis=0), cases
    table[POOLED] = np.column_stack([value, low, high, spread])
    table = table.assign(**dict(zip(COUNTS, counts, strict=True)))
    if permutations:
        table["p"] = sign_flip_test(of_users[0], permutations=permutations, seed=bootstrap.seed)
    return table


def sums(
    group: DataFrame, conditions: list[str], part: NDArray[Any], weights: Iterable[Any]
) -> tuple[DataFrame, list[Floats]]:
    """The distinct conditions, and of each weight of the rows its sums, float64 [users,
    conditions, parts]; ``part`` is a code from 0.
    """
    user = np.unique(group["user"].to_numpy(), return_inverse=True)[1]
    condition, keys = pd.factorize(pd.MultiIndex.from_frame(group[conditions]))
    codes = (user, condition, part)
    shape = [int(code.max()) + 1 for code in codes]
    cell, cells = np.ravel_multi_index(codes, shape), int(np.prod(shape))
    found = (np.bincount(cell, weights=weight, minlength=cells) for weight in weights)
    table = keys.to_frame(index=False).set_axis(conditions, axis=1)
    return table, [total.astype(np.float64).reshape(shape) for total in found]


def measured(
    frame: DataFrame,
    numerator: object,
    denominator: object,
    conditions: Sequence[str] = (),
    **constant: object,
) -> DataFrame:
    """What :func:`summarize` takes: a row per row of ``frame`` with numerator and
    denominator, ``conditions`` kept, ``constant`` added.
    """
    kept = frame[[*RUN_COLUMNS, *conditions, "user"]].copy()
    kept["numerator"] = np.asarray(numerator, dtype=np.float64)
    kept["denominator"] = np.asarray(denominator, dtype=np.float64)
    return kept.assign(**constant)


def last_items(ranks: DataFrame, cutoff: int, conditions: Sequence[str] = ()) -> list[DataFrame]:
    """What :func:`summarize` takes for HRLI@K and HRL2I@K (condition ``measure``);
    users with one input item are out of the second.
    """
    return [
        measured(ranks, hits(rank, cutoff), rank > 0, conditions, measure=measure)
        for measure, rank in (
            ("HRLI", ranks["last_rank"].to_numpy()),
            ("HRL2I", ranks["last_but_one_rank"].to_numpy()),
        )
    ]


def finite(ratio: Floats) -> Floats:
    """Without what was divided by zero: something gained over nothing is no ratio
    either.
    """
    return np.where(np.isfinite(ratio), ratio, np.nan)


def against_ordered(effects: DataFrame, metric: str, cutoff: int) -> DataFrame:
    """A row per case and intervention: ``metric_value``, its mean over repeats; beside
    it ``metric_value_ordered``. For interventions that bring in no items of others.
    """
    effects = effects.assign(metric_value=per_user(metric, effects["target_rank"], cutoff))
    effects = mean_over_repeats(effects, ["intervention"], ["metric_value"])
    by_case = [*RUN_COLUMNS, "case"]
    ordered = effects.loc[effects["intervention"] == ORDERED, [*by_case, "metric_value"]]
    ordered = ordered.rename(columns={"metric_value": "metric_value_ordered"})
    return effects.merge(ordered, on=by_case, validate="many_to_one")


def in_percent(summary: DataFrame) -> DataFrame:
    """Rows whose measure is a change in percent against the ordered input: times 100,
    less the 100 that stand for no change.
    """
    summary, of_percent = summary.copy(), summary["measure"].str.endswith("%")
    summary.loc[of_percent, POOLED] *= 100.0
    summary.loc[of_percent, INTERVAL] -= 100.0
    return summary


def count_everyone(
    summary: DataFrame, rows: Series, measure: str, conditions: Sequence[str]
) -> DataFrame:
    """The summary with the counts of another measure in some rows: those of a change
    are all, not those with something to lose.
    """
    keys = [*STUDY_COLUMNS, *conditions]
    everyone = summary[summary["measure"] == measure].set_index(keys)[COUNTS]
    counts = everyone.loc[pd.MultiIndex.from_frame(summary.loc[rows, keys])]
    summary.loc[rows, COUNTS] = counts.to_numpy()
    return summary


def mean_over_repeats(
    frame: DataFrame, conditions: Sequence[str], columns: Sequence[str]
) -> DataFrame:
    """A row per run, condition and case: means of the columns over the repeats."""
    return (
        frame.groupby([*RUN_COLUMNS, *conditions, "case", "user"], sort=False)[list(columns)]
        .mean()
        .reset_index()
    )
