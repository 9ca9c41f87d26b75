"""The page: that it holds what the files say, of one study; that data stay data."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from lastitem.errors import InputError
from lastitem.report import drawing, figures, page
from lastitem.report.answers import Answer
from lastitem.report.table import Table, write
from lastitem.study.runs import Stamp

STAMP = Stamp("0123456789ab", [1], ["made: by hand"])


def table_of(folder: Path, caption: str) -> Path:
    """The CSV and the JSON of table 2, as its script writes them."""
    layout = pd.DataFrame({"a": ["x", "y<br>"], "b (%)": ["0.1 ± 0.2", ""]})
    table = Table(pd.DataFrame({"value": [0.1]}), layout, caption, {"b (%)": [0]})
    for ending in ("csv", "json"):
        write(table, folder / f"table2.{ending}", STAMP)
    return folder / "table2.json"


def test_a_table_is_taken_apart(tmp_path):
    path = table_of(tmp_path, "Table 2. Accuracy, all. Best in bold.")
    table = page.read_layout(path, {"table2": STAMP.study})
    assert (table["name"], table["title"], table["header"]) == (
        "table2",
        "Table 2. Accuracy, all",
        ["a", "b (%)"],
    )
    assert [[(cell["text"], cell["bold"]) for cell in row] for row in table["rows"]] == [
        [("x", False), ("0.1 ± 0.2", True)],
        [("y<br>", False), ("", False)],
    ]
    path = table_of(tmp_path, "Table 4. Keeps 99.5 % of d.e. Next.")
    assert page.read_layout(path, {})["title"] == "Table 4. Keeps 99.5 % of d.e"
    path.write_text("nothing\n")
    with pytest.raises(InputError, match=r"table2\.json:1: not JSON"):
        page.read_layout(path, {})


def test_files_of_another_study_are_not_put_on_the_page(tmp_path):
    """The message names the file, both studies, and the command that makes it anew."""
    path = table_of(tmp_path, "Table 2. Accuracy.")
    told = "table2.{}: is of another study \\(0123456789ab; wanted is f00\\); .*snakemake .*table2"
    with pytest.raises(InputError, match=told.format("json")):
        page.read_layout(path, {"table2": "f00"})
    with pytest.raises(InputError, match=told.format("csv")):
        page.read_facts(path.with_suffix(".csv"), {"table2": "f00"})
    assert len(page.read_facts(path.with_suffix(".csv"), {"table2": STAMP.study})) == 1
    path.with_suffix(".csv").write_text("value\n0.1\n")
    with pytest.raises(InputError, match=r"another study \(none named; wanted is 0123456789ab\)"):
        page.read_facts(path.with_suffix(".csv"), {"table2": STAMP.study})


def test_what_comes_from_data_is_text(tmp_path):
    """A dataset may be called anything the config allows, a setting may
    hold anything.
    """
    evil = "<script>alert(1)</script>"
    html = page.make(
        found=[Answer(evil, evil)],
        notes=[evil],
        figures=[{"name": "fig1", "title": evil, "caption": evil, "width": 10, "data": "AAAA"}],
        tables=[
            {
                "name": "t",
                "title": evil,
                "caption": evil,
                "header": [evil],
                "rows": [[{"text": evil, "bold": True}]],
            }
        ],
        settings=evil,
        trained=[evil],
        versions={"lastitem": evil},
    )
    assert "<script" not in html and html.count("&lt;script&gt;") >= 10
    assert not re.search(r"(?:src|href)=\"(?!data:image/png;base64,|#)", html), (
        "nothing is loaded, nothing leads away"
    )


def test_a_figure_is_as_wide_as_it_was_drawn(tmp_path):
    drawn = figures.plt.figure(figsize=(3.5, 1))
    drawing.save(drawn, tmp_path / "fig1.png")
    (tmp_path / "fig1.rst").write_text("What it shows.\n")
    found = page.figure_of(tmp_path / "fig1.png", tmp_path / "fig1.rst", "fig1: it")
    assert (found["name"], found["caption"], found["width"]) == ("fig1", "What it shows.", 336)
    figures.plt.close(drawn)
