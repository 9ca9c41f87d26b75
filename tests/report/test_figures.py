"""Figures against the numbers they are drawn from, where a picture could hide them."""

import warnings

import pandas as pd
import pytest

from lastitem.report import figures
from lastitem.study.runs import TARGET_GROUPS, TIE_ORDER_MEASURES, Run


def test_no_bar_or_whisker_of_figure_7_is_cut():
    """The two shuffles stand on one scale, and the large changes of the one fit into it
    beside the small ones of the other.
    """
    value = {"partial shuffle, %": -2.0, "full shuffle, %": -60.0}
    facts = [
        {"ties": ties, "targets": targets, "measure": measure, "value": value.get(measure, 0.5)}
        for ties in ("item", "random")
        for targets in TARGET_GROUPS
        for measure in TIE_ORDER_MEASURES
        if (ties, targets) != ("item", "tied")
    ]
    table = pd.DataFrame(facts).assign(
        dataset="d", split="loo", model="sasrec", users=10, trainings=1, sd_seeds=float("nan")
    )
    table = table.assign(ci_low=table["value"] - 5, ci_high=table["value"] + 5)
    figure = figures.tie_order(table, 10)
    partial, full = (axis for axis in figure.axes if axis.get_title().endswith("%"))
    assert partial.get_ylim() == full.get_ylim()
    for axis in (partial, full):
        low, high = axis.get_ylim()
        assert low <= -65 and high >= 3
    assert len(full.patches) == 5, "six bars but that of the order without tied targets"
    figures.plt.close(figure)


def studies(count, models):
    return [
        (f"log {number}", f"model {model}") for number in range(count) for model in range(models)
    ]


@pytest.mark.parametrize(("datasets", "models"), [(1, 1), (9, 5)])
def test_the_grid_of_figure_1_fits_any_study(datasets, models):
    """A row for each model, a column for each log; every panel says its n and draws its
    intervals; no text runs off the figure.
    """
    effects = pd.DataFrame(
        [
            {"dataset": dataset, "model": model, "order": order, "measure": measure, "value": value}
            for dataset, model in studies(datasets, models)
            for order, value in (("ordered", 0.1), ("partial", 0.09), ("full", 0.05))
            for measure, value in (("value", value), ("change_percent", 1000 * value - 100))
        ]
    ).assign(split="gts", users=1234, trainings=2, sd_seeds=0.001)
    effects = effects.assign(ci_low=effects["value"] - 0.01, ci_high=effects["value"] + 0.02)
    figure = figures.shuffles(effects, 10)
    assert len(figure.axes) == datasets * models
    figure.canvas.draw()
    whole = figure.get_window_extent()
    for axis in figure.axes:
        assert "n = 1,234 users, 2 seeds" in axis.get_title()
        spans = sorted(
            tuple(segment[:, 1].round(4))
            for bars in axis.collections
            for segment in bars.get_segments()
            if len(segment)
        )
        assert spans.count((0.09, 0.12)) == 1 and spans.count((0.04, 0.07)) == 1, (
            "whiskers at the ends of the intervals"
        )
        assert [text.get_text() for text in axis.texts] == ["-10.0 %", "-50.0 %"]
        for text in [*axis.texts, axis.title, axis.yaxis.label]:
            box = text.get_window_extent()
            assert box.x0 >= whole.x0 - 1 and box.x1 <= whole.x1 + 1, text
    assert figure.get_figwidth() <= 2.4 * max(datasets, 1.6) + 0.6
    figures.plt.close(figure)


def test_figure_1_without_any_accuracy():
    """Nothing is hit: no change to speak of, and limits that can be drawn."""
    effects = pd.DataFrame(
        [
            {"order": order, "measure": measure, "value": value, "ci_low": value, "ci_high": value}
            for order in ("ordered", "partial", "full")
            for measure, value in (("value", 0.0), ("change_percent", float("nan")))
        ]
    ).assign(dataset="d", model="m", split="gts", users=3, trainings=1, sd_seeds=float("nan"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = figures.shuffles(effects, 10)
    assert [text.get_text() for text in figure.axes[0].texts] == ["n/a", "n/a"]
    figures.plt.close(figure)


def test_figure_2_draws_each_rate_in_its_place():
    """HRLI left and HRL2I right of each model's tick, at their own heights; a rate of
    nobody is n/a.
    """
    rates = pd.DataFrame(
        [
            {"model": "a", "measure": "HRLI", "value": 0.9},
            {"model": "a", "measure": "HRL2I", "value": 0.2},
            {"model": "b", "measure": "HRLI", "value": 0.4},
            {"model": "b", "measure": "HRL2I", "value": float("nan")},
        ]
    ).assign(dataset="d", split="gts", users=50, trainings=1, sd_seeds=float("nan"))
    rates = rates.assign(ci_low=rates["value"] - 0.05, ci_high=rates["value"] + 0.05)
    figure = figures.last_item_hit_rates(rates, 10)
    (axis,) = figure.axes
    heights = {
        bars.get_label(): [bar.get_height() for bar in bars]
        for bars in axis.containers
        if hasattr(bars, "patches")
    }
    assert (
        heights["last item (HRLI@10)"] == [0.9, 0.4]
        and heights["last but one (HRL2I@10)"][0] == 0.2
    )
    assert sorted(text.get_text() for text in axis.texts) == ["0.20", "0.40", "0.90", "n/a"]
    assert "n = 50 users" in axis.get_title()
    figures.plt.close(figure)


def test_figure_3_has_the_newest_position_last():
    """Rows are queries from oldest (top) to newest, columns sources from oldest to
    newest: the newest pair is at the lower right.
    """
    cells = [
        {
            "query": query,
            "source": source,
            "attention": 0.0 if source > query else 1.0 - query - 10 * source,
            "norm": 0.5,
            "n": 9,
        }
        for query in (0, -1, -2)
        for source in (0, -1, -2)
    ]
    maps = pd.DataFrame(cells).assign(
        dataset="d", split="gts", model="sasrec", layer=1, trainings=1
    )
    figure = figures.attention_maps(maps)
    image = figure.axes[0].images[0]
    left, right, bottom, top = image.get_extent()
    assert (left, right, bottom, top) == (-2.5, 0.5, 0.5, -2.5) and image.origin == "upper"
    assert image.get_array().tolist() == [[23.0, 0.0, 0.0], [22.0, 12.0, 0.0], [21.0, 11.0, 1.0]]
    assert "source" in figure.axes[0].get_xlabel() and "query" in figure.axes[0].get_ylabel()
    figures.plt.close(figure)


@pytest.mark.parametrize("lines", [0, 1])
def test_the_learning_curve_of_what_is_fitted(tmp_path, lines):
    """As it is read from a file: one point and no epoch, or nothing at all."""
    line = {"epoch": 0, "updates": 0, "loss": float("nan"), "validation_ndcg": 0.2, "best": True}
    path = tmp_path / "learning_curve.csv"
    pd.DataFrame([line])[:lines].to_csv(path, index=False)
    figure = figures.learning_curve(pd.read_csv(path), Run("d", "loo", "item-knn", 3), 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.canvas.draw()
    left, right = figure.axes
    assert left.get_title() == "Item k-NN, d, loo, seed 3 (no gradients)"
    assert right.lines[0].get_ydata().tolist() == [0.2] * lines
    assert len(left.lines) == 1 and not len(left.get_xticks()), "no kept epoch is marked"
    figures.plt.close(figure)


def test_the_learning_curve_of_a_training_marks_the_epoch_that_is_kept():
    curve = pd.DataFrame(
        {"epoch": [1, 2, 3], "loss": [3.0, 2.0, 1.0], "validation_ndcg": [0.1, 0.3, 0.2]}
    ).assign(updates=1, best=[True, True, False])
    figure = figures.learning_curve(curve, Run("d", "loo", "sasrec", 3), 10)
    left, _ = figure.axes
    assert left.get_title().endswith("(kept: epoch 2 of 3)")
    assert left.lines[1].get_xdata()[0] == 2
    figures.plt.close(figure)
