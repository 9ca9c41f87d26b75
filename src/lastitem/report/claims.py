"""The paper's claims as lines with numbers: what was measured for each, and whether it
holds for this model on these data.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from lastitem.report.verdicts import (
    MINIMUM_USERS,
    SMALL_CHANGE_PERCENT,
    TOO_SHORT,
    Changes,
    is_lower,
    is_small,
    percent,
)
from lastitem.study.runs import PARTS, STUDY_COLUMNS

#: Claims in the order of the table.
CLAIMS = {
    "what it uses": "which part of the history the model uses",
    "last item only": "another user's items before the last change NDCG by less than 5 %",
    "order before the last": "shuffling all but the last item changes NDCG by less than 5 %",
    "order matters": "shuffling all items lowers NDCG",
    "last-item privilege": (
        "the last item is recommended at least twice as often as the one before it"
    ),
    "residual dominance": (
        "in every block the mixing ratio at the read-out is lower with residual and normalization"
        " than without"
    ),
    "dependence on λ": "the last-item hit rate falls with every step of λ from 1 down",
    "mixing on λ": "in every block the mixing ratio rises with every step of λ from 1 down",
    "recovery": (
        "every λ below 1 brings back some of the targets that an earlier position had right"
    ),
}
#: Those that look inside of a model.
MECHANISM = ("residual dominance", "dependence on λ", "mixing on λ", "recovery")
PRIVILEGE = 2.0
_INTERVAL = ["value", "ci_low", "ci_high"]


def claims(
    worths: DataFrame,
    rates: DataFrame,
    mixing: DataFrame,
    curves: DataFrame,
    mixing_by_scale: DataFrame,
    recoveries: DataFrame,
) -> DataFrame:
    """Hold every claim against the summaries of each dataset, split and model.

    Parameters
    ----------
    worths : :func:`~lastitem.report.worths.worths`.
    rates : :func:`~lastitem.report.summaries.last_item_hit_rates`.
    mixing : :func:`~lastitem.report.summaries.mixing_at_readout` of the model as
        trained.
    curves : :func:`~lastitem.report.summaries.residual_sweep`.
    mixing_by_scale : ``mixing_at_readout`` with the condition ``residual_scale``.
    recoveries : :func:`~lastitem.report.summaries.recovery_sweep`.

    Returns
    -------
    A row per study and claim: ``claim``, ``meaning``, ``holds`` (``yes``, ``no``,
    ``undecided``, ``n/a``), ``evidence`` (numbers, with 95 % intervals over users),
    ``users``, ``trainings``. Where intervals are given, a claim holds only if they are
    wholly on its side, and fails only if they are wholly on the other; between the two
    it is undecided, and so it is with fewer than :data:`MINIMUM_USERS` users (for a
    change: with a hit) behind it. A shuffle that leaves every input as it was says
    nothing.
    """
    rows = []
    for study, own_rates in rates.groupby(STUDY_COLUMNS, sort=False):
        of_mixing, *of_scales = (
            _of(table, study) for table in (mixing, curves, mixing_by_scale, recoveries)
        )
        found = {
            **dict(_of_interventions(Changes(worths, study))),
            **dict(_of_rates(own_rates)),
            **dict(_of_mixing(of_mixing)),
            **dict(_of_scales(*of_scales)),
        }
        for name, meaning in CLAIMS.items():
            finding = found.get(
                name,
                Finding("n/a", "has no meaning for this model or these inputs", own_rates.iloc[0]),
            )
            if finding.holds in ("yes", "no") and finding.behind["users"] < MINIMUM_USERS:
                finding = finding._replace(
                    holds="undecided", evidence=f"{finding.evidence}; too few users"
                )
            behind = (int(finding.behind[count]) for count in ("users", "trainings"))
            rows.append((*study, name, meaning, finding.holds, finding.evidence, *behind))
    columns = ["claim", "meaning", "holds", "evidence", "users", "trainings"]
    return DataFrame(rows, columns=[*STUDY_COLUMNS, *columns])


class Finding(NamedTuple):
    """Whether a claim holds, the numbers, and the row of the summary that says how many
    users and trainings stand behind them.
    """

    holds: str
    evidence: str
    behind: Series


def _of(table: DataFrame, study: Sequence[str]) -> DataFrame:
    return table[(table[STUDY_COLUMNS] == list(study)).all(axis=1)] if len(table) else table


def _finding(holds: object, evidence: str, behind: Series, fails: object = None) -> Finding:
    """``fails`` where the opposite has to be shown, too; without it, what does not hold
    fails.
    """
    if holds:
        return Finding("yes", evidence, behind)
    return Finding("no" if fails is None or fails else "undecided", evidence, behind)


def _interval(row: Series, digits: str) -> str:
    return f"{row['value']:{digits}} [{row['ci_low']:{digits}}, {row['ci_high']:{digits}}]"


def _of_interventions(changes: Changes) -> Iterator[tuple[str, Finding]]:
    """The verdict, and the claims that a change by an intervention decides."""
    behind = changes.under("strangers_context")
    if pd.notna(behind["users"]):
        yield "what it uses", Finding("", changes.verdict(), behind)
    for name, intervention in (
        ("last item only", "strangers_context"),
        ("order before the last", "partial"),
        ("order matters", "full"),
    ):
        row = changes.under(intervention)
        if pd.isna(row["users"]):
            continue
        if not np.isfinite(row[_INTERVAL].to_numpy(dtype=float)).all():
            yield name, Finding("n/a", "no target is hit, so there is no relative change", row)
            continue
        if silent := changes.silence(intervention):
            holds = "n/a" if silent == TOO_SHORT else "undecided"
            yield name, Finding(holds, f"{percent(row)}; {silent}", row)
        elif intervention == "full":
            yield name, _finding(is_lower(row), percent(row), row, row["ci_low"] >= 0)
        else:
            low, high = row["ci_low"], row["ci_high"]
            fails = high < -SMALL_CHANGE_PERCENT or low > SMALL_CHANGE_PERCENT
            yield name, _finding(is_small(row), percent(row), row, fails)


def _of_rates(rates: DataFrame) -> Iterator[tuple[str, Finding]]:
    row = rates.set_index("measure")
    last, before = row.loc["HRLI"], row.loc["HRL2I"]
    if pd.isna(before["value"]):
        yield "last-item privilege", Finding("n/a", "no input has two items", last)
        return
    evidence = " against ".join(_interval(side, ".3f") for side in (last, before))
    holds, fails = (
        last["ci_low"] >= PRIVILEGE * before["ci_high"],
        last["ci_high"] < PRIVILEGE * before["ci_low"],
    )
    yield "last-item privilege", _finding(holds, evidence, before, fails)


def _of_mixing(mixing: DataFrame) -> Iterator[tuple[str, Finding]]:
    blocks = mixing[(mixing["layer"] > 0) & mixing["part"].isin(PARTS)]
    if not len(blocks):
        return
    holds, fails, evidence = True, False, []
    for layer, parts in blocks.groupby("layer"):
        attention, normalized = (
            parts.set_index("part").loc[part] for part in (PARTS[0], PARTS[-1])
        )
        holds &= bool(normalized["ci_high"] < attention["ci_low"])
        fails |= bool(normalized["ci_low"] > attention["ci_high"])
        evidence.append(
            f"block {layer}: {_interval(normalized, '.3f')} of {_interval(attention, '.3f')}"
        )
    yield "residual dominance", _finding(holds, "; ".join(evidence), blocks.iloc[0], fails)


def _of_scales(
    curves: DataFrame, mixing: DataFrame, recoveries: DataFrame
) -> Iterator[tuple[str, Finding]]:
    if not len(curves):
        return
    # What lies above 1 is not what the claims speak of.
    curves, mixing, recoveries = (
        table[table["residual_scale"] <= 1] if len(table) else table
        for table in (curves, mixing, recoveries)
    )
    rates = curves[curves["measure"] == "HRLI"]
    if len(rates) < 2:
        for name in ("dependence on λ", "mixing on λ", "recovery"):
            yield name, Finding("n/a", "no λ below 1 in this study", rates.iloc[0])
        return
    falls, evidence = _course(rates, "rise")
    yield "dependence on λ", _finding(falls, evidence, rates.iloc[0])
    rises, texts = True, []
    ratios = mixing[(mixing["layer"] > 0) & (mixing["part"] == PARTS[-1])]
    for layer, rows in ratios.groupby("layer"):
        steps, evidence = _course(rows, "fall")
        rises &= steps
        texts.append(f"block {layer}: {evidence}")
    if texts:
        yield "mixing on λ", _finding(rises, "; ".join(texts), ratios.iloc[0])
    if len(recoveries):
        share = recoveries[
            (recoveries["measure"] == "recovery") & (recoveries["residual_scale"] < 1)
        ]
        if share["value"].isna().any():
            yield "recovery", Finding("n/a", "no target is recoverable", share.iloc[0])
        else:
            best = share.loc[share["value"].idxmax()]
            text = (
                f"{share['value'].min():.3f} to {best['value']:.3f} (λ {best['residual_scale']:g})"
                " of the recoverable targets"
            )
            yield "recovery", _finding((share["value"] > 0).all(), text, best)


def _course(rows: DataFrame, against: str) -> tuple[bool, str]:
    """Whether values go one way with every step of λ down, and where they go;
    ``against`` (rise, fall) is the other way.
    """
    values = rows.set_index("residual_scale")["value"].sort_index(ascending=False)
    step = values.diff().dropna() * (1 if against == "rise" else -1)
    text = (
        f"{values.iloc[0]:.3f} (λ {values.index[0]:g}) to {values.iloc[-1]:.3f} (λ"
        f" {values.index[-1]:g})"
    )
    if (step < 0).all():
        return True, f"{text}, at every step"
    return False, (
        f"{text}, largest {against} of a step {step.max():.4f}"
        if step.max() > 0
        else f"{text}, with a step that changes nothing"
    )
