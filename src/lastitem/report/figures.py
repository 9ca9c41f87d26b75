"""The figures: one style, one function each, drawn from summaries."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

from lastitem.report.drawing import (
    COLOURS,
    LAMBDA_LINE,
    ORACLE_LINE,
    add_legend,
    add_title,
    distinct_rows,
    draw_band,
    draw_bar,
    draw_whisker,
    empty_figure,
    of_study,
    panel_grid,
    reach_of,
    seeds_note,
    size_note,
    style_of,
)
from lastitem.report.names import shown_name

# Figures, too, in a module of their own.
from lastitem.report.worth_figures import interventions as interventions
from lastitem.report.worth_figures import worths as worths
from lastitem.study.runs import (
    ON_VALIDATION,
    ORACLE,
    STUDY_COLUMNS,
    TARGET_GROUPS,
    TIE_ORDER_MEASURES,
    TIES_DIFFERENCE,
    Run,
)


def learning_curve(curve: DataFrame, this: Run, cutoff: int) -> Figure:
    """Training loss (left) and validation NDCG (right) of one run by epoch; the line
    marks the epoch whose state was kept. A model without gradients has the one point
    that was found behind its fit, or none.

    Parameters
    ----------
    curve : learning_curve.csv: epoch, updates, loss, validation_ndcg, best.
    """
    figure, axis = plt.subplots(figsize=(4.2, 2.6))
    axis.plot(curve["epoch"], curve["loss"], **style_of(0, markersize=2.5))
    axis.set_xlabel("epoch")
    axis.set_ylabel("mean training loss per label", color=COLOURS[0])
    other = axis.twinx()
    other.plot(curve["epoch"], curve["validation_ndcg"], **style_of(1, markersize=2.5))
    other.set_ylabel(f"validation NDCG@{cutoff}", color=COLOURS[1])
    other.spines["right"].set_visible(True)
    kept = "no gradients"
    if curve["loss"].isna().all():
        # No epochs and no loss, so nothing to read off at those axes.
        axis.set(xticks=[], yticks=[], xlabel="", ylabel="")
    else:
        best = curve.loc[curve["best"], "epoch"].iloc[-1]
        axis.axvline(best, color="0.5", linewidth=0.8)
        kept = f"kept: epoch {best} of {curve['epoch'].iloc[-1]}"
    axis.set_title(
        f"{shown_name(this.model)}, {this.dataset}, {this.split}, seed {this.seed} ({kept})"
    )
    return figure


def last_item_hit_rates(rates: DataFrame, cutoff: int) -> Figure:
    """HRLI beside HRL2I for each model, one panel per dataset."""
    studies = distinct_rows(rates, ["dataset", "split"])
    most = int(rates.groupby(["dataset", "split"])["model"].nunique().max())
    columns = min(3, len(studies))
    rows = -(-len(studies) // columns)
    size = (max(4.2, 0.9 * most + 1.2) * columns, 2.6 * rows + 0.5)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, sharey=True)
    looks = {
        "HRLI": ("#3182bd", "", f"last item (HRLI@{cutoff})"),
        "HRL2I": ("#deebf7", "//", f"last but one (HRL2I@{cutoff})"),
    }
    for place, (study, axis) in enumerate(zip(studies, axes.ravel(), strict=False)):
        panel = rates[of_study(rates, study)]
        models = list(dict.fromkeys(panel["model"]))
        for side, (measure, look) in enumerate(looks.items()):
            bars = panel[panel["measure"] == measure].set_index("model").reindex(models)
            at = np.arange(len(models)) + (side - 0.5) * 0.38
            draw_bar(axis, at, bars["value"], 0.38, *look)
            for x, (_, bar) in zip(at, bars.iterrows(), strict=True):
                draw_whisker(axis, x, bar)
                height, text = (
                    (0, "n/a") if pd.isna(bar["value"]) else (bar["ci_high"], f"{bar['value']:.2f}")
                )
                axis.text(x, height + 0.015, text, ha="center", fontsize=7.5)
        axis.set_xticks(range(len(models)), [shown_name(model) for model in models])
        axis.set_ylim(0, 1.12)
        axis.set_yticks(np.arange(0, 1.01, 0.2))
        axis.set_title(f"{study[0]} ({study[1]})\n{size_note(panel)}")
        if place % columns == 0:
            axis.set_ylabel("share of users")
    for spare in axes.ravel()[len(studies) :]:
        spare.set_axis_off()
    add_legend(figure, *axes[0][0].get_legend_handles_labels(), ncols=2)
    add_title(figure, f"How often the own last items stand in the top {cutoff}")
    return figure


def attention_maps(maps: DataFrame) -> Figure:
    """Attention map beside AttnResLN map over the newest positions: a row per dataset,
    model and layer. Shares of each query's row, on a logarithmic scale; the left column
    is all that is older.
    """
    panels = distinct_rows(maps, [*STUDY_COLUMNS, "layer"])
    if not panels:
        return empty_figure("No model of this study has attention.")
    size = (6.6, 2.9 * len(panels) + 0.5)
    figure, axes = plt.subplots(len(panels), 2, figsize=size, squeeze=False)
    columns = (
        ("attention", "share of the attention (mean of heads)", "Blues"),
        ("norm", "share of ‖AttnResLN part‖", "Oranges"),
    )
    for row, (dataset, split, model, layer) in zip(axes, panels, strict=True):
        cells = maps[of_study(maps, (dataset, split, model)) & (maps["layer"] == layer)]
        oldest = int(cells["query"].min())
        for axis, (value, label, colours) in zip(row, columns, strict=True):
            table = cells.pivot_table(index="query", columns="source", values=value, dropna=False)
            table = table.div(table.sum(axis=1), axis=0)
            edges = (oldest - 1.5, 0.5, 0.5, oldest - 0.5)
            look: dict[str, Any] = {"cmap": colours, "extent": edges, "interpolation": "nearest"}
            drawn = axis.imshow(table.to_numpy(), norm=LogNorm(SMALLEST_SHARE, 1.0), **look)
            figure.colorbar(drawn, ax=axis, shrink=0.85, label=label)
            axis.set_xlabel("source position (0: newest)")
            axis.set_ylabel("query position")
            ticks = list(range(0, oldest - 1, -5))
            axis.set_xticks([oldest - 1, *ticks], ["older", *map(str, ticks)])
            axis.set_yticks(ticks)
            axis.axvline(oldest - 0.5, color="#888888", linewidth=0.6)
            axis.set_title(f"{dataset} ({split}), {shown_name(model)}, block {layer}", fontsize=8.5)
        known = cells[cells["source"] >= oldest]
        ends = (known["query"].max(), known["query"].min())
        newest, last = (known[known["query"] == place].iloc[-1] for place in ends)
        sizes = (
            f"n = {int(newest['n']):,} targets at {newest['query']:g},\n{int(last['n']):,} at"
            f" {last['query']:g}{seeds_note(cells)}"
        )
        corner = {"xycoords": "axes fraction", "ha": "right", "va": "top", "fontsize": 7.5}
        row[1].annotate(sizes, (0.97, 0.95), **corner)
    add_title(figure, "What attention looks at, and what the block passes on")
    return figure


def residual_sweep(curves: DataFrame, mixing: DataFrame, cutoff: int) -> Figure:
    """λ against HRLI (left axis) and the AttnResLN mixing ratio of each block (right
    axis).
    """
    rates = curves[curves["measure"] == "HRLI"]
    if rates.empty:
        return empty_figure(_NO_RESIDUAL)
    mixing = mixing[mixing["part"] == "AttnResLN"]
    figure, panels = panel_grid(rates, width=3.4, height=2.3)
    for panel in panels:
        study, axis, line = panel[:3]
        draw_band(axis, line, style_of(0))
        axis.set_ylim(0, 1)
        axis.set_xlabel("residual scale λ (1: the model as trained)")
        twin = axis.twinx()
        twin.spines["right"].set_visible(True)
        twin.set_ylim(0, 1)
        twin.set_ylabel("AttnResLN mixing ratio", color=COLOURS[1])
        for number, (_, ratio) in enumerate(mixing[of_study(mixing, study)].groupby("layer"), 1):
            draw_band(twin, ratio, style_of(number, color=COLOURS[1]))
        panel.label(f"HRLI@{cutoff}", line)
        axis.yaxis.label.set_color(COLOURS[0])
    handles = [Line2D([], [], **style_of(0, markersize=3.5), label=f"HRLI@{cutoff}")]
    for number, layer in enumerate(sorted(set(mixing["layer"])), 1):
        look = style_of(number, color=COLOURS[1], markersize=3.5)
        handles.append(Line2D([], [], **look, label=f"mixing ratio, block {layer}"))
    add_legend(figure, handles, ncols=max(1, int(figure.get_figwidth() // 1.7)))
    add_title(figure, "Last-item hit rate and mixing along the residual scale")
    return figure


def tradeoff(curves: DataFrame, cutoff: int) -> Figure:
    """HRLI against NDCG along λ, one panel per dataset and model."""
    shown = curves[curves["measure"].isin(["HRLI", "NDCG"])]
    if shown.empty:
        return empty_figure(_NO_RESIDUAL)
    figure, panels = panel_grid(shown, width=3.4, height=2.5)
    scales = sorted(set(shown["residual_scale"]))
    colours = plt.get_cmap("cividis")(np.linspace(0.95, 0.0, len(scales)))
    look: dict[str, Any] = {"fmt": "o", "markersize": 5, "markeredgecolor": "black"}
    look |= {"markeredgewidth": 0.4, "ecolor": "#bbbbbb", "elinewidth": 0.6, "zorder": 2}
    for panel in panels:
        axis, cell = panel.axis, panel.rows
        rate, gain = (
            cell[cell["measure"] == measure].set_index("residual_scale").sort_index()
            for measure in ("HRLI", "NDCG")
        )
        axis.plot(rate["value"], gain["value"], color="#888888", linewidth=0.8, zorder=1)
        for colour, scale in zip(colours, scales, strict=True):
            if scale not in rate.index:
                continue
            x, y = rate.loc[scale], gain.loc[scale]
            at = (x["value"], y["value"])
            axis.errorbar(*at, reach_of(y), reach_of(x), color=colour, **look)
            if pd.notna(x["sd_seeds"]):
                spread = (y["sd_seeds"], x["sd_seeds"])
                axis.errorbar(*at, *spread, fmt="none", ecolor="#888888", elinewidth=3, zorder=1.5)
        # Away from the rest of the line, so that no other marker stands nearer.
        for end, neighbour in ((0, 1), (-1, -2)) if len(rate) > 1 else ((0, 0),):
            up = gain["value"].iloc[end] >= gain["value"].iloc[neighbour]
            axis.annotate(
                f"λ = {rate.index[end]:g}",
                (rate["value"].iloc[end], gain["value"].iloc[end]),
                xytext=(6, 5 if up else -5),
                textcoords="offset points",
                va="bottom" if up else "top",
                fontsize=7.5,
            )
        axis.set_xlabel(f"HRLI@{cutoff}")
        axis.set_ylim(bottom=0)
        axis.set_xlim(left=min(0.0, *axis.get_xlim()))
        panel.label(f"NDCG@{cutoff}", rate)
    add_title(figure, "Last-item hit rate against accuracy along the residual scale")
    return figure


def recovery(
    sweep: DataFrame, curves: DataFrame, choices: DataFrame, tolerance: float, cutoff: int
) -> Figure:
    """Left: test accuracy and recovery along λ with the chosen λ and the oracle; right:
    ε against both. The ``curves`` of each seed are only in the CSV.
    """
    studies = distinct_rows(choices, STUDY_COLUMNS)
    if not studies:
        return empty_figure("No model of this study has a recovery to choose λ by.")
    size = (7.2, 2.5 * len(studies) + 0.8)
    figure, axes = plt.subplots(len(studies), 2, figsize=size, squeeze=False)
    for study, (left, right) in zip(studies, axes, strict=True):
        own, picked = sweep[of_study(sweep, study)], choices[of_study(choices, study)]
        _along_scales(left, own, picked, tolerance)
        left.set_ylabel(f"{study[0]} ({study[1]})\n{shown_name(study[2])}: share")
        _along_tolerances(right, picked)
        for axis in (left, right):
            axis.set_ylim(bottom=0)
    hollow = {"color": "#666666", "linestyle": ":", "marker": "o", "fillstyle": "none"}
    looks = {
        f"HR@{cutoff} relative to λ = 1": style_of(0, markersize=4),
        "recovery (share of R)": style_of(1, markersize=4),
        "λ chosen on validation, of each seed": LAMBDA_LINE,
        "oracle: λ chosen on test": ORACLE_LINE,
        "hollow, dotted: oracle": hollow,
    }
    add_legend(
        figure, [Line2D([], [], **look, label=label) for label, look in looks.items()], ncols=3
    )
    add_title(figure, "Choosing λ on validation: what it keeps and what it recovers")
    return figure


def _along_scales(axis: Axes, sweep: DataFrame, choices: DataFrame, tolerance: float) -> None:
    for number, column in enumerate(_RECOVERED):
        draw_band(axis, sweep[sweep["measure"] == column], style_of(number))
    chosen = choices[choices["tolerance"] == tolerance].groupby("selection")["residual_scale"]
    for selection, look in ((ON_VALIDATION, LAMBDA_LINE), (ORACLE, ORACLE_LINE)):
        for scale in sorted(set(chosen.get_group(selection))):
            axis.axvline(scale, **look)
    axis.set_xlabel("residual scale λ")
    sizes = sorted({choices["recoverable"].min(), choices["recoverable"].max()})
    recoverable, cases = " to ".join(f"{n:,.0f}" for n in sizes), int(choices["cases"].iloc[0])
    axis.set_title(
        f"along λ; chosen for ε = {tolerance:g}\nR: {recoverable} of n = {cases:,}"
        f" targets{seeds_note(sweep)}"
    )


def _along_tolerances(axis: Axes, choices: DataFrame) -> None:
    for selection, fill in ((ON_VALIDATION, "full"), (ORACLE, "none")):
        picked = choices[choices["selection"] == selection]
        for number, column in enumerate(_RECOVERED):
            at = picked.groupby("tolerance")[column].agg(["mean", "std"])
            look = style_of(number, fillstyle=fill, markersize=4, linewidth=1.2)
            if selection == ORACLE:
                look["linestyle"] = ":"
            axis.errorbar(at.index, at["mean"], at["std"], elinewidth=0.8, capsize=3, **look)
    axis.set_xlabel("tolerated loss of validation accuracy ε")
    axis.set_title("at the λ chosen for each ε")


def tie_order(found: DataFrame, cutoff: int) -> Figure:
    """Tie order: two rows for each dataset and model, a panel for each measure; item
    beside random order, all targets, tied and untied.
    """
    found = found[found["ties"] != TIES_DIFFERENCE]
    studies, columns = distinct_rows(found, STUDY_COLUMNS), 3
    rows_each = -(-len(TIE_ORDER_MEASURES) // columns)
    size = (2.4 * columns, 2.0 * rows_each * len(studies) + 0.8)
    figure, axes = plt.subplots(rows_each * len(studies), columns, figsize=size, squeeze=False)
    for row, study in enumerate(studies):
        own = found[of_study(found, study)]
        panels = axes[rows_each * row : rows_each * (row + 1)].ravel()
        for axis, measure in zip(panels, TIE_ORDER_MEASURES, strict=False):
            _tie_bars(axis, own[own["measure"] == measure].set_index(["ties", "targets"]))
            axis.set_title(measure if measure.endswith("%") else f"{measure}@{cutoff}")
        panels[0].set_ylabel(f"{shown_name(study[2])}\n{study[0]} ({study[1]})")
        # The two shuffles on one scale, wide enough for both: sharing the axis would
        # keep the limits of one and cut the other.
        drawn, spare = np.split(panels, [len(TIE_ORDER_MEASURES)])
        low, high = zip(*(axis.get_ylim() for axis in drawn[-2:]), strict=True)
        for axis in drawn[-2:]:
            axis.set_ylim(min(low), max(high))
        for axis in spare:
            axis.set_axis_off()
    add_legend(figure, *axes[0][0].get_legend_handles_labels(), ncols=2)
    trainings = " and ".join(
        f"{int(rows['trainings'].iloc[0])} ({'by item id' if ties == 'item' else 'at random'})"
        for ties, rows in found.groupby("ties", sort=False)
    )
    add_title(figure, f"Events of equal time by item id and at random; trainings: {trainings}")
    return figure


def _tie_bars(axis: Axes, bars: DataFrame) -> None:
    looks = {
        "item": ("#3182bd", "", "ties by item id"),
        "random": ("#deebf7", "//", "ties at random"),
    }
    users = bars.groupby("targets")["users"].max()
    targets = [name for name in TARGET_GROUPS if name in users.index]
    for side, (ties, (colour, hatch, label)) in enumerate(looks.items()):
        for place, name in enumerate(targets):
            if (ties, name) in bars.index:
                bar, x = bars.loc[(ties, name)], place + (side - 0.5) * 0.38
                draw_bar(axis, x, bar["value"], 0.38, colour, hatch, label if place == 0 else None)
                draw_whisker(axis, x, bar)
    ticks = [f"{name}\n{int(users[name]):,}" for name in targets]
    axis.set_xticks(range(len(targets)), ticks, fontsize=7.5)
    axis.axhline(0, color="black", linewidth=0.6)


#: Smaller shares of a map have the lightest colour.
SMALLEST_SHARE = 0.001
_NO_RESIDUAL = "No model of this study has an attention residual to scale."
_RECOVERED = ("hit_rate_kept", "recovery")
