"""What the figures share: one style, panels, bars with their intervals, and files."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series

from lastitem.errors import InputError
from lastitem.files import write_aside
from lastitem.report.names import shown_name
from lastitem.study.runs import STUDY_COLUMNS

# Okabe & Ito's palette: told apart with any colour vision; line styles and hatches tell
# them apart in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P")
LAMBDA_LINE: dict[str, Any] = {"color": "black", "linestyle": "-", "linewidth": 1}
ORACLE_LINE: dict[str, Any] = {"color": COLOURS[3], "linestyle": ":", "linewidth": 2.5}
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
    # Ids in an SVG are hashes, else drawn at random.
    "svg.hashsalt": "lastitem",
}
mpl.rcParams.update(STYLE)  # type: ignore[arg-type]


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as PDF (vector, fonts embedded), SVG or PNG, as the ending of
    ``path`` says; without a date, so that equal figures are equal files.
    """
    forms: dict[str, dict[str, Any]] = {
        ".pdf": {"metadata": {"CreationDate": None}},
        ".svg": {"metadata": {"Date": None}},
        ".png": {"dpi": PNG_DPI, "metadata": {"Software": None}},
    }
    if (ending := Path(path).suffix) not in forms:
        raise InputError(f"{path}: a figure is written as .pdf, .svg or .png")
    with write_aside(path) as aside:
        figure.savefig(aside, **forms[ending])


def style_of(number: int, **more: Any) -> dict[str, Any]:
    """The n-th look of a line: told apart by colour, style and marker."""
    looks = {"color": COLOURS, "linestyle": LINES, "marker": MARKERS}
    return {key: values[number % len(values)] for key, values in looks.items()} | more


def draw_bar(
    axis: Axes,
    at: Any,
    height: Any,
    width: float,
    colour: str,
    hatch: str,
    label: str | None = None,
) -> None:
    """A bar, or several, with black edges."""
    look: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.8, "label": label}
    axis.bar(at, height, width, color=colour, hatch=hatch, **look)


def draw_band(axis: Axes, line: DataFrame, look: dict[str, Any]) -> None:
    """A line along λ, its interval as a band and its spread over seeds as caps."""
    line, colour = line.sort_values("residual_scale"), look["color"]
    at = line["residual_scale"]
    axis.plot(at, line["value"], markersize=3.5, linewidth=1.2, **look)
    axis.fill_between(at, line["ci_low"], line["ci_high"], color=colour, alpha=0.2, linewidth=0)
    if line["sd_seeds"].notna().any():
        look = {"fmt": "none", "ecolor": colour, "capsize": 3, "linewidth": 0.8}
        axis.errorbar(at, line["value"], line["sd_seeds"], **look)


def draw_whisker(axis: Axes, x: float, bar: Series) -> None:
    """The interval of a bar, and behind it its spread over seeds in grey."""
    if pd.notna(bar["sd_seeds"]):
        axis.errorbar(x, bar["value"], bar["sd_seeds"], ecolor="#888888", elinewidth=4, zorder=2)
    look: dict[str, Any] = {"color": "black", "capsize": 2.5, "linewidth": 0.8, "zorder": 3}
    axis.errorbar(x, bar["value"], reach_of(bar), **look)


def reach_of(row: Series) -> list[list[float]]:
    """How far an interval reaches below and above its value."""
    return [[row["value"] - row["ci_low"]], [row["ci_high"] - row["value"]]]


class Panel(NamedTuple):
    """A panel of a grid that has rows: its dataset, split and model, where it is drawn,
    its rows, and what stands above and beside it.
    """

    study: tuple[str, str, str]
    axis: Axes
    rows: DataFrame
    head: str
    side: str

    def label(self, measure: str, counted: DataFrame) -> None:
        """Write what it measures, and how many users and seeds stand behind."""
        self.axis.set_title(f"{self.head}{size_note(counted)}", fontsize=8.5)
        if self.side:
            self.axis.set_ylabel(f"{self.side}{measure}")


def panel_grid(table: DataFrame, width: float, height: float) -> tuple[Figure, list[Panel]]:
    """A figure with a row for each model and a column for each dataset and split, and
    the panels that have rows; the others say that they have none.
    """
    studies = distinct_rows(table, ["dataset", "split"])
    models, panels = list(dict.fromkeys(table["model"])), []
    size = (max(3.8, width * len(studies) + 0.6), height * len(models) + 0.9)
    figure, axes = plt.subplots(len(models), len(studies), figsize=size, squeeze=False)
    for row, column in np.ndindex(axes.shape):
        axis: Any = axes[row, column]
        study, model = studies[column], models[row]
        rows, head = table[of_study(table, (*study, model))], f"{study[0]} ({study[1]})"
        if len(rows):
            above, beside = "" if row else f"{head}\n", "" if column else f"{shown_name(model)}\n"
            panels.append(Panel((*study, model), axis, rows, above, beside))
        else:
            axis.set_axis_off()
            text, place = f"{shown_name(model)}\n{head}:\nnot in this study", axis.transAxes
            look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
            axis.text(0.5, 0.5, text, transform=place, color="#666666", **look)
    return figure, panels


def distinct_rows(table: DataFrame, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The different rows of some columns, in their order."""
    return list(dict.fromkeys(table[list(columns)].itertuples(index=False, name=None)))


def of_study(table: DataFrame, study: Sequence[str]) -> Series:
    """Whether a row is of a dataset and split, and of a model where one is given."""
    return (table[STUDY_COLUMNS[: len(study)]] == list(study)).all(axis=1)


def add_legend(figure: Figure, handles: Any, labels: Any = None, *, ncols: int) -> None:
    """One legend below all panels."""
    labels = [handle.get_label() for handle in handles] if labels is None else labels
    figure.legend(handles, labels, loc="outside lower center", ncols=ncols, fontsize=8)


def add_title(figure: Figure, text: str) -> None:
    """A title that never runs off the figure, however narrow the grid."""
    width = int(figure.get_figwidth() * 14)
    figure.suptitle(textwrap.fill(text, width), fontsize=8.5)


def size_note(rows: DataFrame) -> str:
    """How many users and seeds stand behind a panel."""
    return f"n = {int(rows['users'].max()):,} users{seeds_note(rows)}"


def seeds_note(rows: DataFrame) -> str:
    """How many seeds stand behind a panel."""
    seeds = int(rows["trainings"].iloc[0])
    return f", {seeds} seed{'s' * (seeds > 1)}"


def empty_figure(reason: str) -> Figure:
    """A figure that says why there is nothing to see."""
    figure = plt.figure(figsize=(4, 1))
    figure.text(0.5, 0.5, reason, ha="center", va="center")
    return figure
