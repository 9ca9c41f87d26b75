"""Figures against the numbers they are drawn from, where a picture could hide them."""

import warnings

import pandas as pd
import pytest
from matplotlib.colors import LogNorm

from lastitem.report import figures
from lastitem.report.worths import (
    ACCOUNT,
    ACCURACY,
    CHANGE,
    ITEMS,
    LAST,
    ORDER,
    OVERLAP,
    REST,
    UNCHANGED,
)
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


#: Intervention → its change in percent, in the order of the bars of figure 1.
CHANGES = {
    "partial": -10.0,
    "full": -50.0,
    "last_only": 20.0,
    "strangers_context": -25.0,
    "stranger": -80.0,
}


def worths_of(*facts, dataset="d", model="sasrec", **more):
    """Rows of what is worth what: reading, part, value; intervals from two below to
    three above (accuracy: hundredths).
    """
    table = pd.DataFrame(facts, columns=["reading", "part", "value"])
    reach = table["reading"].isin([ACCURACY, OVERLAP]).map({True: 0.01, False: 1.0})
    table = table.assign(ci_low=table["value"] - 2 * reach, ci_high=table["value"] + 3 * reach)
    table = table.assign(dataset=dataset, split="gts", model=model, users=1234, trainings=2)
    return table.assign(**{"group": "all", "sd_seeds": float("nan")} | more)


def of_figure_1(dataset="d", model="sasrec", accuracy=0.1, changes=CHANGES, **more):
    """What figure 1 draws of a model."""
    facts = [(ACCURACY, "ordered", accuracy), *((CHANGE, *fact) for fact in changes.items())]
    return worths_of(*facts, dataset=dataset, model=model, **more)


def whiskers(axis):
    """The ends of all intervals of a panel."""
    return [
        tuple(segment[:, 1])
        for bars in axis.collections
        for segment in bars.get_segments()
        if len(segment)
    ]


def test_bars_of_figure_1_are_what_is_left_of_the_accuracy():
    """White: the ordered accuracy; behind it that times 1 + change, on the common
    candidates; with whiskers at the ends of the intervals, and the change above.
    """
    figure = figures.interventions(
        pd.concat(
            [
                of_figure_1(model="other", accuracy=0.3),
                of_figure_1(),
                of_figure_1(accuracy=0.9, group="tied"),
            ]
        ),
        10,
        [],
    )
    (axis,) = figure.axes
    heights = [bar.get_height() for bar in axis.patches]
    expected = [
        accuracy * (1 + change / 100)
        for accuracy in (0.3, 0.1)
        for change in (0.0, *CHANGES.values())
    ]
    assert heights == pytest.approx(expected)
    assert heights[6:] == pytest.approx([0.1, 0.09, 0.05, 0.12, 0.075, 0.02])
    ends = [(0.08, 0.13)]
    ends += [(0.1 * (1 + (c - 2) / 100), 0.1 * (1 + (c + 3) / 100)) for c in CHANGES.values()]
    assert whiskers(axis)[6:] == [pytest.approx(pair) for pair in ends]
    centres = [bar.get_x() + bar.get_width() / 2 for bar in axis.patches]
    assert centres == sorted(centres)
    assert all(
        abs(centre - place) < 0.5
        for place in (0, 1)
        for centre in centres[6 * place : 6 * place + 6]
    )
    texts = ["", "-10 %", "-50 %", "+20 %", "-25 %", "-80 %"]
    assert [text.get_text() for text in axis.texts] == 2 * texts
    assert [label.get_text() for label in axis.get_xticklabels()] == ["other", "SASRec"]
    assert axis.get_title() == "d (gts), n = 1,234 users, 2 seeds"
    assert axis.get_ylabel() == "NDCG@10"
    figures.plt.close(figure)


def test_the_yardsticks_of_figure_1_are_lines():
    """At their accuracy on the log of the panel, each with one look in all panels, in
    the order of the config; their other readings are not drawn.
    """
    table = pd.concat(
        [
            of_figure_1("d", "sasrec"),
            of_figure_1("d", "markov", accuracy=0.07),
            of_figure_1("d", "popularity", accuracy=0.02),
            of_figure_1("e", "sasrec"),
            of_figure_1("e", "markov", accuracy=0.06),
        ]
    )
    figure = figures.interventions(table, 10, ["popularity", "markov"])
    first, second = figure.axes

    def lines(axis):
        found = [line for line in axis.lines if line.get_linestyle() != "None"]
        straight = [line for line in found if set(line.get_xdata()) == {0, 1}]
        return {line.get_ydata()[0]: line.get_color() for line in straight}

    assert set(lines(first)) == {0.07, 0.02} and set(lines(second)) == {0.06}
    assert lines(first)[0.07] == lines(second)[0.06] != lines(first)[0.02]
    assert len(first.patches) == len(second.patches) == 6, "of the model alone"
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == [
        "ordered",
        "all but the last shuffled",
        "all shuffled",
        "last only",
        "stranger's context",
        "stranger",
        "Popularity (yardstick)",
        "Markov chain (yardstick)",
    ]
    figures.plt.close(figure)


@pytest.mark.parametrize(("datasets", "models"), [(1, 1), (9, 5)])
def test_the_rows_of_figure_1_fit_any_study(datasets, models):
    """A row for each log; every panel says its n, and no text runs off the figure."""
    table = pd.concat(
        [
            of_figure_1(f"log {number}", f"model {model}")
            for number in range(datasets)
            for model in range(models)
        ]
    )
    figure = figures.interventions(table, 10, [])
    assert len(figure.axes) == datasets
    figure.canvas.draw()
    whole = figure.get_window_extent()
    for axis in figure.axes:
        assert "n = 1,234 users, 2 seeds" in axis.get_title()
        assert len(axis.patches) == 6 * models
        for text in [*axis.texts, axis.title, axis.yaxis.label, *axis.get_xticklabels()]:
            box = text.get_window_extent()
            assert box.x0 >= whole.x0 - 1 and box.x1 <= whole.x1 + 1, text
    figures.plt.close(figure)


def test_figure_1_without_any_accuracy():
    """Nothing is hit: no change to speak of, and limits that can be drawn."""
    nothing = of_figure_1(accuracy=0.0, changes=dict.fromkeys(CHANGES, float("nan")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = figures.interventions(nothing, 10, [])
        figure.canvas.draw()
    assert [text.get_text() for text in figure.axes[0].texts] == ["", *["n/a"] * 5]
    figures.plt.close(figure)


def test_figure_1_of_what_a_study_has():
    """Bars of the interventions that are not there are left out; without a model there
    is nothing but a word about it.
    """
    some = of_figure_1(changes={"full": -50.0})
    figure = figures.interventions(some, 10, [])
    assert [bar.get_height() for bar in figure.axes[0].patches] == pytest.approx([0.1, 0.05])
    figures.plt.close(figure)
    figure = figures.interventions(of_figure_1(model="markov"), 10, ["markov"])
    assert not figure.axes and "No model" in figure.texts[0].get_text()
    figures.plt.close(figure)


ACCOUNT_PARTS = {ORDER: -5.0, ITEMS: 25.0, LAST: 60.0, REST: 20.0}
#: Newest k → change in percent, and the share of inputs that it leaves as they are.
NEWEST = {
    "newest_20": (-1.0, 96.0),
    "newest_5": (-10.0, 50.0),
    "newest_10": (-4.0, 95.0),
    "last_only": (-40.0, 2.0),
}


def of_figure_8(model="sasrec", **more):
    """What figure 8 draws of a model."""
    changes = {"without_last": -70.0, "strangers_context": -30.0, "strangers_last": -90.0}
    return worths_of(
        (ACCURACY, "ordered", 0.1),
        *((ACCOUNT, *fact) for fact in ACCOUNT_PARTS.items()),
        *((CHANGE, *fact) for fact in changes.items()),
        *((CHANGE, name, change) for name, (change, _) in NEWEST.items()),
        *((UNCHANGED, name, share) for name, (_, share) in NEWEST.items()),
        (OVERLAP, "last_only", 0.4),
        (OVERLAP, "stranger", 0.1),
        model=model,
        **more,
    )


def test_figure_8_draws_the_account_the_changes_and_the_overlap():
    """A row for each log and model; bars from top to bottom in the order of the table
    or of the figure, with their intervals; yardsticks and groups of cases are not
    drawn.
    """
    table = pd.concat(
        [of_figure_8("markov"), of_figure_8(), of_figure_8("other"), of_figure_8(group="tied")]
    )
    figure = figures.worths(table, 10, ["markov"])
    assert len(figure.axes) == 8
    account, changes, overlap, _ = figure.axes[:4]
    assert [bar.get_width() for bar in account.patches] == list(ACCOUNT_PARTS.values())
    assert [label.get_text() for label in account.get_yticklabels()] == list(ACCOUNT_PARTS)
    assert account.yaxis_inverted() and "SASRec" in account.get_ylabel()
    assert [label.get_text() for label in changes.get_yticklabels()] == [
        "last only",
        "stranger's context",
        "without the last",
        "stranger's last",
    ]
    assert [bar.get_width() for bar in changes.patches] == [-40, -30, -70, -90]
    first, second, third, fourth = (bar.get_facecolor() for bar in changes.patches)
    assert first == second != third == fourth
    assert [bar.get_height() for bar in overlap.patches] == [0.4, 0.1]
    assert overlap.get_xticklabels()[1].get_text() == "stranger\n(floor)"
    assert overlap.get_ylim() == (0, 1)
    segments = [
        (segment[0][0], segment[-1][0])
        for bars in account.collections
        for segment in bars.get_segments()
        if len(segment)
    ]
    assert segments == [(value - 2, value + 3) for value in ACCOUNT_PARTS.values()]
    assert "n = 1,234 users, 2 seeds" in account.get_title()
    figures.plt.close(figure)


def test_points_of_the_newest_items_are_hollow_where_few_inputs_are_cut():
    """In the order of k, 5 % being enough; what is kept of the accuracy, and below it
    the share of inputs that k cuts.
    """
    figure = figures.worths(of_figure_8(), 10, [])
    axis = figure.axes[3]
    points = [line for line in axis.lines if line.get_marker() == "o"]
    assert [point.get_ydata()[0] for point in points] == [60.0, 90.0, 96.0, 99.0]
    assert [point.get_fillstyle() for point in points] == ["full", "full", "full", "none"]
    labels = [label.get_text() for label in axis.get_xticklabels()]
    assert labels == ["1\n98 %", "5\n50 %", "10\n5 %", "20\n4 %"]
    assert axis.get_ylim()[0] == 0
    figures.plt.close(figure)


def test_figure_8_of_what_a_study_has():
    """Nothing but shuffles, or nothing hit; without a model a word about it."""
    shuffles = worths_of(
        (ACCURACY, "ordered", 0.1), (CHANGE, "partial", -1.0), (ACCOUNT, ORDER, 1.0)
    )
    nothing = of_figure_8()
    nothing.loc[nothing["reading"] != UNCHANGED, ["value", "ci_low", "ci_high"]] = float("nan")
    for table in (shuffles, nothing, pd.concat([shuffles, of_figure_8("other")])):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            figure = figures.worths(table, 10, [])
            figure.canvas.draw()
        figures.plt.close(figure)
    figure = figures.worths(of_figure_8("markov"), 10, ["markov"])
    assert not figure.axes and "No model" in figure.texts[0].get_text()
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


def maps_of(queries=(0, -1, -2), **more):
    """Cells of an attention map: the newest three positions, and what is older."""
    cells = [
        {
            "query": query,
            "source": source,
            "attention": 0.0 if source > query else 1.0 - query - 10 * source,
            "norm": 3.0 if source == query else 0.5,
            "n": 100 + query if source > -3 else 7,
        }
        for query in queries
        for source in (0, -1, -2, -3)
    ]
    look = {"dataset": "d", "split": "gts", "model": "sasrec", "layer": 1, "trainings": 1}
    return pd.DataFrame(cells).assign(**look | more)


def test_figure_3_has_the_newest_position_last():
    """Rows are queries from oldest (top) to newest, columns sources from oldest to
    newest: the newest pair is at the lower right, what is older at the left.
    """
    figure = figures.attention_maps(maps_of().sample(frac=1, random_state=0))
    first, second = figure.axes[:2]
    image = first.images[0]
    left, right, bottom, top = image.get_extent()
    assert (left, right, bottom, top) == (-3.5, 0.5, 0.5, -2.5) and image.origin == "upper"
    expected = [[33, 23, 0, 0], [32, 22, 12, 0], [31, 21, 11, 1]]
    for row, values in zip(image.get_array().tolist(), expected, strict=True):
        assert row == pytest.approx([value / sum(values) for value in values])
    assert second.images[0].get_array()[2].tolist() == pytest.approx(
        [0.5 / 4.5, 0.5 / 4.5, 0.5 / 4.5, 3 / 4.5]
    )
    assert "source" in first.get_xlabel() and "query" in first.get_ylabel()
    assert [label.get_text() for label in first.get_xticklabels()] == ["older", "0"]
    assert list(first.get_xticks()) == [-3, 0]
    assert second.texts[0].get_text() == "n = 100 targets at 0,\n98 at -2, 1 seed"
    figures.plt.close(figure)


def test_shares_of_an_attention_map_add_up_in_each_row():
    """On one logarithmic scale for all maps; each model, block and log for itself."""
    table = pd.concat(
        [maps_of(), maps_of(layer=2), maps_of(model="bert4rec"), maps_of(dataset="e")]
    )
    scaled = table["attention"] * (1 + table["layer"])
    figure = figures.attention_maps(table.assign(attention=scaled))
    images = [image for axis in figure.axes for image in axis.images]
    assert len(images) == 8
    for image in images:
        assert image.get_array().sum(axis=1).tolist() == pytest.approx([1.0] * 3)
        assert isinstance(image.norm, LogNorm)
        assert (image.norm.vmin, image.norm.vmax) == (figures.SMALLEST_SHARE, 1.0)
    figures.plt.close(figure)


def test_an_attention_map_may_lack_what_is_older_and_a_whole_row():
    """No input is longer than the map, or so long as its oldest query."""
    table = maps_of()
    table.loc[(table["source"] == -3) | (table["query"] == -2), ["attention", "norm"]] = float(
        "nan"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = figures.attention_maps(table)
        figure.canvas.draw()
    shares = figure.axes[1].images[0].get_array()
    assert shares.filled(float("nan"))[1:, 1:].sum(axis=1).tolist() == pytest.approx([1.0] * 2)
    assert shares.mask[0].all() and shares.mask[:, 0].all()
    figures.plt.close(figure)
    figure = figures.attention_maps(maps_of()[:0])
    assert not figure.axes and "No model" in figure.texts[0].get_text()
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
    assert left.get_title() == "Item kNN, all items, d, loo, seed 3 (no gradients)"
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
