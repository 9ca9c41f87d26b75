"""Figures 1 to 7: one style, one function a figure, each drawn from a tidy summary that
is saved beside it.
"""

from __future__ import annotations

import argparse
import itertools
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lastitem.files import write_aside
from lastitem.report.summaries import STUDY_COLUMNS
from lastitem.report.tie_order import TARGETS, TIE_ORDER_MEASURES, TIES_DIFFERENCE
from lastitem.study.runs import Run

# Okabe & Ito's palette: told apart with any colour vision; line styles and hatches tell
# them apart in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")
LAMBDA_LINE: dict[str, Any] = {"color": "black", "linestyle": "-", "linewidth": 1}
ORACLE_LINE: dict[str, Any] = {"color": COLOURS[3], "linestyle": ":", "linewidth": 2.5}
MARKERS = ("o", "s", "^", "D", "v", "P")
DISPLAY_NAMES = {
    "sasrec": "SASRec",
    "sasrec-pre": "SASRec (pre)",
    "gru4rec": "GRU4Rec",
    "bert4rec": "BERT4Rec",
    "bsarec": "BSARec",
    "duorec": "DuoRec",
    "popularity": "Popularity",
}
PNG_DPI = 200
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "figure.constrained_layout.use": True,
    "hatch.linewidth": 0.6,
}


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --pdf, --png and --csv."""
    parser.add_argument("--pdf", required=True, help="output")
    parser.add_argument("--png", required=True, help="output")
    parser.add_argument("--csv", required=True, help="output: the numbers behind the figure")


def save(figure: Figure, pdf: str | Path, png: str | Path) -> None:
    """Write a figure as PDF (vector, fonts embedded) and PNG, without a date, so that
    equal figures are equal files.
    """
    with write_aside(pdf) as aside:
        figure.savefig(aside, metadata={"CreationDate": None})
    with write_aside(png) as aside:
        figure.savefig(aside, dpi=PNG_DPI, metadata={"Software": None})
    plt.close(figure)


def learning_curve(curve: pd.DataFrame, this: Run, cutoff: int) -> Figure:
    """Training loss (left) and validation NDCG (right) of one run by epoch; the line
    marks the epoch whose state was kept.

    Parameters
    ----------
    curve : learning_curve.csv: epoch, updates, loss, validation_ndcg, best.
    """
    figure, axis = plt.subplots(figsize=(4.2, 2.6))
    axis.plot(
        curve["epoch"], curve["loss"], LINES[0], color=COLOURS[0], marker=MARKERS[0], markersize=2.5
    )
    axis.set_xlabel("epoch")
    axis.set_ylabel("mean training loss per label", color=COLOURS[0])
    other = axis.twinx()
    other.plot(
        curve["epoch"],
        curve["validation_ndcg"],
        LINES[1],
        color=COLOURS[1],
        marker=MARKERS[1],
        markersize=2.5,
    )
    other.set_ylabel(f"validation NDCG@{cutoff}", color=COLOURS[1])
    other.spines["right"].set_visible(True)
    kept = "nothing is trained by gradient"
    if len(curve):
        best = curve.loc[curve["best"], "epoch"].iloc[-1]
        axis.axvline(best, color="0.5", linewidth=0.8)
        kept = f"kept: epoch {best} of {curve['epoch'].iloc[-1]}"
    axis.set_title(f"{_name(this.model)}, {this.dataset}, {this.split}, seed {this.seed} ({kept})")
    return figure


def fig1(effects: pd.DataFrame, cutoff: int) -> Figure:
    """Shuffle bars, rows models, columns datasets: NDCG of ordered, partially and fully
    shuffled inputs.
    """
    values = effects[effects["measure"] == "value"]
    changes = effects[effects["measure"] == "change_percent"].set_index([*STUDY_COLUMNS, "order"])
    figure, axes, studies, models = _grid(values, width=2.4, height=1.8)
    looks = {"ordered": ("white", ""), "partial": ("#9ecae1", "//"), "full": ("#3182bd", "xxxx")}
    for (row, model), (column, study), axis in _cells(values, axes, models, studies):
        bars = values[_is(values, study) & (values["model"] == model)].set_index("order")
        top = float(bars["ci_high"].max())
        for place, (order, (colour, hatch)) in enumerate(looks.items()):
            bar = bars.loc[order]
            axis.bar(
                place,
                bar["value"],
                0.7,
                color=colour,
                hatch=hatch,
                edgecolor="black",
                linewidth=0.8,
            )
            _whisker(axis, place, bar)
            if order != "ordered":
                change = changes.loc[(*study, model, order), "value"]
                text = "n/a" if pd.isna(change) else f"{change:+.1f} %"
                axis.text(
                    place, bar["ci_high"] + 0.02 * top, text, ha="center", va="bottom", fontsize=8
                )
        axis.set_xticks(
            range(3), ["ordered", "all but\nlast shuffled", "all\nshuffled"], fontsize=7.5
        )
        axis.set_ylim(0, 1.18 * top or 1)
        _label(
            axis,
            row,
            column,
            study,
            f"{_name(model)}\nNDCG@{cutoff}",
            f"n = {int(bars['users'].iloc[0]):,} users{_seeds(bars)}",
        )
    _title(
        figure,
        f"What shuffling the history does to accuracy\n{_spread_note(values)} Percent: change"
        " against ordered.",
    )
    return figure


def fig2(rates: pd.DataFrame, cutoff: int) -> Figure:
    """HRLI beside HRL2I for each model, one panel per dataset."""
    studies = _studies(rates)
    most = int(rates.groupby(["dataset", "split"])["model"].nunique().max())
    columns = min(3, len(studies))
    rows = -(-len(studies) // columns)
    width = max(4.2, 0.9 * most + 1.2)
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, 2.6 * rows + 0.5), squeeze=False, sharey=True
    )
    for place, study in enumerate(studies):
        axis = axes[place // columns][place % columns]
        panel = rates[_is(rates, study)]
        models = list(dict.fromkeys(panel["model"]))
        for side, (measure, colour, hatch) in enumerate(
            (("HRLI", "#3182bd", ""), ("HRL2I", "#deebf7", "//"))
        ):
            bars = panel[panel["measure"] == measure].set_index("model").reindex(models)
            at = np.arange(len(models)) + (side - 0.5) * 0.38
            label = {
                "HRLI": f"last item (HRLI@{cutoff})",
                "HRL2I": f"last but one (HRL2I@{cutoff})",
            }[measure]
            axis.bar(
                at,
                bars["value"],
                0.38,
                color=colour,
                hatch=hatch,
                edgecolor="black",
                linewidth=0.8,
                label=label,
            )
            for x, (_, bar) in zip(at, bars.iterrows(), strict=True):
                _whisker(axis, x, bar)
                height, text = (
                    (0, "n/a") if pd.isna(bar["value"]) else (bar["ci_high"], f"{bar['value']:.2f}")
                )
                axis.text(x, height + 0.015, text, ha="center", fontsize=7.5)
        axis.set_xticks(range(len(models)), [_name(model) for model in models])
        axis.set_ylim(0, 1.12)
        axis.set_yticks(np.arange(0, 1.01, 0.2))
        axis.set_title(
            f"{study[0]} ({study[1]})\nn = {int(panel['users'].max()):,} users{_seeds(panel)}"
        )
        if place % columns == 0:
            axis.set_ylabel("share of users")
    for spare in axes.ravel()[len(studies) :]:
        spare.set_axis_off()
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
    _title(
        figure,
        f"How often the user's own last items stand in their top {cutoff} (seen items not"
        f" filtered)\n{_spread_note(rates)}",
    )
    return figure


def fig3(maps: pd.DataFrame) -> Figure:
    """Attention map beside AttnResLN map over the newest positions: a row per dataset,
    model and layer.
    """
    panels = list(dict.fromkeys(maps[[*STUDY_COLUMNS, "layer"]].itertuples(index=False, name=None)))
    if not panels:
        return _empty("No model of this study has attention.")
    figure, axes = plt.subplots(
        len(panels), 2, figsize=(6.6, 2.9 * len(panels) + 0.5), squeeze=False
    )
    columns = (
        ("attention", "attention weight (mean of heads)", "Blues"),
        ("norm", "‖AttnResLN part‖", "Oranges"),
    )
    for row, panel in enumerate(panels):
        cells = maps[(maps[[*STUDY_COLUMNS, "layer"]] == list(panel)).all(axis=1)]
        for axis, (value, label, colours) in zip(axes[row], columns, strict=True):
            table = cells.pivot_table(index="query", columns="source", values=value, sort=True)
            edges = (table.columns.min() - 0.5, 0.5, 0.5, table.index.min() - 0.5)
            image = axis.imshow(
                table.to_numpy(), cmap=colours, extent=edges, vmin=0, interpolation="nearest"
            )
            figure.colorbar(image, ax=axis, shrink=0.85, label=label)
            axis.set_xlabel("source position (0: newest)")
            axis.set_ylabel("query position")
            ticks = [tick for tick in range(0, int(table.index.min()) - 1, -5)]
            axis.set_xticks(ticks)
            axis.set_yticks(ticks)
            axis.set_title(
                f"{panel[0]} ({panel[1]}), {_name(panel[2])}, block {panel[3]}", fontsize=8.5
            )
        newest, oldest = (
            cells[cells["query"] == place].iloc[0]
            for place in (cells["query"].max(), cells["query"].min())
        )
        sizes = (
            f"n = {int(newest['n']):,} targets at {newest['query']:g},\n{int(oldest['n']):,} at"
            f" {oldest['query']:g}{_seeds(cells)}"
        )
        axes[row][1].annotate(
            sizes, (0.97, 0.95), xycoords="axes fraction", ha="right", va="top", fontsize=7.5
        )
    _title(
        figure,
        "What attention looks at, and what the block passes on (residual and normalization"
        " included)\nAverages over the test inputs that have both positions, and over seeds; the"
        " newest position is 0, BERT4Rec's its [MASK]. Each panel has its own scale of colours.",
    )
    return figure


def fig4(curves: pd.DataFrame, mixing: pd.DataFrame, cutoff: int) -> Figure:
    """λ against HRLI (left axis) and the AttnResLN mixing ratio of each block (right
    axis).
    """
    rates = curves[curves["measure"] == "HRLI"]
    if rates.empty:
        return _empty("No model of this study has an attention residual to scale.")
    mixing = mixing[mixing["part"] == "AttnResLN"]
    figure, axes, studies, models = _grid(rates, width=3.4, height=2.3)
    for (row, model), (column, study), axis in _cells(rates, axes, models, studies):
        line = rates[_is(rates, study) & (rates["model"] == model)]
        _band(axis, line, COLOURS[0], LINES[0], MARKERS[0])
        axis.set_ylim(0, 1)
        axis.set_xlabel("residual scale λ (1: the model as trained)")
        twin = axis.twinx()
        twin.spines["right"].set_visible(True)
        twin.set_ylim(0, 1)
        twin.set_ylabel("AttnResLN mixing ratio", color=COLOURS[1])
        ratios = mixing[_is(mixing, study) & (mixing["model"] == model)]
        for number, (_, ratio) in enumerate(ratios.groupby("layer")):
            _band(
                twin,
                ratio,
                COLOURS[1],
                LINES[(number + 1) % len(LINES)],
                MARKERS[(number + 1) % len(MARKERS)],
            )
        label = f"{_name(model)}\nHRLI@{cutoff}"
        _label(
            axis, row, column, study, label, f"n = {int(line['users'].max()):,} users{_seeds(line)}"
        )
        axis.yaxis.label.set_color(COLOURS[0])
    layers = sorted(set(mixing["layer"]))
    handles = [
        Line2D(
            [],
            [],
            color=COLOURS[0],
            linestyle=LINES[0],
            marker=MARKERS[0],
            markersize=3.5,
            label=f"HRLI@{cutoff}",
        )
    ]
    for number, layer in enumerate(layers):
        look = (number + 1) % len(LINES)
        handles.append(
            Line2D(
                [],
                [],
                color=COLOURS[1],
                linestyle=LINES[look],
                marker=MARKERS[look],
                markersize=3.5,
                label=f"mixing ratio, block {layer}",
            )
        )
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=max(1, int(figure.get_figwidth() // 1.7)),
        fontsize=8,
    )
    _title(
        figure,
        "Weakening the residual: last-item hit rate and mixing at the read-out"
        f" position\n{_spread_note(rates, band=True)}",
    )
    return figure


def fig5(curves: pd.DataFrame, cutoff: int) -> Figure:
    """HRLI against NDCG along λ, one panel per dataset and model."""
    shown = curves[curves["measure"].isin(["HRLI", "NDCG"])]
    if shown.empty:
        return _empty("No model of this study has an attention residual to scale.")
    figure, axes, studies, models = _grid(shown, width=3.4, height=2.5)
    scales = sorted(set(shown["residual_scale"]))
    colours = plt.get_cmap("cividis")(np.linspace(0.95, 0.0, len(scales)))
    for (row, model), (column, study), axis in _cells(shown, axes, models, studies):
        cell = shown[_is(shown, study) & (shown["model"] == model)]
        rate, gain = (
            cell[cell["measure"] == measure].set_index("residual_scale").sort_index()
            for measure in ("HRLI", "NDCG")
        )
        axis.plot(rate["value"], gain["value"], color="#888888", linewidth=0.8, zorder=1)
        for colour, scale in zip(colours, scales, strict=True):
            if scale not in rate.index:
                continue
            x, y = rate.loc[scale], gain.loc[scale]
            spread_x = [[x["value"] - x["ci_low"]], [x["ci_high"] - x["value"]]]
            spread_y = [[y["value"] - y["ci_low"]], [y["ci_high"] - y["value"]]]
            axis.errorbar(
                x["value"],
                y["value"],
                spread_y,
                spread_x,
                fmt="o",
                color=colour,
                markersize=5,
                markeredgecolor="black",
                markeredgewidth=0.4,
                ecolor="#bbbbbb",
                elinewidth=0.6,
                zorder=2,
            )
            if pd.notna(x["sd_seeds"]):
                axis.errorbar(
                    x["value"],
                    y["value"],
                    y["sd_seeds"],
                    x["sd_seeds"],
                    fmt="none",
                    ecolor="#888888",
                    elinewidth=3,
                    zorder=1.5,
                )
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
        _label(
            axis,
            row,
            column,
            study,
            f"{_name(model)}\nNDCG@{cutoff}",
            f"n = {int(rate['users'].max()):,} users{_seeds(rate)}",
        )
    _title(
        figure,
        "Last-item dependence against accuracy as λ falls from 1 (dark) to 0"
        f" (light)\n{_spread_note(shown)}",
    )
    return figure


def fig6(sweep: pd.DataFrame, choices: pd.DataFrame, tolerance: float, cutoff: int) -> Figure:
    """Left: test accuracy and recovery along λ with the chosen λ and the oracle; right:
    ε against both.
    """
    runs = list(dict.fromkeys(choices[STUDY_COLUMNS].itertuples(index=False, name=None)))
    if not runs:
        return _empty("No model of this study has a recovery to choose λ by.")
    figure, axes = plt.subplots(len(runs), 2, figsize=(7.2, 2.5 * len(runs) + 0.8), squeeze=False)
    for row, study in enumerate(runs):
        left, right = axes[row]
        own = sweep[(sweep[STUDY_COLUMNS] == list(study)).all(axis=1)]
        own_choices = choices[(choices[STUDY_COLUMNS] == list(study)).all(axis=1)]
        for number, column in enumerate(("hit_rate_kept", "recovery")):
            _band(
                left, own[own["measure"] == column], COLOURS[number], LINES[number], MARKERS[number]
            )
        chosen = own_choices[own_choices["tolerance"] == tolerance].groupby("selection")[
            "residual_scale"
        ]
        for selection, look in (("validation", LAMBDA_LINE), ("oracle (test)", ORACLE_LINE)):
            for scale in sorted(set(chosen.get_group(selection))):
                left.axvline(scale, **look)
        left.set_xlabel("residual scale λ")
        left.set_ylabel(f"{study[0]} ({study[1]})\n{_name(study[2])}: share")
        recoverable = " to ".join(
            f"{count:,.0f}"
            for count in sorted(
                {own_choices["recoverable"].min(), own_choices["recoverable"].max()}
            )
        )
        sizes = (
            f"R: {recoverable} of n = {int(own_choices['cases'].iloc[0]):,} targets{_seeds(own)}"
        )
        left.set_title(f"along λ; chosen for ε = {tolerance:g}\n{sizes}")
        for selection, fill in (("validation", "full"), ("oracle (test)", "none")):
            picked = own_choices[own_choices["selection"] == selection]
            for number, column in enumerate(("hit_rate_kept", "recovery")):
                at = picked.groupby("tolerance")[column].agg(["mean", "std"])
                style = LINES[number] if fill == "full" else ":"
                look = {
                    "color": COLOURS[number],
                    "linestyle": style,
                    "marker": MARKERS[number],
                    "fillstyle": fill,
                }
                right.errorbar(
                    at.index,
                    at["mean"],
                    at["std"],
                    markersize=4,
                    linewidth=1.2,
                    elinewidth=0.8,
                    capsize=3,
                    **look,
                )
        right.set_xlabel("tolerated loss of validation accuracy ε")
        right.set_title("at the λ chosen for each ε")
        for axis in (left, right):
            axis.set_ylim(bottom=0)
    handles = [
        Line2D(
            [],
            [],
            color=COLOURS[0],
            linestyle=LINES[0],
            marker=MARKERS[0],
            markersize=4,
            label=f"HR@{cutoff} relative to λ = 1",
        ),
        Line2D(
            [],
            [],
            color=COLOURS[1],
            linestyle=LINES[1],
            marker=MARKERS[1],
            markersize=4,
            label="recovery (share of R)",
        ),
        Line2D([], [], **LAMBDA_LINE, label="λ chosen on validation, of each seed"),
        Line2D([], [], **ORACLE_LINE, label="oracle: λ chosen on test"),
        Line2D(
            [],
            [],
            color="#666666",
            linestyle=":",
            marker="o",
            fillstyle="none",
            label="hollow, dotted: oracle",
        ),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)
    _title(
        figure,
        "Choosing λ on validation: what test accuracy it keeps and what it"
        f" recovers\n{_spread_note(sweep, band=True)} Right: mean over seeds, ± standard deviation"
        " where there are several.",
    )
    return figure


def fig7(found: pd.DataFrame, cutoff: int) -> Figure:
    """Tie order: two rows for each dataset and model, a panel for each measure; item
    beside random order, all targets, tied and untied.
    """
    found = found[found["ties"] != TIES_DIFFERENCE]
    studies = list(dict.fromkeys(found[STUDY_COLUMNS].itertuples(index=False, name=None)))
    columns = 3
    rows_each = -(-len(TIE_ORDER_MEASURES) // columns)
    size = (2.4 * columns, 2.0 * rows_each * len(studies) + 0.8)
    figure, axes = plt.subplots(rows_each * len(studies), columns, figsize=size, squeeze=False)
    looks = {
        "item": ("#3182bd", "", "ties by item id"),
        "random": ("#deebf7", "//", "ties at random"),
    }
    for row, (dataset, split, model) in enumerate(studies):
        own = found[_is(found, (dataset, split)) & (found["model"] == model)]
        panels = axes[rows_each * row : rows_each * (row + 1)].ravel()
        for axis, measure in zip(panels, TIE_ORDER_MEASURES, strict=False):
            bars = own[own["measure"] == measure].set_index(["ties", "targets"])
            targets = [name for name in TARGETS if name in bars.index.get_level_values("targets")]
            for side, (ties, (colour, hatch, label)) in enumerate(looks.items()):
                for place, name in enumerate(targets):
                    if (ties, name) not in bars.index:
                        continue
                    bar, x = bars.loc[(ties, name)], place + (side - 0.5) * 0.38
                    look = {"color": colour, "hatch": hatch, "edgecolor": "black", "linewidth": 0.8}
                    axis.bar(x, bar["value"], 0.38, label=label if place == 0 else None, **look)
                    _whisker(axis, x, bar)
            users = bars.groupby("targets")["users"].max()
            axis.set_xticks(
                range(len(targets)),
                [f"{name}\n{int(users[name]):,}" for name in targets],
                fontsize=7.5,
            )
            axis.axhline(0, color="black", linewidth=0.6)
            axis.set_title(measure if measure.endswith("%") else f"{measure}@{cutoff}")
        panels[0].set_ylabel(f"{_name(model)}\n{dataset} ({split})")
        # The two shuffles on one scale, wide enough for both: sharing the axis would
        # keep the limits of one and cut the other.
        shuffles = panels[len(TIE_ORDER_MEASURES) - 2 : len(TIE_ORDER_MEASURES)]
        limits = [axis.get_ylim() for axis in shuffles]
        for axis in shuffles:
            axis.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        for spare in panels[len(TIE_ORDER_MEASURES) :]:
            spare.set_axis_off()
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
    trainings = " and ".join(
        f"{int(rows['seeds'].iloc[0])} ({'by item id' if ties == 'item' else 'at random'})"
        for ties, rows in found.groupby("ties", sort=False)
    )
    title = (
        "The order of events with equal time: all targets, tied with the item before, untied (users"
        " below)"
    )
    _title(figure, f"{title}\nTrainings: {trainings}. {_spread_note(found)}")
    return figure


def _band(axis: Axes, line: pd.DataFrame, colour: str, style: str, marker: str) -> None:
    line = line.sort_values("residual_scale")
    axis.plot(
        line["residual_scale"],
        line["value"],
        color=colour,
        linestyle=style,
        marker=marker,
        markersize=3.5,
        linewidth=1.2,
    )
    axis.fill_between(
        line["residual_scale"],
        line["ci_low"],
        line["ci_high"],
        color=colour,
        alpha=0.2,
        linewidth=0,
    )
    if line["sd_seeds"].notna().any():
        axis.errorbar(
            line["residual_scale"],
            line["value"],
            line["sd_seeds"],
            fmt="none",
            ecolor=colour,
            capsize=3,
            linewidth=0.8,
        )


def _whisker(axis: Axes, x: float, bar: pd.Series) -> None:
    reach = [[bar["value"] - bar["ci_low"]], [bar["ci_high"] - bar["value"]]]
    if pd.notna(bar["sd_seeds"]):
        axis.errorbar(x, bar["value"], bar["sd_seeds"], ecolor="#888888", elinewidth=4, zorder=2)
    axis.errorbar(x, bar["value"], reach, color="black", capsize=2.5, linewidth=0.8, zorder=3)


def _spread_note(table: pd.DataFrame, band: bool = False) -> str:
    interval, deviation = ("Bands", "Capped") if band else ("Whiskers", "Thick grey")
    note = f"{interval}: 95 % bootstrap interval over users."
    return (
        f"{note} {deviation}: ± standard deviation over seeds."
        if table["sd_seeds"].notna().any()
        else note
    )


def _grid(
    table: pd.DataFrame, width: float, height: float
) -> tuple[Figure, np.ndarray, list[tuple[str, str]], list[str]]:
    studies, models = _studies(table), list(dict.fromkeys(table["model"]))
    size = (max(3.8, width * len(studies) + 0.6), height * len(models) + 0.9)
    figure, axes = plt.subplots(len(models), len(studies), figsize=size, squeeze=False)
    return figure, axes, studies, models


def _studies(table: pd.DataFrame) -> list[tuple[str, str]]:
    return list(dict.fromkeys(table[["dataset", "split"]].itertuples(index=False, name=None)))


def _cells(
    table: pd.DataFrame, axes: np.ndarray, models: Sequence[str], studies: Sequence[tuple[str, str]]
) -> Iterator[tuple[tuple[int, str], tuple[int, tuple[str, str]], Axes]]:
    """The panels that have rows, with their model, their study and where they stand;
    the others say that they have none.
    """
    for (row, model), (column, study) in itertools.product(enumerate(models), enumerate(studies)):
        axis = axes[row][column]
        if (_is(table, study) & (table["model"] == model)).any():
            yield (row, model), (column, study), axis
        else:
            axis.set_axis_off()
            text = f"{_name(model)}\n{study[0]} ({study[1]}):\nnot in this study"
            axis.text(
                0.5,
                0.5,
                text,
                ha="center",
                va="center",
                fontsize=8,
                color="#666666",
                transform=axis.transAxes,
            )


def _is(table: pd.DataFrame, study: tuple[str, str]) -> pd.Series:
    return (table["dataset"] == study[0]) & (table["split"] == study[1])


def _label(axis: Axes, row: int, column: int, study: tuple[str, str], left: str, note: str) -> None:
    axis.set_title(f"{study[0]} ({study[1]})\n{note}" if row == 0 else note, fontsize=8.5)
    if column == 0:
        axis.set_ylabel(left)


def _title(figure: Figure, text: str) -> None:
    """A title that never runs off the figure, however narrow the grid."""
    width = int(figure.get_figwidth() * 14)
    figure.suptitle(
        "\n".join(textwrap.fill(line, width) for line in text.splitlines()), fontsize=8.5
    )


def _seeds(rows: pd.DataFrame) -> str:
    seeds = int(rows["seeds"].iloc[0])
    return f", {seeds} seed{'s' * (seeds > 1)}"


def _name(model: str) -> str:
    return DISPLAY_NAMES.get(model, model)


def _empty(reason: str) -> Figure:
    figure = plt.figure(figsize=(4, 1))
    figure.text(0.5, 0.5, reason, ha="center", va="center")
    return figure


mpl.rcParams.update(STYLE)  # type: ignore[arg-type]
