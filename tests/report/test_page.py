"""The page: that it holds what the files say, of one study; that data stay data."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from lastitem.errors import InputError
from lastitem.report import drawing, figures, page
from lastitem.report.answers import Answer, Part
from lastitem.report.claims import CLAIMS, MECHANISM
from lastitem.report.table import Table, write
from lastitem.study.runs import Stamp

BLANK = "\N{NO-BREAK SPACE}"
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
    assert (table["name"], table["title"]) == ("table2", "Table 2. Accuracy, all")
    assert table["caption"] == "Best in bold."
    assert [cell["text"] for cell in table["header"]] == ["a", "b (%)"]
    assert (table["folded"], table["is_folded"]) == ([], False)
    assert page.read_layout(path, {}, ["table2", "table3"])["is_folded"]
    assert [[(cell["text"], cell["bold"]) for cell in row] for row in table["rows"]] == [
        [("x", False), (f"0.1{BLANK}±{BLANK}0.2", True)],
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


def layout_of(folder: Path, columns: dict[str, list[str]], **facts: list[str]) -> dict:
    """A table of a layout, read as for the page."""
    table = Table(pd.DataFrame(facts), pd.DataFrame(columns), "Claims. Told.")
    write(table, folder / "claims.json", STAMP)
    return page.read_layout(folder / "claims.json", {}, (), pd.DataFrame(facts))


@pytest.mark.parametrize(
    "cell",
    [
        "1,234",
        "0.25",
        "-12.0",
        "−0.5",
        "+0.8 % [-0.2, +2.9]",
        "0.1234 ± 0.0012",
        "0.250 ± 0.010 [0.200, 0.300]",
        "+0.0100 [-0.0050, +0.0200], p 0.02",
        "[0.6309, 0.6309]",
        "43 %",
        "2e-05",
        "n/a",
        "",
    ],
)
def test_columns_of_numbers_are_at_the_right(tmp_path, cell):
    """Head and cells; a column with a word in it is at the left."""
    columns = {"Model": ["a", "1"], "Value": [cell, "0.1"], "Mixed": [cell, "0.1, all"]}
    table = layout_of(tmp_path, columns)
    assert [head["number"] for head in table["header"]] == [False, True, False]
    for row in table["rows"]:
        assert [cell["number"] for cell in row] == [False, True, False]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("+0.8 % [-0.2, +2.9]", "+0.8~% [-0.2,~+2.9]"),
        ("n = 5 users; 0.8 ± 0.1 [0.7, 0.9] of 3", "n = 5 users; 0.8~±~0.1~[0.7,~0.9] of 3"),
        ("70 % [60, 81] of it", "70~% [60,~81] of it"),
        ("words, and words", "words, and words"),
    ],
)
def test_an_interval_stays_in_one_line(text, shown):
    """Blanks within brackets, before units and before brackets behind a number do not
    break.
    """
    assert page.unbroken(text).replace(BLANK, "~") == shown
    assert page.unbroken(page.unbroken(text)) == page.unbroken(text)


def test_claims_about_the_mechanism_are_folded(tmp_path):
    names = list(CLAIMS)
    table = layout_of(tmp_path, {"Claim": names, "Holds": ["yes"] * len(names)}, claim=names)
    folded = [row[0]["text"] for row in table["folded"]]
    assert folded == [name for name in names if name in MECHANISM]
    assert [row[0]["text"] for row in table["rows"]] == [
        name for name in names if name not in MECHANISM
    ]
    html = made(tables=[table])
    told = f"<details><summary>{len(MECHANISM)} more rows: mechanism and λ</summary>"
    before, _, behind = html.partition(told)
    assert all(f">{name}</td>" in behind for name in MECHANISM)
    assert ">what it uses</td>" in before


def test_rows_of_groups_of_cases_are_folded(tmp_path):
    """Of a table that tells cases apart, whatever else its CSV holds."""
    columns = {"Cases": ["all", "tied", "all", "inputs of 2 items"], "Of": ["a", "b", "c", "d"]}
    table = layout_of(tmp_path, columns, value=["1"])
    assert [row[1]["text"] for row in table["rows"]] == ["a", "c"]
    assert [row[1]["text"] for row in table["folded"]] == ["b", "d"]
    told = "<summary>2 more rows: tied and untied targets, lengths of input</summary>"
    assert told in made(tables=[table])
    table = layout_of(tmp_path, {"Cases": ["all"]}, value=["1"])
    assert "more rows" not in made(tables=[table])


class Page(HTMLParser):
    """What leads elsewhere, what stands in classes, and the order of headings."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links, self.of_numbers, self.ids, self.open, self.folded = [], [], [], [], set()
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.links += [found[name] for name in ("href", "src") if name in found]
        if tag in ("td", "th"):
            self.of_numbers.append(found.get("class") == "number")
        if "id" in found:
            self.ids.append(found["id"])
            if "details" in self.open:
                self.folded.add(found["id"])
        if tag in ("details", "section", "article", "table", "div"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in ("details", "section", "article", "table", "div"):
            assert self.open.pop() == tag


def made(**given):
    """A page of what is given, and of nothing else."""
    nothing = {
        "found": [],
        "notes": [],
        "figures": [],
        "tables": [],
        "settings": "",
        "trained": [],
        "versions": {},
    }
    return page.make(**nothing | given)


def figure_named(name, **more):
    """What a page is told of a figure."""
    look = {"title": f"{name}: it", "caption": "All.", "width": 600, "data": "AAAA"}
    return {"name": name, "folded": False, **look, **more}


def test_the_page_leads_to_what_lies_beside_it_and_nowhere_else(tmp_path):
    """A table to its CSV, a figure to its PDF and CSV, the sections to themselves."""
    table = page.read_layout(table_of(tmp_path, "Table 2. Accuracy."), {})
    claims = layout_of(tmp_path, {"Claim": ["x"]}, claim=["x"])
    html = made(figures=[figure_named("fig1")], tables=[table, claims], notes=["n"])
    links = Page(html).links
    beside = {"fig1.pdf", "fig1.csv", "table2.csv", "claims.csv"}
    assert {link for link in links if link[0] != "#" and not link.startswith("data:")} == beside
    assert {link for link in links if link[0] == "#"} <= {f"#{name}" for name in Page(html).ids}
    assert [link for link in links if link.startswith("data:")] == [
        "data:image/svg+xml;base64,AAAA"
    ]
    assert "url(" not in html and "@import" not in html


def test_numbers_have_their_class_on_the_page(tmp_path):
    html = made(tables=[page.read_layout(table_of(tmp_path, "Table 2. Accuracy."), {})])
    assert Page(html).of_numbers == [False, True] * 3
    assert ".number { text-align: right; }" in html


def test_what_is_folded_is_in_a_fold_and_the_rest_is_not(tmp_path):
    tables = [
        {**page.read_layout(table_of(tmp_path, "Table 2. A."), {}), "name": name, **more}
        for name, more in (("table2", {}), ("table3", {"is_folded": True}), ("claims", {}))
    ]
    figures = [figure_named("fig1"), figure_named("fig3", folded=True), figure_named("fig8")]
    found = Page(made(tables=tables, figures=figures))
    assert found.folded == {"table3", "fig3"}
    own = [name for name in found.ids if re.match(r"table\d|fig\d|claims", name)]
    assert own == ["claims", "fig1", "fig8", "fig3", "table2", "table3"]


def test_a_wide_figure_has_a_row_for_itself():
    html = made(figures=[figure_named("fig1", width=761), figure_named("fig2", width=760)])
    assert re.findall(r'<figure id="(fig\d)"( class="wide")?>', html) == [
        ("fig1", ' class="wide"'),
        ("fig2", ""),
    ]


ACCOUNT = [
    Part("order of the earlier items", -10.0, -20.0, 0.0),
    Part("which items came before", 30.0, 20.0, 40.0),
    Part("the last item", 60.0, 50.0, 80.0),
    Part("needs no history", 20.0, 20.0, 20.0),
]


def test_the_bars_of_the_account_are_as_long_as_their_parts():
    """From zero, to the left where a part is negative, all on one scale; whiskers at
    the ends of the intervals, within the chart.
    """
    chart = page.chart_of(ACCOUNT)
    scale = (chart["bars"][2]["width"]) / 60
    for bar, part in zip(chart["bars"], ACCOUNT, strict=True):
        assert bar["width"] == pytest.approx(scale * abs(part.value), abs=0.2)
        start = chart["zero"] + scale * min(0.0, part.value)
        assert bar["x"] == pytest.approx(start, abs=0.2)
        for end, name in ((part.ci_low, "low"), (part.ci_high, "high")):
            assert bar[name] == pytest.approx(chart["zero"] + scale * end, abs=0.3)
        assert bar["text"] == f"{part.value:.0f} %"
    ends = [bar[name] for bar in chart["bars"] for name in ("low", "high")]
    assert (min(ends), max(ends)) == (184, 350), "between the names and the numbers"
    tops = [bar["y"] for bar in chart["bars"]]
    assert tops == sorted(tops) and tops[-1] + 20 < chart["height"]
    assert chart["spoken"].startswith("order of the earlier items -10 % [-20, 0]; which items")


def test_an_answer_stands_on_the_page_with_its_chart():
    answer = Answer("SASRec", "d (loo)", "It uses it.", ["Change -1.0 % [-2.0, 0.0]."], ACCOUNT)
    alone = Answer("GRU4Rec", "d (loo)", "These data do not tell.", [], [])
    html = made(found=[answer, alone])
    Page(html)
    assert "<h3>SASRec on d (loo)</h3>" in html
    assert '<p class="verdict">It uses it.</p>' in html
    assert f'<p class="numbers">Change -1.0{BLANK}% [-2.0,{BLANK}0.0].</p>' in html
    assert html.count("<article") == 2 and html.count("<svg") == 1 and html.count("<rect") == 4
    assert 'aria-label="order of the earlier items -10 % [-20, 0]; ' in html


def test_warnings_are_there_only_if_there_are_some():
    assert 'id="warnings"' not in made() and "#warnings" not in made()
    html = made(notes=["m: only 0.5 % [0.1, 0.9] left."])
    assert f"<li>m: only 0.5{BLANK}% [0.1,{BLANK}0.9] left.</li>" in html and "#warnings" in html


def test_what_comes_from_data_is_text():
    """A dataset may be called anything the config allows, a setting may hold
    anything.
    """
    evil = '<script>alert(1)</script>" onload="x'
    cell = {"text": evil, "bold": True, "number": False}
    table = {
        "name": evil,
        "title": evil,
        "caption": evil,
        "header": [{"text": evil, "number": True}],
        "rows": [[cell]],
        "folded": [[cell]],
        "of_folded": evil,
        "is_folded": False,
    }
    html = made(
        found=[Answer(evil, evil, evil, [evil], [Part(evil, 1.0, 0.0, 2.0)])],
        notes=[evil],
        figures=[
            figure_named(name, title=evil, caption=evil, folded=folded)
            for name, folded in (("fig1", False), ("fig3", True))
        ],
        tables=[table, {**table, "name": "claims"}, {**table, "is_folded": True}],
        settings=evil,
        trained=[evil],
        versions={evil: evil},
    )
    assert "<script" not in html and 'onload="' not in html
    assert html.count("&lt;script&gt;") >= 30
    Page(html)


def test_a_figure_is_as_wide_as_it_was_drawn(tmp_path):
    """In pixels of 1/96 inch, with the picture itself in the page."""
    drawn = figures.plt.figure(figsize=(3.5, 1))
    drawing.save(drawn, tmp_path / "fig1.svg")
    (tmp_path / "fig1.rst").write_text("What it shows.\n")
    found = page.figure_of(tmp_path / "fig1.svg", tmp_path / "fig1.rst", "fig1: it", True)
    assert (found["name"], found["title"]) == ("fig1", "fig1: it")
    assert (found["caption"], found["width"], found["folded"]) == ("What it shows.", 336, True)
    assert base64.b64decode(found["data"]) == (tmp_path / "fig1.svg").read_bytes()
    figures.plt.close(drawn)


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_equal_figures_are_equal_files(tmp_path, ending):
    """No date, no random ids."""
    for name in ("one", "other"):
        drawn, axis = figures.plt.subplots(figsize=(2, 1))
        axis.bar([0, 1], [1, 2], hatch="//")
        axis.plot([0, 1], [0, 1], marker="o", clip_on=True)
        drawing.save(drawn, tmp_path / f"{name}.{ending}")
        figures.plt.close(drawn)
    one, other = ((tmp_path / f"{name}.{ending}").read_bytes() for name in ("one", "other"))
    assert one == other and len(one) > 500


def test_a_figure_has_one_of_three_forms(tmp_path):
    drawn = figures.plt.figure()
    with pytest.raises(InputError, match=r"fig1\.gif: a figure is written as \.pdf, \.svg or"):
        drawing.save(drawn, tmp_path / "fig1.gif")
    figures.plt.close(drawn)
