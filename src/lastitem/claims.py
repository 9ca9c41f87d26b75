"""The paper's claims as lines with numbers: what was measured for each, and whether it holds for this model on these data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from lastitem.parts import PARTS
from lastitem.summaries import STUDY_COLUMNS

#: Claims in the order of the table.
CLAIMS = {
    "last item only": "shuffling all but the last item changes NDCG by less than 5 %",
    "order matters": "shuffling all items lowers NDCG",
    "last-item privilege": "the last item is recommended at least twice as often as the one before it",
    "residual dominance": "in every block the mixing ratio at the read-out is lower with residual and normalization than without",
    "dependence on λ": "the last-item hit rate falls with every step of λ from 1 down",
    "mixing on λ": "in every block the mixing ratio rises with every step of λ from 1 down",
    "recovery": "every λ below 1 brings back some of the targets that an earlier position had right",
}
SMALL_CHANGE_PERCENT, PRIVILEGE = 5.0, 2.0


def claims(
    effects: pd.DataFrame,
    rates: pd.DataFrame,
    mixing: pd.DataFrame,
    curves: pd.DataFrame,
    mixing_by_scale: pd.DataFrame,
    recoveries: pd.DataFrame,
) -> pd.DataFrame:
    """Hold every claim against the summaries of each dataset, split and model.

    Parameters
    ----------
    effects : :func:`~lastitem.summaries.shuffle_effects`.   rates : :func:`~lastitem.summaries.last_item_hit_rates`.
    mixing : :func:`~lastitem.summaries.mixing_at_readout` of the model as trained.   curves : :func:`~lastitem.summaries.sweep`.
    mixing_by_scale : ``mixing_at_readout`` with the condition ``residual_scale``.
    recoveries : :func:`~lastitem.summaries.recovery_sweep`.

    Returns
    -------
    A row per study and claim: ``claim``, ``meaning``, ``holds`` (``yes``, ``no``, ``n/a``), ``evidence`` (numbers, with 95 % intervals
    over users), ``users``, ``seeds``. Where an interval is given, a claim holds only if the whole interval is on its side.
    """
    rows = []
    for study, group in effects.groupby(STUDY_COLUMNS, sort=False):
        key = dict(zip(STUDY_COLUMNS, study, strict=True))
        found = {
            **dict(_of_shuffles(group)),
            **dict(_of_rates(_of(rates, key))),
            **dict(_of_mixing(_of(mixing, key))),
            **dict(_of_scales(_of(curves, key), _of(mixing_by_scale, key), _of(recoveries, key))),
        }
        users, seeds = group[["users", "seeds"]].iloc[0]
        for name, meaning in CLAIMS.items():
            holds, evidence = found.get(name, ("n/a", "has no meaning for this model, or nothing was measured for it"))
            rows.append({**key, "claim": name, "meaning": meaning, "holds": holds, "evidence": evidence, "users": users, "seeds": seeds})
    return pd.DataFrame(rows, columns=[*STUDY_COLUMNS, "claim", "meaning", "holds", "evidence", "users", "seeds"])


def is_small(change: pd.Series) -> bool:
    """Whether the whole interval of a change in percent is within ± :data:`SMALL_CHANGE_PERCENT`."""
    return bool(change["ci_low"] > -SMALL_CHANGE_PERCENT and change["ci_high"] < SMALL_CHANGE_PERCENT)


Finding = tuple[str, tuple[str, str]]


def _of(table: pd.DataFrame, key: dict[str, Any]) -> pd.DataFrame:
    return table[(table[STUDY_COLUMNS] == pd.Series(key)).all(axis=1)] if len(table) else table


def _verdict(holds: bool) -> str:
    return "yes" if holds else "no"


def _of_shuffles(effects: pd.DataFrame) -> Iterator[Finding]:
    change = effects[effects["measure"] == "change_percent"].set_index("order")
    for name, order in (("last item only", "partial"), ("order matters", "full")):
        row = change.loc[order]
        if pd.isna(row["value"]):
            continue
        holds = is_small(row) if order == "partial" else row["ci_high"] < 0
        yield name, (_verdict(holds), f"{row['value']:+.1f} % [{row['ci_low']:+.1f}, {row['ci_high']:+.1f}]")


def _of_rates(rates: pd.DataFrame) -> Iterator[Finding]:
    row = rates.set_index("measure")
    if {"HRLI", "HRL2I"} <= set(row.index):
        last, before = row.loc["HRLI"], row.loc["HRL2I"]
        evidence = " against ".join(f"{side['value']:.3f} [{side['ci_low']:.3f}, {side['ci_high']:.3f}]" for side in (last, before))
        yield "last-item privilege", (_verdict(last["ci_low"] >= PRIVILEGE * before["ci_high"]), evidence)


def _of_mixing(mixing: pd.DataFrame) -> Iterator[Finding]:
    blocks = mixing[(mixing["layer"] > 0) & mixing["part"].isin(PARTS)]
    if not len(blocks):
        return
    holds, evidence = True, []
    for layer, parts in blocks.groupby("layer"):
        attention, normalized = (parts.set_index("part").loc[part] for part in (PARTS[0], PARTS[-1]))
        holds &= bool(normalized["ci_high"] < attention["ci_low"])
        evidence.append(f"block {layer}: {normalized['value']:.3f} of {attention['value']:.3f}")
    yield "residual dominance", (_verdict(holds), "; ".join(evidence))


def _of_scales(curves: pd.DataFrame, mixing: pd.DataFrame, recoveries: pd.DataFrame) -> Iterator[Finding]:
    rate = _along(curves[curves["measure"] == "HRLI"]) if len(curves) else pd.Series(dtype=float)
    if len(rate) < 2:
        return
    yield "dependence on λ", (_verdict((rate.diff().dropna() < 0).all()), _course(rate, "rise", rate.diff().max()))
    steps, evidence = True, []
    for layer, rows in mixing[(mixing["layer"] > 0) & (mixing["part"] == PARTS[-1])].groupby("layer"):
        ratio = _along(rows)
        steps &= bool((ratio.diff().dropna() > 0).all())
        evidence.append(f"block {layer}: " + _course(ratio, "fall", -ratio.diff().min()))
    yield "mixing on λ", (_verdict(steps), "; ".join(evidence))
    if len(recoveries):
        share = _along(recoveries[recoveries["measure"] == "recovery"]).loc[lambda values: values.index < 1]
        if share.notna().any():
            best = share.idxmax()
            evidence_text = f"{share.min():.3f} to {share[best]:.3f} (λ {best:g}) of the recoverable targets"
            yield "recovery", (_verdict((share > 0).all()), evidence_text)


def _along(rows: pd.DataFrame) -> pd.Series:
    """Values by λ, from 1 down; what lies above 1 is not what the claims speak of."""
    return rows[rows["residual_scale"] <= 1].set_index("residual_scale")["value"].sort_index(ascending=False)


def _course(values: pd.Series, against: str, largest: float) -> str:
    text = f"{values.iloc[0]:.3f} (λ {values.index[0]:g}) to {values.iloc[-1]:.3f} (λ {values.index[-1]:g})"
    return text + (f", largest {against} of a step {largest:.4f}" if largest > 0 else ", at every step")
