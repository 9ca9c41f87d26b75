"""Figures against the numbers they are drawn from, where a picture could hide them."""

import pandas as pd

from lastitem import figures
from lastitem.summaries import TARGETS, TIE_ORDER_MEASURES


def test_no_bar_or_whisker_of_figure_7_is_cut():
    """The two shuffles stand on one scale, and the large changes of the one fit into it beside the small ones of the other."""
    value = {"partial shuffle, %": -2.0, "full shuffle, %": -60.0}
    facts = [
        {"ties": ties, "targets": targets, "measure": measure, "value": value.get(measure, 0.5)}
        for ties in ("item", "random")
        for targets in TARGETS
        for measure in TIE_ORDER_MEASURES
        if (ties, targets) != ("item", "tied")
    ]
    table = pd.DataFrame(facts).assign(dataset="d", split="loo", model="sasrec", users=10, seeds=1, sd_seeds=float("nan"))
    table = table.assign(ci_low=table["value"] - 5, ci_high=table["value"] + 5)
    figure = figures.fig7(table, 10)
    partial, full = (axis for axis in figure.axes if axis.get_title().endswith("%"))
    assert partial.get_ylim() == full.get_ylim()
    for axis in (partial, full):
        low, high = axis.get_ylim()
        assert low <= -65 and high >= 3
    assert len(full.patches) == 5, "six bars but that of the order without tied targets"
    figures.plt.close(figure)
