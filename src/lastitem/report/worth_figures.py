"""The figures of what is worth what: fig1 and fig8."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from pandas import DataFrame, Series

from lastitem.report.drawing import (
    COLOURS,
    LINES,
    add_legend,
    add_title,
    distinct_rows,
    draw_bar,
    draw_whisker,
    empty_figure,
    of_study,
    reach_of,
    size_note,
)
from lastitem.report.names import shown_intervention, shown_name
from lastitem.report.worths import (
    ACCOUNT,
    ACCURACY,
    CHANGE,
    EVERYONE,
    OVERLAP,
    UNCHANGED,
)
from lastitem.study.interventions import ORDERED, OVERLAPPING, newest_count
from lastitem.study.runs import STUDY_COLUMNS

#: The bars of fig1: colour and hatch.
_BARS = {
    ORDERED: ("white", ""),
    "partial": ("#9ecae1", "//"),
    "full": ("#3182bd", "xx"),
    "last_only": ("#fdd0a2", ""),
    "strangers_context": ("#fd8d3c", "\\\\"),
    "stranger": ("#a63603", ".."),
}
#: What takes the earlier items away, or puts others in their place; the same of the
#: last.
_BRACKETS = ("last_only", "pooled_context", "strangers_context", "without_last", "strangers_last")
#: Of fewer inputs than these, in percent, a point of the newest items says little.
_FEW_CUT_PERCENT = 5.0
_NEARLY_ALL_PERCENT = 99.5


def interventions(worths: DataFrame, cutoff: int, baselines: Sequence[str]) -> Figure:
    """Accuracy under six interventions: a row for each log, models side by side on one
    scale; the accuracy of the yardsticks as lines.
    """
    found = worths[worths["group"] == EVERYONE]
    is_yardstick = found["model"].isin(baselines)
    logs = distinct_rows(found[~is_yardstick], ["dataset", "split"])
    if not logs:
        return empty_figure("No model of this study is asked.")
    most = max(found.loc[of_study(found, log) & ~is_yardstick, "model"].nunique() for log in logs)
    size = (max(6.4, 1.9 * most + 1.6), 2.3 * len(logs) + 1.2)
    figure, axes = plt.subplots(len(logs), 1, figsize=size, squeeze=False)
    lines = sorted(set(found.loc[is_yardstick, "model"]), key=list(baselines).index)
    for log, axis in zip(logs, axes[:, 0], strict=True):
        own = found[of_study(found, log)]
        models = list(dict.fromkeys(own.loc[~own["model"].isin(baselines), "model"]))
        for place, model in enumerate(models):
            _bars_of(axis, place, own[own["model"] == model].set_index(["reading", "part"]))
        for number, name in enumerate(lines):
            line = own[(own["model"] == name) & (own["reading"] == ACCURACY)]
            for value in line.loc[line["part"] == ORDERED, "value"]:
                axis.axhline(value, zorder=0.5, **_line(number))
        axis.set_xticks(range(len(models)), [shown_name(model) for model in models])
        axis.set_xlim(-0.5, len(models) - 0.5)
        axis.set_ylabel(f"NDCG@{cutoff}")
        counted = own[own["part"] == ORDERED]
        axis.set_title(f"{log[0]} ({log[1]}), {size_note(counted)}", fontsize=8.5)
        axis.margins(y=0.12)
    handles: list[Any] = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="black", label=shown_intervention(name))
        for name, (colour, hatch) in _BARS.items()
    ]
    handles += [
        Line2D([], [], label=f"{shown_name(name)} (yardstick)", **_line(number))
        for number, name in enumerate(lines)
    ]
    add_legend(figure, handles, ncols=max(2, int(size[0] // 2.1)))
    add_title(
        figure, "Accuracy of the history as it is, shuffled, cut, and with another user's items"
    )
    return figure


def _line(number: int) -> dict[str, Any]:
    """The look of a yardstick's line; there may be more than there are line styles."""
    dashes = [*LINES[1:], (0, (5, 1)), (0, (1, 3)), (0, (3, 1, 1, 1, 1, 1))]
    colour = COLOURS[(number + 2) % len(COLOURS)]
    return {"color": colour, "linestyle": dashes[number % len(dashes)], "linewidth": 1.1}


def _bars_of(axis: Axes, place: int, rows: DataFrame) -> None:
    """The bars of a model: the ordered accuracy, and what is left of it under each
    intervention on the same candidates.
    """
    width = 0.9 / len(_BARS)
    ordered = rows.loc[(ACCURACY, ORDERED)]
    for number, (name, look) in enumerate(_BARS.items()):
        x = place + (number - (len(_BARS) - 1) / 2) * width
        if name == ORDERED:
            bar, text = ordered, ""
        elif (CHANGE, name) in rows.index:
            change = rows.loc[(CHANGE, name)]
            bar = _left(ordered["value"], change)
            text = _rounded(change["value"])
        else:
            continue
        draw_bar(axis, x, bar["value"], width, *look)
        draw_whisker(axis, x, bar)
        top = 0.0 if pd.isna(bar["ci_high"]) else bar["ci_high"]
        look_of_text: dict[str, Any] = {
            "ha": "center",
            "va": "bottom",
            "fontsize": 6.5,
            "rotation": 90,
        }
        axis.annotate(text, (x, top), xytext=(0, 2), textcoords="offset points", **look_of_text)


def _rounded(change: float) -> str:
    """A change as it stands on a bar; a small one is 0, not −0."""
    if pd.isna(change):
        return "n/a"
    return f"{round(change):+d} %" if round(change) else "0 %"


def _left(whole: float, change: Series) -> Series:
    """A change in percent as what is left of an accuracy."""
    kept = change[["value", "ci_low", "ci_high"]].astype(float) / 100.0 + 1.0
    return pd.concat([kept * whole, Series({"sd_seeds": change["sd_seeds"] / 100.0 * whole})])


def worths(worths: DataFrame, cutoff: int, baselines: Sequence[str]) -> Figure:
    """A row for each log and model: the account; what it costs to take items away or to
    put others in their place; how much of the list stays; and the newest k items alone.
    """
    found = worths[(worths["group"] == EVERYONE) & ~worths["model"].isin(baselines)]
    studies = distinct_rows(found, STUDY_COLUMNS)
    if not studies:
        return empty_figure("No model of this study is asked.")
    widths: dict[str, Any] = {"width_ratios": [4, 5, 3, 5]}
    size = (11.0, 2.5 * len(studies) + 0.6)
    figure, axes = plt.subplots(len(studies), 4, figsize=size, squeeze=False, gridspec_kw=widths)
    for study, row in zip(studies, axes, strict=True):
        own = found[of_study(found, study)]
        parts = own[own["reading"] == ACCOUNT]
        _bars(row[0], list(parts["part"]), parts, "#9ecae1")
        changes = own[own["reading"] == CHANGE].set_index("part")
        there = [name for name in _BRACKETS if name in changes.index]
        colours = ["#3182bd" if name in _BRACKETS[3:] else "#fd8d3c" for name in there]
        _bars(row[1], [shown_intervention(name) for name in there], changes.loc[there], colours)
        shared = own[own["reading"] == OVERLAP].set_index("part")
        there = [name for name in OVERLAPPING if name in shared.index]
        names = [
            "stranger\n(floor)" if name == "stranger" else _broken(shown_intervention(name))
            for name in there
        ]
        _bars(row[2], names, shared.loc[there], "#cccccc", upright=True)
        row[2].set_ylim(0, 1)
        _newest(row[3], own)
        row[0].set_ylabel(f"{shown_name(study[2])}\n{study[0]} ({study[1]})")
        counted = own[own["part"] == ORDERED]
        heads = (
            f"account, % of NDCG@{cutoff}\n{size_note(counted)}",
            "change, %: earlier items (orange),\nlast item (blue)",
            f"overlap of top {cutoff}\nwith the ordered list",
            "newest k items alone,\n% of the accuracy kept",
        )
        for axis, head in zip(row, heads, strict=True):
            axis.set_title(head, fontsize=8)
    add_title(figure, "What is worth what: parts of the history taken away, and replaced")
    return figure


def _broken(name: str) -> str:
    return name.replace(" ", "\n", 1)


def _bars(
    axis: Axes,
    names: Sequence[str],
    rows: DataFrame,
    colours: str | Sequence[str],
    upright: bool = False,
) -> None:
    """Bars with their intervals, from top to bottom, or upright."""
    place = np.arange(len(names))
    reach = np.hstack([reach_of(row) for _, row in rows.iterrows()]) if len(rows) else None
    look: dict[str, Any] = {"color": colours, "edgecolor": "black", "linewidth": 0.6}
    whisker: dict[str, Any] = {"fmt": "none", "ecolor": "black", "capsize": 2.5, "linewidth": 0.8}
    if upright:
        axis.bar(place, rows["value"], 0.65, **look)
        axis.errorbar(place, rows["value"], yerr=reach, **whisker)
        axis.set_xticks(place, names, fontsize=7)
        return
    axis.barh(place, rows["value"], 0.65, **look)
    axis.errorbar(rows["value"], place, xerr=reach, **whisker)
    axis.axvline(0, color="black", linewidth=0.6)
    axis.set_yticks(place, names, fontsize=7.5)
    axis.invert_yaxis()


def _newest(axis: Axes, own: DataFrame) -> None:
    """Accuracy of the newest k items alone; hollow where few inputs are cut, and below
    it the share of inputs that k cuts.
    """
    changes = own[own["reading"] == CHANGE].set_index("part")
    cut = 100.0 - own[own["reading"] == UNCHANGED].set_index("part")["value"]
    names = [name for name in changes.index if newest_count(name)]
    names.sort(key=lambda name: newest_count(name) or 0)
    rows, place = changes.loc[names], np.arange(len(names))
    kept = rows[["value", "ci_low", "ci_high"]].astype(float) + 100.0
    axis.axhline(100, color="#888888", linewidth=0.8)
    axis.plot(place, kept["value"], color=COLOURS[0], linewidth=1)
    axis.fill_between(place, kept["ci_low"], kept["ci_high"], color=COLOURS[0], alpha=0.2, lw=0)
    for x, name in zip(place, names, strict=True):
        hollow = cut[name] < _FEW_CUT_PERCENT
        look: dict[str, Any] = {"marker": "o", "markersize": 4.5, "color": COLOURS[0]}
        axis.plot(x, kept.loc[name, "value"], fillstyle="none" if hollow else "full", **look)
    # All but the largest k cut nearly every input: their shares would run together.
    shares = ["" if cut[name] >= _NEARLY_ALL_PERCENT else f"\n{cut[name]:.0f} %" for name in names]
    labels = [f"{newest_count(name)}{share}" for name, share in zip(names, shares, strict=True)]
    axis.set_xticks(place, labels, fontsize=7)
    axis.set_xlabel("k; share of inputs cut, if not all", fontsize=8)
    axis.set_ylim(bottom=0)
