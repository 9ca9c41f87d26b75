"""The summaries of a study: each a function of the rows of runs and of settings, with a
row a fact. Unless it says otherwise, a summary is a pooled table
(:mod:`lastitem.report.pooling`).
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame

from lastitem.evaluation.metrics import RANK_METRICS, per_user
from lastitem.evaluation.recovery import READOUT_OFFSETS, choose_scale, hits, recoverable, recovery

# Summaries, too, in modules of their own.
from lastitem.report.claims import claims as claims
from lastitem.report.pooling import (
    POOLED,
    Bootstrap,
    last_items,
    mean_over_repeats,
    measured,
    summarize,
)
from lastitem.report.tie_order import tie_order as tie_order
from lastitem.report.uncertainty import holm
from lastitem.report.worths import worths as worths
from lastitem.report.worths import yardsticks as yardsticks
from lastitem.study.interventions import ORDERED, TESTED
from lastitem.study.runs import (
    ALL_SEEDS,
    INTERVENTION,
    ON_VALIDATION,
    ORACLE,
    RUN_COLUMNS,
    STUDY_COLUMNS,
)

STATISTICS = (
    "users",
    "items",
    "interactions",
    "avg_length",
    "density_percent",
    "days",
    "tied_transitions_percent",
    "tied_targets_percent",
)
RAW_COUNTS = ("users", "items", "interactions")
#: The metric NDCG over the targets that occur in training.
WITHOUT_COLD = "ndcg without cold targets"
_CURVE = [
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
_BACK = [f"target_rank_back_{offset}" for offset in READOUT_OFFSETS[1:]]


def statistics(cores: Sequence[Mapping[str, Any]]) -> DataFrame:
    """A row per dataset: its order of ties, what is left after filtering, what was read
    (``raw_…``, ``bad_rows``), and the filter's ``minimum_events``; from statistics.json
    of each.
    """
    rows = [
        {
            **{key: core[key] for key in ("dataset", "ties", "minimum_events")},
            **{key: core["core"].get(key) for key in STATISTICS},
            **{f"raw_{key}": core["raw"][key] for key in RAW_COUNTS},
            "bad_rows": sum(core["raw"]["bad_rows"].values()),
        }
        for core in cores
    ]
    return DataFrame(rows)


def accuracy(
    ranks: DataFrame,
    evaluations: Sequence[Mapping[str, Any]],
    cutoffs: Sequence[int],
    bootstrap: Bootstrap,
) -> DataFrame:
    """:func:`accuracy_of_ranks`, and as one more ``metric`` the coverage; beside each
    the counts of cold and lost targets, and of cases that are hardly learned or cut
    short (in the seed with most).

    Parameters
    ----------
    ranks : rows of ranks.parquet.
    evaluations : evaluation.json of each run.
    """
    counts = DataFrame(evaluations)
    covered = DataFrame(
        [
            {**{key: entry[key] for key in RUN_COLUMNS}, "cutoff": int(cutoff), "covered": share}
            for entry in evaluations
            for cutoff, share in entry["coverage"].items()
        ]
    )
    covered = counts.drop(columns="coverage").merge(covered, on=RUN_COLUMNS)
    coverage = _over_seeds(
        covered,
        ["cutoff"],
        value=("covered", "mean"),
        sd_seeds=("covered", "std"),
        trainings=("seed", "size"),
        users=("users", "first"),
        cases=("targets", "first"),
    )
    lost = ["cold_targets", "targets_lost_to_filter", "filter_seen"]
    # These depend on the training.
    learned = ["hardly_learned", "cut_short"]
    of_study = counts.groupby(STUDY_COLUMNS, sort=False)
    per_study = of_study[lost].first().join(of_study[learned].max()).reset_index()
    found = [accuracy_of_ranks(ranks, cutoffs, bootstrap), coverage.assign(metric="coverage")]
    return pd.concat(found, ignore_index=True).merge(per_study, on=STUDY_COLUMNS)


def accuracy_of_ranks(ranks: DataFrame, cutoffs: Sequence[int], bootstrap: Bootstrap) -> DataFrame:
    """NDCG@K, HR@K and MRR@K (conditions ``metric``, ``cutoff``) from the ranks of test
    targets; where some are cold, NDCG@K once more without them.
    """
    parts = []
    known = ranks[~ranks["cold"]] if "cold" in ranks else ranks
    for metric, cutoff in itertools.product(RANK_METRICS, cutoffs):
        value = per_user(metric, ranks["target_rank"].to_numpy(), cutoff)
        parts.append(measured(ranks, value, np.ones(len(ranks)), metric=metric, cutoff=cutoff))
    if 0 < len(known) < len(ranks):
        for cutoff in cutoffs:
            value = per_user("ndcg", known["target_rank"].to_numpy(), cutoff)
            ones = np.ones(len(known))
            parts.append(measured(known, value, ones, metric=WITHOUT_COLD, cutoff=cutoff))
    return summarize(pd.concat(parts), ["metric", "cutoff"], bootstrap)


def last_item_hit_rates(
    ranks: DataFrame, cutoff: int, bootstrap: Bootstrap, conditions: Sequence[str] = ()
) -> DataFrame:
    """HRLI@K and HRL2I@K (condition ``measure``); users with one input item are out of
    HRL2I's denominator.
    """
    cases = pd.concat(last_items(ranks, cutoff, conditions))
    return summarize(cases, [*conditions, "measure"], bootstrap)


def attention_maps(maps: DataFrame) -> DataFrame:
    """Mean over seeds of the attention and AttnResLN maps; ``n`` is the number of users
    behind a cell.
    """
    return _over_seeds(
        maps,
        ["layer", "query", "source"],
        attention=("attention", "mean"),
        norm=("norm", "mean"),
        n=("n", "first"),
        trainings=("seed", "size"),
    )


def mixing_ratios(ratios: DataFrame) -> DataFrame:
    """Means over seeds of what mixing.parquet says of each layer, part and positions:
    ``mean``, ``median`` and ``sd`` over users, ``n``, and the spread over seeds.
    """
    return _over_seeds(
        ratios,
        ["layer", "part", "positions"],
        mean=("mean", "mean"),
        median=("median", "mean"),
        sd=("sd", "mean"),
        n=("n", "first"),
        sd_seeds=("mean", "std"),
        trainings=("seed", "size"),
        single_item_inputs=("single_item_inputs", "first"),
    )


def _over_seeds(
    rows: DataFrame, conditions: Sequence[str], **columns: tuple[str, str]
) -> DataFrame:
    """Aggregates over the seeds of each study and condition: name → column, and what is
    taken of it.
    """
    keys = [*STUDY_COLUMNS, *conditions]
    if rows.empty:
        return DataFrame(columns=[*keys, *columns])
    return rows.groupby(keys, sort=False).agg(**columns).reset_index()


def mixing_at_readout(
    users: DataFrame, bootstrap: Bootstrap, conditions: Sequence[str] = ()
) -> DataFrame:
    """Mean mixing ratio at the read-out position (conditions ``layer``, ``part`` and
    ``conditions``).
    """
    conditions = [*conditions, "layer", "part"]
    if users.empty:
        return summarize(users.reindex(columns=[*RUN_COLUMNS, "user"]), conditions, bootstrap)
    known = users[users["latest"].notna()]
    pooled = measured(known, known["latest"], np.ones(len(known)), conditions)
    return summarize(pooled, conditions, bootstrap)


def mixing_by_scale(users: DataFrame, bootstrap: Bootstrap) -> DataFrame:
    """:func:`mixing_at_readout` along λ (condition ``residual_scale``)."""
    return mixing_at_readout(users, bootstrap, ["residual_scale"]).assign(measure="mixing ratio")


def residual_sweep(ranks: DataFrame, cutoff: int, bootstrap: Bootstrap) -> DataFrame:
    """Along λ on the test part: NDCG, HR, HRLI and HRL2I of the ordered input, NDCG of
    shuffled ones.

    Conditions: ``residual_scale`` and ``measure`` (``NDCG``, ``HR``, ``HRLI``,
    ``HRL2I``, ``NDCG partial``, ``NDCG full``).
    """
    scale = ["residual_scale"]
    if ranks.empty:
        return summarize(ranks, [*scale, "measure"], bootstrap)
    test = ranks[ranks["part"] == "test"]
    parts = []
    for measure, metric, order in (
        ("NDCG", "ndcg", ORDERED),
        ("HR", "hr", ORDERED),
        ("NDCG partial", "ndcg", "partial"),
        ("NDCG full", "ndcg", "full"),
    ):
        rows = test[test["order"] == order]
        rows = rows.assign(metric_value=per_user(metric, rows["target_rank"].to_numpy(), cutoff))
        rows = mean_over_repeats(rows, scale, ["metric_value"])
        value, ones = rows["metric_value"], np.ones(len(rows))
        parts.append(measured(rows, value, ones, scale, measure=measure))
    accuracies = summarize(pd.concat(parts), [*scale, "measure"], bootstrap)
    rates = last_item_hit_rates(test[test["order"] == ORDERED], cutoff, bootstrap, scale)
    return pd.concat([accuracies, rates], ignore_index=True)


def recovery_sweep(ranks: DataFrame, cutoff: int, bootstrap: Bootstrap) -> DataFrame:
    """Along λ on the test part, with intervals: hit rate relative to λ = 1, and
    recovery.

    Conditions: ``residual_scale`` and ``measure`` (``hit_rate_kept``, paired over
    users; ``recovery``, over the users in R). Models without an earlier prediction to
    go back to are left out.
    """
    cases = (
        DataFrame(columns=[*RUN_COLUMNS, "user"]) if ranks.empty else _recovery_cases(ranks, cutoff)
    )
    found = summarize(cases, ["residual_scale", "measure"], bootstrap)
    return found.assign(selection="along λ (test)")


def _recovery_cases(ranks: DataFrame, cutoff: int) -> DataFrame:
    """What :func:`recovery_sweep` pools: a row per run, λ, measure and case of the test
    part.
    """
    test = ranks[(ranks["part"] == "test") & (ranks["order"] == ORDERED)]
    by_case, scale = [*RUN_COLUMNS, "case"], ["residual_scale"]
    known = (test["residual_scale"] == 1.0) & (test[_BACK] >= 0).all(axis=1)
    at_one = test.loc[known, [*by_case, "target_rank", *_BACK]]
    at_one = at_one.assign(
        hit_at_one=hits(at_one["target_rank"].to_numpy(), cutoff),
        member=recoverable(at_one[["target_rank", *_BACK]].to_numpy(), cutoff),
    )
    paired = test.merge(
        at_one[[*by_case, "hit_at_one", "member"]], on=by_case, validate="many_to_one"
    )
    hit, member = hits(paired["target_rank"].to_numpy(), cutoff), paired["member"]
    kept = measured(paired, hit, paired["hit_at_one"], scale, measure="hit_rate_kept")
    return pd.concat([kept, measured(paired, hit & member, member, scale, measure="recovery")])


def recovery_curves(ranks: DataFrame, cutoff: int) -> DataFrame:
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
    rows, runs = [], [*RUN_COLUMNS, "part"]
    ordered = ranks[ranks["order"] == ORDERED] if len(ranks) else ranks.reindex(columns=runs)
    for run, group in ordered.groupby(runs, sort=False):
        at_one = group[group["residual_scale"] == 1.0].sort_values("case")
        goes_back = bool((at_one[_BACK] >= 0).all(axis=None))
        member = goes_back & recoverable(at_one[["target_rank", *_BACK]].to_numpy(), cutoff)
        hit_at_one = hits(at_one["target_rank"].to_numpy(), cutoff)
        for scale, cases in group.groupby("residual_scale", sort=True):
            rank = cases.sort_values("case")["target_rank"].to_numpy()
            hit = hits(rank, cutoff)
            found = (
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
            rows.append((*run, scale, *found))
    found = DataFrame(rows, columns=[*runs, "residual_scale", *_CURVE])
    return found.assign(selection="curve of each seed")


def chosen_scales(curves: DataFrame, tolerances: Sequence[float]) -> DataFrame:
    """Choose λ on validation for each tolerance, and read test once for it; beside it
    the oracle that looks at test.

    Parameters
    ----------
    curves : from :func:`recovery_curves`.
    tolerances : ε.

    Returns
    -------
    One row per run, ``tolerance`` and ``selection`` (:data:`ON_VALIDATION`,
    :data:`ORACLE`): the chosen ``residual_scale``, and on test its row of the curve,
    with ``hit_rate_at_1`` and ``ndcg_at_1``.
    """
    rows = []
    of_test = ["cases", "recoverable", "recovered", "recovery", "hits_won", "hits_lost"]
    of_test += ["hit_rate", "hit_rate_kept"]
    for run, group in curves[curves["recoverable"].notna()].groupby(RUN_COLUMNS, sort=False):
        parts = {part: table.set_index("residual_scale") for part, table in group.groupby("part")}
        test, validation = parts["test"], parts["validation"]
        for tolerance, (selection, part) in itertools.product(
            tolerances, ((ON_VALIDATION, "validation"), (ORACLE, "test"))
        ):
            # A λ above 1 is shown, and never chosen: it is no weaker residual.
            allowed = parts[part][parts[part].index <= 1.0]
            rate, gain, size = (
                allowed[column] for column in ("hit_rate", "recovery", "recoverable")
            )
            scale = choose_scale(rate.to_dict(), gain.to_dict(), tolerance, int(size.iloc[0])).scale
            rows.append(
                {
                    **dict(zip(RUN_COLUMNS, run, strict=True)),
                    "tolerance": tolerance,
                    "selection": selection,
                    "residual_scale": scale,
                    **test.loc[scale, of_test],
                    "hit_rate_at_1": test.loc[1.0, "hit_rate"],
                    "ndcg": test.loc[scale, "ndcg"],
                    "ndcg_at_1": test.loc[1.0, "ndcg"],
                    "validation_recoverable": validation["recoverable"].iloc[0],
                    "validation_hit_rate_at_1": validation.loc[1.0, "hit_rate"],
                }
            )
    columns = None if rows else [*RUN_COLUMNS, "tolerance", "selection", "residual_scale"]
    return DataFrame(rows, columns=columns)


def at_the_choice(
    ranks: DataFrame, choices: DataFrame, cutoff: int, bootstrap: Bootstrap
) -> DataFrame:
    """The choices with intervals on the test part at the chosen λ, and behind those of
    several seeds a row of all: counts and rates are means, recovery and hit rate kept
    are pooled.

    Parameters
    ----------
    ranks : rows of rescale.parquet.
    choices : from :func:`chosen_scales`.

    Returns
    -------
    The columns of the choices; ``seed`` is text, :data:`ALL_SEEDS` in the rows of all.
    ``recovery`` and ``hit_rate_kept`` have ``…_ci_low``, ``…_ci_high`` and
    ``…_sd_seeds`` beside them; ``note`` is empty.
    """
    if choices.empty:
        return choices.assign(note="")
    of_choice, of_seed = [*STUDY_COLUMNS, "tolerance", "selection"], "seed of the choice"
    known = choices[[*of_choice, "seed", "residual_scale"]]
    each = known.merge(_recovery_cases(ranks, cutoff), on=[*RUN_COLUMNS, "residual_scale"])
    several = each.groupby(STUDY_COLUMNS)["seed"].transform("nunique") > 1
    each = each.assign(**{of_seed: each["seed"].astype(str)})
    cases = pd.concat([each, each[several].assign(**{of_seed: ALL_SEEDS})])
    spread = summarize(cases, ["tolerance", "selection", of_seed, "measure"], bootstrap)

    pooled = ["recovery", "hit_rate_kept"]
    counts = choices.columns.difference([*known, "cases", *pooled], sort=False)
    groups = choices.groupby(of_choice, sort=False)
    means = groups.agg({"seed": "size", "cases": "first", **dict.fromkeys(counts, "mean")})
    means = means[means["seed"] > 1].reset_index().assign(seed=ALL_SEEDS)
    texts = choices.drop(columns=pooled).assign(seed=choices["seed"].astype(str))
    found = pd.concat([texts, means], ignore_index=True).assign(note="")
    for measure in pooled:
        own = spread.loc[spread["measure"] == measure, [*of_choice, of_seed, *POOLED]]
        names = [measure, *(f"{measure}_{part}" for part in POOLED[1:])]
        own = own.set_axis([*of_choice, "seed", *names], axis=1)
        found = found.merge(own, on=[*of_choice, "seed"], how="left", validate="one_to_one")
    order = {"by": ["tolerance", "selection"], "ascending": [True, False], "kind": "stable"}
    in_order = (own.sort_values(**order) for _, own in found.groupby(STUDY_COLUMNS, sort=False))
    return pd.concat(in_order, ignore_index=True)


def comparisons(
    effects: Iterable[DataFrame],
    scaled: DataFrame,
    models: DataFrame,
    cutoff: int,
    bootstrap: Bootstrap,
    permutations: int,
) -> DataFrame:
    """Every difference the study speaks of, paired over users: an intervention against
    the ordered input, λ against 1, model against model.

    Parameters
    ----------
    effects : rows of interventions.parquet, a frame for each study.
    scaled : rows of rescale.parquet of all runs.
    models : from :func:`model_comparisons`.

    Returns
    -------
    Conditions ``contrast`` (``intervention``, ``residual scale``, ``model``),
    ``condition``, ``reference``, ``measure`` (``NDCG``, ``HRLI``); the value is
    condition − reference, both on the common candidates for an intervention; ``p`` of a
    sign-flip test over users, ``p_holm`` corrected within each contrast.
    """
    found = [_tested(list(_of_interventions(effects, cutoff)), bootstrap, permutations)]
    if len(scaled):
        scaled = scaled[(scaled["part"] == "test") & (scaled["order"] == ORDERED)]
        pairs = [(scale, 1.0) for scale in sorted(set(scaled["residual_scale"]) - {1.0})]
        scaled = _with_measures(scaled, cutoff)
        measures = ["NDCG", "HRLI"]
        parts = _differences(scaled, "residual_scale", pairs, measures, "residual scale")
        found.append(_tested(parts, bootstrap, permutations))
    found = [table for table in (*found, models) if len(table)]
    return pd.concat(found, ignore_index=True) if found else models


def model_comparisons(
    ranks: DataFrame, cutoff: int, bootstrap: Bootstrap, permutations: int
) -> DataFrame:
    """What :func:`comparisons` says of models against one another, on the seeds that
    both have.

    Parameters
    ----------
    ranks : rows of ranks.parquet of all runs.
    """
    ranks, parts = _with_measures(ranks, cutoff), list[DataFrame]()
    for first, second in itertools.combinations(dict.fromkeys(ranks["model"]), 2):
        pair = ranks[ranks["model"].isin([first, second])].rename(columns={"model": "compared"})
        pair = pair.assign(model=first)
        parts += _differences(pair, "compared", [(first, second)], ["NDCG", "HRLI"], "model")
    return _tested(parts, bootstrap, permutations)


def _tested(parts: Sequence[DataFrame], bootstrap: Bootstrap, permutations: int) -> DataFrame:
    """Differences pooled and tested, corrected for all of them."""
    conditions = ["contrast", "condition", "reference", "measure"]
    parts = [part for part in parts if len(part)]
    frame = pd.concat(parts) if parts else DataFrame(columns=[*RUN_COLUMNS, *conditions])
    found = summarize(frame, conditions, bootstrap, permutations)
    return found.assign(p_holm=holm(found["p"].to_numpy(dtype=np.float64)))


def _of_interventions(effects: Iterable[DataFrame], cutoff: int) -> Iterator[DataFrame]:
    """NDCG under each tested intervention less that of the ordered input on the same
    candidates.
    """
    for rows, name in ((rows, name) for rows in effects for name in TESTED):
        own = rows[rows["intervention"] == name]
        gain, whole = (
            per_user("ndcg", own[rank].to_numpy(), cutoff)
            for rank in ("common_target_rank", "common_ordered_rank")
        )
        own = mean_over_repeats(own.assign(gain=gain - whole), ["intervention"], ["gain"])
        names = {"condition": name, "reference": ORDERED, "measure": "NDCG"}
        yield measured(own, own["gain"], np.ones(len(own)), contrast=INTERVENTION, **names)


def _with_measures(ranks: DataFrame, cutoff: int) -> DataFrame:
    return ranks.assign(
        NDCG=per_user("ndcg", ranks["target_rank"].to_numpy(), cutoff),
        HRLI=hits(ranks["last_rank"].to_numpy(), cutoff).astype(np.float64),
    )


def _differences(
    frame: DataFrame,
    condition: str,
    pairs: Sequence[tuple[object, object]],
    measures: Sequence[str],
    contrast: str,
) -> list[DataFrame]:
    by_case = [*RUN_COLUMNS, "case", "user"]
    parts = []
    for one, other in pairs:
        sides = (
            frame.loc[frame[condition] == side, [*by_case, *measures]] for side in (one, other)
        )
        paired = pd.merge(
            *sides, on=by_case, suffixes=("", " of the reference"), validate="one_to_one"
        )
        names = {"contrast": contrast, "condition": str(one), "reference": str(other)}
        for measure in measures:
            difference = paired[measure] - paired[f"{measure} of the reference"]
            ones = np.ones(len(paired))
            parts.append(measured(paired, difference, ones, measure=measure, **names))
    return parts
