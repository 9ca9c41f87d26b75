"""Readings of run tables: means over users and seeds with their spread, tidy, one row a
fact.

Each summary has the columns of a study (dataset, split, model), those of its
conditions, and

``value``
    Σ numerator / Σ denominator over all cases and seeds (a mean, a rate or a relative
    change); empty where nothing is there to divide by
``ci_low``, ``ci_high``
    95 % bootstrap interval over users; a user's cases and seeds stay together
``sd_seeds``
    standard deviation of the value over seeds; empty with one seed
``seeds``, ``users``, ``cases``
    how many stand behind it; cases are those of one seed (their mean over seeds)
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lastitem.evaluation.metrics import RANK_METRICS, per_user
from lastitem.evaluation.recovery import READOUT_OFFSETS, choose_scale, hits, recoverable, recovery
from lastitem.report.uncertainty import bootstrap_ratio, holm, sign_flip_test
from lastitem.study.runs import RUN_COLUMNS

STUDY_COLUMNS = ["dataset", "split", "model"]


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are drawn."""

    resamples: int = 1000
    seed: int = 0

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add --resamples and --bootstrap-seed."""
        parser.add_argument("--resamples", required=True, type=int, help="bootstrap samples")
        parser.add_argument("--bootstrap-seed", required=True, type=int)

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> Bootstrap:
        """The bootstrap that the parsed options ask for."""
        return cls(arguments.resamples, arguments.bootstrap_seed)


def summarize(
    frame: pd.DataFrame, conditions: Sequence[str], bootstrap: Bootstrap, permutations: int = 0
) -> pd.DataFrame:
    """Summarize ``numerator`` over ``denominator`` for each study row and condition.

    Parameters
    ----------
    frame : a row per run, condition and case: the run's columns, ``conditions``,
        ``user``, ``numerator``, ``denominator``. A case whose denominator is 0 is out
        of the measure.
    permutations : if numerators are paired differences, adds ``p`` of
        :func:`lastitem.report.uncertainty.sign_flip_test` over users.

    Returns
    -------
    The tidy summary described above, in order of appearance.
    """
    columns = [
        *STUDY_COLUMNS,
        *conditions,
        "value",
        "ci_low",
        "ci_high",
        "sd_seeds",
        "seeds",
        "users",
        "cases",
    ]
    summaries = []
    for study, group in frame.groupby(STUDY_COLUMNS, sort=False):
        users, user = np.unique(group["user"].to_numpy(), return_inverse=True)
        condition, keys = pd.factorize(pd.MultiIndex.from_frame(group[list(conditions)]))
        seed, seeds = pd.factorize(group["seed"])
        shape = (len(users), len(keys), len(seeds))
        cell = np.ravel_multi_index((user, condition, seed), shape)
        numerator, denominator, present = (
            np.bincount(cell, weights=weights, minlength=int(np.prod(shape))).reshape(shape)
            for weights in (group["numerator"], group["denominator"], group["denominator"] != 0)
        )
        low, high = bootstrap_ratio(
            numerator.sum(axis=2),
            denominator.sum(axis=2),
            resamples=bootstrap.resamples,
            seed=bootstrap.seed,
        )
        # A condition may have fewer seeds than others of its study: two models are
        # compared on those that both have.
        has = (present > 0).any(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            by_seed = np.ma.masked_array(
                finite(numerator.sum(axis=0) / denominator.sum(axis=0)), ~has
            )
            value = finite(numerator.sum(axis=(0, 2)) / denominator.sum(axis=(0, 2)))
        summary = keys.to_frame(index=False).set_axis(list(conditions), axis=1)
        for place, (column, name) in enumerate(zip(STUDY_COLUMNS, study, strict=True)):
            summary.insert(place, column, name)
        summary["value"], summary["ci_low"], summary["ci_high"] = value, low, high
        count = has.sum(axis=1)
        spread = (
            np.ma.filled(by_seed.std(axis=1, ddof=1), np.nan)
            if len(seeds) > 1
            else np.full(len(keys), np.nan)
        )
        summary["sd_seeds"] = np.where(count > 1, spread, np.nan)
        summary["seeds"] = count
        summary["users"] = (present.sum(axis=2) > 0).sum(axis=0)
        summary["cases"] = (present.sum(axis=(0, 2)) / np.maximum(count, 1)).round().astype(int)
        if permutations:
            summary["p"] = sign_flip_test(
                numerator.sum(axis=2), permutations=permutations, seed=bootstrap.seed
            )
        summaries.append(summary)
    if not summaries:
        return pd.DataFrame(columns=[*columns, "p"] if permutations else columns)
    return pd.concat(summaries, ignore_index=True)


def measured(
    frame: pd.DataFrame,
    numerator: object,
    denominator: object,
    conditions: Sequence[str] = (),
    **constant: object,
) -> pd.DataFrame:
    """What :func:`summarize` takes: a row per row of ``frame`` with numerator and
    denominator, ``conditions`` kept, ``constant`` added.
    """
    kept = frame[[*RUN_COLUMNS, *conditions, "user"]].copy()
    kept["numerator"] = np.asarray(numerator, dtype=np.float64)
    kept["denominator"] = np.asarray(denominator, dtype=np.float64)
    return kept.assign(**constant)


def finite(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    """Without what was divided by zero: something gained over nothing is no ratio
    either.
    """
    return np.where(np.isfinite(ratio), ratio, np.nan)


def accuracy(ranks: pd.DataFrame, cutoffs: Sequence[int], bootstrap: Bootstrap) -> pd.DataFrame:
    """NDCG@K, HR@K and MRR@K (conditions ``metric``, ``cutoff``) from the ranks of test
    targets.
    """
    parts = []
    for metric in RANK_METRICS:
        for cutoff in cutoffs:
            value = per_user(metric, ranks["target_rank"].to_numpy(), cutoff)
            parts.append(measured(ranks, value, np.ones(len(ranks)), metric=metric, cutoff=cutoff))
    return summarize(pd.concat(parts), ["metric", "cutoff"], bootstrap)


def last_item_hit_rates(
    ranks: pd.DataFrame, cutoff: int, bootstrap: Bootstrap, conditions: Sequence[str] = ()
) -> pd.DataFrame:
    """HRLI@K and HRL2I@K (condition ``measure``); users with one input item are out of
    HRL2I's denominator.
    """
    parts = []
    for measure, column in (("HRLI", "last_rank"), ("HRL2I", "last_but_one_rank")):
        rank = ranks[column].to_numpy()
        parts.append(measured(ranks, hits(rank, cutoff), rank > 0, conditions, measure=measure))
    return summarize(pd.concat(parts), [*conditions, "measure"], bootstrap)


def shuffle_effects(
    shuffled: pd.DataFrame, metric: str, cutoff: int, bootstrap: Bootstrap
) -> pd.DataFrame:
    """The metric under each order, its relative change against the ordered input, and
    the share of unchanged inputs.

    Conditions: ``order`` and ``measure`` (``value``; ``change_percent``, paired over
    users; ``unchanged_percent``, the share of inputs that are as they were;
    ``hit_percent``, the share of cases that are hit as they were or shuffled, of which
    a change can come; and for the order ``full`` ``beyond_partial_percent``, what it
    changes more than ``partial`` does: what comes of which item is last).
    """
    paired = against_ordered(shuffled, metric, cutoff)
    ones = np.ones(len(paired))
    full = paired[paired["order"] == "full"]
    parts = [
        measured(paired, paired["metric_value"], ones, ["order"], measure="value"),
        measured(
            paired,
            paired["metric_value"],
            paired["metric_value_ordered"],
            ["order"],
            measure="change_percent",
        ),
        measured(paired, paired["unchanged"], ones, ["order"], measure="unchanged_percent"),
        measured(
            paired,
            (paired[["metric_value", "metric_value_ordered"]] > 0).any(axis=1),
            ones,
            ["order"],
            measure="hit_percent",
        ),
        measured(
            full,
            full["metric_value"] - full["metric_value_partial"],
            full["metric_value_ordered"],
            ["order"],
            measure=BEYOND,
        ),
    ]
    # Relative changes keep the users whose ordered value is zero: they may gain from
    # the shuffle.
    summary = in_percent(summarize(pd.concat(parts), ["order", "measure"], bootstrap))
    return count_everyone(summary, summary["measure"].str.endswith("percent"), "value", ["order"])


def count_everyone(
    summary: pd.DataFrame, rows: pd.Series, measure: str, conditions: Sequence[str]
) -> pd.DataFrame:
    """The summary with the counts of another measure in some rows: those of a change
    are all, not those with something to lose.
    """
    keys = [*STUDY_COLUMNS, *conditions]
    everyone = summary[summary["measure"] == measure].set_index(keys)[["users", "cases", "seeds"]]
    counts = everyone.loc[pd.MultiIndex.from_frame(summary.loc[rows, keys])]
    summary.loc[rows, ["users", "cases", "seeds"]] = counts.to_numpy()
    return summary


#: The measure of a full shuffle that says what it changes more than a partial one.
BEYOND = "beyond_partial_percent"


def against_ordered(shuffled: pd.DataFrame, metric: str, cutoff: int) -> pd.DataFrame:
    """A row per case and order: ``metric_value`` and ``unchanged``, means over repeats;
    beside it the value of other orders.
    """
    shuffled = shuffled.assign(
        metric_value=per_user(metric, shuffled["target_rank"].to_numpy(), cutoff)
    )
    shuffled = _mean_over_repeats(shuffled, ["order"], ["metric_value", "unchanged"])
    for order in ("ordered", "partial"):
        other = shuffled.loc[shuffled["order"] == order, [*RUN_COLUMNS, "case", "metric_value"]]
        other = other.rename(columns={"metric_value": f"metric_value_{order}"})
        shuffled = shuffled.merge(
            other, on=[*RUN_COLUMNS, "case"], how="left", validate="many_to_one"
        )
    return shuffled


def in_percent(summary: pd.DataFrame) -> pd.DataFrame:
    """Rows whose measure is in percent, times 100; a change against the ordered input,
    less the 100 that stand for no change.
    """
    summary, spread = summary.copy(), ["value", "ci_low", "ci_high"]
    of_percent = summary["measure"].str.endswith(("percent", "%"))
    summary.loc[of_percent, [*spread, "sd_seeds"]] *= 100.0
    of_change = of_percent & ~summary["measure"].isin(["unchanged_percent", "hit_percent", BEYOND])
    summary.loc[of_change, spread] -= 100.0
    return summary


def mixing_at_readout(
    users: pd.DataFrame, bootstrap: Bootstrap, conditions: Sequence[str] = ()
) -> pd.DataFrame:
    """Mean mixing ratio at the read-out position (conditions ``layer``, ``part`` and
    ``conditions``).
    """
    if users.empty:
        return summarize(
            users.reindex(columns=[*RUN_COLUMNS, "user"]), [*conditions, "layer", "part"], bootstrap
        )
    known = users[users["latest"].notna()]
    return summarize(
        measured(known, known["latest"], np.ones(len(known)), [*conditions, "layer", "part"]),
        [*conditions, "layer", "part"],
        bootstrap,
    )


def average_maps(maps: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds of the attention and AttnResLN maps; ``n`` is the number of users
    behind a cell.
    """
    if maps.empty:
        return pd.DataFrame(
            columns=[*STUDY_COLUMNS, "layer", "query", "source", "attention", "norm", "n", "seeds"]
        )
    cells = maps.groupby([*STUDY_COLUMNS, "layer", "query", "source"], sort=False)
    return cells.agg(
        attention=("attention", "mean"),
        norm=("norm", "mean"),
        n=("n", "first"),
        seeds=("seed", "size"),
    ).reset_index()


def sweep(ranks: pd.DataFrame, cutoff: int, bootstrap: Bootstrap) -> pd.DataFrame:
    """Along λ on the test part: NDCG, HR, HRLI and HRL2I of the ordered input, NDCG of
    shuffled ones.

    Conditions: ``residual_scale`` and ``measure`` (``NDCG``, ``HR``, ``HRLI``,
    ``HRL2I``, ``NDCG partial``, ``NDCG full``).
    """
    if ranks.empty:
        return summarize(ranks, ["residual_scale", "measure"], bootstrap)
    test = ranks[ranks["part"] == "test"]
    ordered = test[test["order"] == "ordered"]
    parts = []
    for measure, metric, order in (
        ("NDCG", "ndcg", "ordered"),
        ("HR", "hr", "ordered"),
        ("NDCG partial", "ndcg", "partial"),
        ("NDCG full", "ndcg", "full"),
    ):
        rows = test[test["order"] == order]
        rows = rows.assign(metric_value=per_user(metric, rows["target_rank"].to_numpy(), cutoff))
        rows = _mean_over_repeats(rows, ["residual_scale"], ["metric_value"])
        parts.append(
            measured(
                rows, rows["metric_value"], np.ones(len(rows)), ["residual_scale"], measure=measure
            )
        )
    accuracies = summarize(pd.concat(parts), ["residual_scale", "measure"], bootstrap)
    return pd.concat(
        [accuracies, last_item_hit_rates(ordered, cutoff, bootstrap, ["residual_scale"])],
        ignore_index=True,
    )


def recovery_curves(ranks: pd.DataFrame, cutoff: int) -> pd.DataFrame:
    """For each run, part and λ: hits, recovery, and what was won and lost against λ =
    1.

    Returns
    -------
    One row per run, ``part`` (validation, test) and ``residual_scale``: ``cases``,
    ``hit_rate``, ``hit_rate_kept`` (relative to λ = 1), ``ndcg``, ``recoverable`` =
    |R|, ``recovered`` = |R hit under λ|, ``recovery``, ``hits_won`` and ``hits_lost``
    against λ = 1. The columns of R are empty for a model whose earlier positions hold
    no earlier prediction; the recovery of nobody is empty, too.
    """
    rows = []
    ordered = (
        ranks[ranks["order"] == "ordered"]
        if len(ranks)
        else ranks.reindex(columns=[*RUN_COLUMNS, "part"])
    )
    for run, group in ordered.groupby([*RUN_COLUMNS, "part"], sort=False):
        at_one = group[group["residual_scale"] == 1.0].sort_values("case")
        back = at_one[[f"target_rank_back_{offset}" for offset in READOUT_OFFSETS[1:]]].to_numpy()
        goes_back = bool((back >= 0).all())
        member = (
            recoverable(np.column_stack([at_one["target_rank"], back]), cutoff)
            if goes_back
            else np.zeros(len(at_one), dtype=bool)
        )
        hit_at_one = hits(at_one["target_rank"].to_numpy(), cutoff)
        for scale, cases in group.groupby("residual_scale", sort=True):
            rank = cases.sort_values("case")["target_rank"].to_numpy()
            hit = hits(rank, cutoff)
            rows.append(
                (
                    *run,
                    scale,
                    len(rank),
                    hit.mean(),
                    hit.sum() / hit_at_one.sum() if hit_at_one.any() else np.nan,
                    per_user("ndcg", rank, cutoff).mean(),
                    member.sum() if goes_back else np.nan,
                    (hit & member).sum() if goes_back else np.nan,
                    recovery(member, rank, cutoff) if member.any() else np.nan,
                    (hit & ~hit_at_one).sum(),
                    (~hit & hit_at_one).sum(),
                )
            )
    names = [
        "cases",
        "hit_rate",
        "hit_rate_kept",
        "ndcg",
        "recoverable",
        "recovered",
        "recovery",
        "hits_won",
        "hits_lost",
    ]
    return pd.DataFrame(rows, columns=[*RUN_COLUMNS, "part", "residual_scale", *names])


def recovery_sweep(ranks: pd.DataFrame, cutoff: int, bootstrap: Bootstrap) -> pd.DataFrame:
    """Along λ on the test part, with intervals: hit rate relative to λ = 1, and
    recovery.

    Conditions: ``residual_scale`` and ``measure`` (``hit_rate_kept``, paired over
    users; ``recovery``, over the users in R). Models without an earlier prediction to
    go back to are left out.
    """
    if ranks.empty:
        return summarize(
            pd.DataFrame(columns=[*RUN_COLUMNS, "user"]), ["residual_scale", "measure"], bootstrap
        )
    return summarize(_recovery_cases(ranks, cutoff), ["residual_scale", "measure"], bootstrap)


def _recovery_cases(ranks: pd.DataFrame, cutoff: int) -> pd.DataFrame:
    """What :func:`recovery_sweep` sums up: a row per run, λ, measure and case of the
    test part.
    """
    test = ranks[(ranks["part"] == "test") & (ranks["order"] == "ordered")]
    back = [f"target_rank_back_{offset}" for offset in READOUT_OFFSETS[1:]]
    at_one = test.loc[
        (test["residual_scale"] == 1.0) & (test[back] >= 0).all(axis=1),
        [*RUN_COLUMNS, "case", "target_rank", *back],
    ]
    at_one = at_one.assign(
        hit_at_one=hits(at_one["target_rank"].to_numpy(), cutoff),
        member=recoverable(at_one[["target_rank", *back]].to_numpy(), cutoff),
    )
    paired = test.merge(
        at_one[[*RUN_COLUMNS, "case", "hit_at_one", "member"]],
        on=[*RUN_COLUMNS, "case"],
        validate="many_to_one",
    )
    hit = hits(paired["target_rank"].to_numpy(), cutoff)
    parts = [
        measured(paired, hit, paired["hit_at_one"], ["residual_scale"], measure="hit_rate_kept"),
        measured(
            paired, hit & paired["member"], paired["member"], ["residual_scale"], measure="recovery"
        ),
    ]
    return pd.concat(parts)


#: In place of a seed: all of a model together.
ALL_SEEDS = "all"


def at_the_choice(
    ranks: pd.DataFrame, choices: pd.DataFrame, cutoff: int, bootstrap: Bootstrap
) -> pd.DataFrame:
    """On the test part at the chosen λ, with intervals: hit rate relative to λ = 1, and
    recovery; of each seed, and of all together.

    Parameters
    ----------
    ranks : rows of rescale.parquet.
    choices : from :func:`chosen_scales`.

    Returns
    -------
    Conditions ``tolerance``, ``selection``, ``seed`` (text; :data:`ALL_SEEDS` where
    there are several) and ``measure`` (as in :func:`recovery_sweep`).
    """
    conditions = ["tolerance", "selection", "of_seed", "measure"]
    cases = pd.DataFrame(columns=[*RUN_COLUMNS, "user", *conditions])
    if len(choices):
        chosen = choices[[*RUN_COLUMNS, "tolerance", "selection", "residual_scale"]]
        each = chosen.merge(_recovery_cases(ranks, cutoff), on=[*RUN_COLUMNS, "residual_scale"])
        several = each.groupby(STUDY_COLUMNS)["seed"].transform("nunique") > 1
        cases = pd.concat(
            [each.assign(of_seed=each["seed"].astype(str)), each[several].assign(of_seed=ALL_SEEDS)]
        )
    return summarize(cases, conditions, bootstrap).rename(columns={"of_seed": "seed"})


def chosen_scales(curves: pd.DataFrame, tolerances: Sequence[float]) -> pd.DataFrame:
    """Choose λ on validation for each tolerance, and read test once for it; beside it
    the oracle that looks at test.

    Parameters
    ----------
    curves : from :func:`recovery_curves`.
    tolerances : ε.

    Returns
    -------
    One row per run, ``tolerance`` and ``selection`` (``validation`` or ``oracle
    (test)``): the chosen ``residual_scale``, and on test its row of the curve, with
    ``hit_rate_at_1`` and ``ndcg_at_1``.
    """
    rows = []
    for run, group in curves[curves["recoverable"].notna()].groupby(RUN_COLUMNS, sort=False):
        parts = {part: table.set_index("residual_scale") for part, table in group.groupby("part")}
        test = parts["test"]
        for tolerance in tolerances:
            for selection, part in (("validation", "validation"), ("oracle (test)", "test")):
                seen = parts[part]
                choice = choose_scale(
                    seen["hit_rate"].to_dict(),
                    seen["recovery"].to_dict(),
                    tolerance,
                    int(seen["recoverable"].iloc[0]),
                )
                at = test.loc[choice.scale]
                rows.append(
                    {
                        **dict(zip(RUN_COLUMNS, run, strict=True)),
                        "tolerance": tolerance,
                        "selection": selection,
                        "residual_scale": choice.scale,
                        **{
                            name: at[name]
                            for name in (
                                "cases",
                                "recoverable",
                                "recovered",
                                "recovery",
                                "hits_won",
                                "hits_lost",
                            )
                        },
                        **{name: at[name] for name in ("hit_rate", "hit_rate_kept")},
                        "hit_rate_at_1": test.loc[1.0, "hit_rate"],
                        "ndcg": at["ndcg"],
                        "ndcg_at_1": test.loc[1.0, "ndcg"],
                        "validation_recoverable": parts["validation"]["recoverable"].iloc[0],
                    }
                )
    return pd.DataFrame(
        rows, columns=None if rows else [*RUN_COLUMNS, "tolerance", "selection", "residual_scale"]
    )


def comparisons(
    ranks: pd.DataFrame,
    shuffled: pd.DataFrame,
    scaled: pd.DataFrame,
    cutoff: int,
    bootstrap: Bootstrap,
    permutations: int,
) -> pd.DataFrame:
    """Every difference the study speaks of, paired over users: shuffled against
    ordered, λ against 1, model against model.

    Parameters
    ----------
    ranks, shuffled, scaled : rows of ranks.parquet, shuffle.parquet and rescale.parquet
        of all runs.

    Returns
    -------
    Conditions ``contrast`` (``shuffle``, ``residual scale``, ``model``), ``condition``,
    ``reference``, ``measure`` (``NDCG``, ``HRLI``); the value is condition − reference,
    ``p`` of a sign-flip test over users, ``p_holm`` corrected for all rows. Two models
    are compared on the seeds that both have. A model without a residual to scale has
    one row, whose ``note`` says so.
    """
    conditions = ["contrast", "condition", "reference", "measure"]
    without = sorted({(*entry[:3], entry[4]) for entry in scaled.attrs.get("not_applicable", ())})
    parts = []
    shuffled = shuffled.assign(NDCG=per_user("ndcg", shuffled["target_rank"].to_numpy(), cutoff))
    shuffled = _mean_over_repeats(shuffled, ["order"], ["NDCG"])
    parts += _differences(
        shuffled, "order", [("partial", "ordered"), ("full", "ordered")], ["NDCG"], "shuffle"
    )
    if len(scaled):
        scaled = scaled[(scaled["part"] == "test") & (scaled["order"] == "ordered")]
        scaled = _with_measures(scaled, cutoff)
        others = sorted(set(scaled["residual_scale"]) - {1.0})
        parts += _differences(
            scaled,
            "residual_scale",
            [(scale, 1.0) for scale in others],
            ["NDCG", "HRLI"],
            "residual scale",
        )
    ranks = _with_measures(ranks, cutoff)
    for first, second in itertools.combinations(dict.fromkeys(ranks["model"]), 2):
        pair = (
            ranks[ranks["model"].isin([first, second])]
            .rename(columns={"model": "compared"})
            .assign(model=first)
        )
        parts += _differences(pair, "compared", [(first, second)], ["NDCG", "HRLI"], "model")
    parts = [part for part in parts if len(part)]
    frame = pd.concat(parts) if parts else pd.DataFrame(columns=[*RUN_COLUMNS, *conditions])
    found = summarize(frame, conditions, bootstrap, permutations)
    found = found.assign(p_holm=holm(found["p"].to_numpy(dtype=np.float64)), note="")
    missing = pd.DataFrame(without, columns=[*STUDY_COLUMNS, "note"]).assign(
        contrast="residual scale"
    )
    return pd.concat([found, missing], ignore_index=True) if len(missing) else found


def _with_measures(ranks: pd.DataFrame, cutoff: int) -> pd.DataFrame:
    return ranks.assign(
        NDCG=per_user("ndcg", ranks["target_rank"].to_numpy(), cutoff),
        HRLI=hits(ranks["last_rank"].to_numpy(), cutoff).astype(np.float64),
    )


def _differences(
    frame: pd.DataFrame,
    condition: str,
    pairs: Sequence[tuple[object, object]],
    measures: Sequence[str],
    contrast: str,
) -> list[pd.DataFrame]:
    by_case = [*RUN_COLUMNS, "case", "user"]
    parts = []
    for one, other in pairs:
        sides = (
            frame.loc[frame[condition] == side, [*by_case, *measures]] for side in (one, other)
        )
        paired = pd.merge(
            *sides, on=by_case, suffixes=("", " of the reference"), validate="one_to_one"
        )
        for measure in measures:
            difference = paired[measure] - paired[f"{measure} of the reference"]
            names = {
                "contrast": contrast,
                "condition": str(one),
                "reference": str(other),
                "measure": measure,
            }
            parts.append(measured(paired, difference, np.ones(len(paired)), **names))
    return parts


def _mean_over_repeats(
    frame: pd.DataFrame, conditions: Sequence[str], columns: Sequence[str]
) -> pd.DataFrame:
    return (
        frame.groupby([*RUN_COLUMNS, *conditions, "case", "user"], sort=False)[list(columns)]
        .mean()
        .reset_index()
    )
