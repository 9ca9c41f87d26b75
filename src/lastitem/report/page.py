"""The study on one page that opens from disk: the answer for each model, warnings,
claims, figures, tables, settings.
"""

import base64
import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from pandas import DataFrame

from lastitem.files import read_json
from lastitem.report.answers import Answer, Part
from lastitem.report.claims import MECHANISM
from lastitem.report.worths import EVERYONE
from lastitem.study.runs import check_study, read_csv

_TEMPLATE = Path(__file__).with_name("page.html.jinja")


def read_facts(path: str | Path, studies: Mapping[str, str]) -> DataFrame:
    """The CSV of a table or figure.

    Parameters
    ----------
    studies : name of a table or figure → the study that it must be of.

    Raises
    ------
    InputError if it is of another study, or does not say of which: files of two studies
    are not put on one page.
    """
    facts = read_csv(path)
    found = facts["study"].astype(str).unique() if "study" in facts else ["none named"]
    if len(facts):
        check_study(path, ", ".join(found), studies.get(Path(path).stem))
    return facts


def read_layout(
    path: str | Path, studies: Mapping[str, str], folded: Container[str] = (), facts: Any = None
) -> dict[str, Any]:
    """A table for :func:`make`, of the JSON that holds its layout: ``name``, ``title``,
    ``caption``, ``header`` and ``rows`` of cells (``text``, ``bold``, ``number``).

    Parameters
    ----------
    folded : names of the tables that are shown folded.
    facts : the table's CSV; ``folded`` are the claims of :data:`MECHANISM`, and rows of
        a group of cases; ``of_folded`` says what they are.

    Raises
    ------
    InputError if it is not there, or is of another study than ``studies`` names for it.
    """
    layout = read_json(path)
    check_study(path, layout["study"], studies.get(Path(path).stem))
    title = re.match(r"(?:Table \d+\. )?.*?(?=\.(?:\s|$)|$)", layout["caption"])
    numbers = [
        all(_NUMBER.fullmatch(row[column]) for row in layout["rows"] if row[column] != "n/a")
        for column in range(len(layout["header"]))
    ]
    rows = [
        [
            {
                "text": unbroken(text),
                "bold": [row, column] in layout["bold"],
                "number": numbers[column],
            }
            for column, text in enumerate(cells)
        ]
        for row, cells in enumerate(layout["rows"])
    ]
    away, of_folded = [False] * len(rows), ""
    if "Cases" in layout["header"]:
        group = layout["header"].index("Cases")
        away = [cells[group] != EVERYONE for cells in layout["rows"]]
        of_folded = "tied and untied targets, lengths of input"
    elif facts is not None and "claim" in facts:
        away, of_folded = facts["claim"].isin(MECHANISM).tolist(), "mechanism and λ"
    head = zip(layout["header"], numbers, strict=True)
    return {
        "name": Path(path).stem,
        "title": title[0] if title else "",
        "caption": layout["caption"][title.end() if title else 0 :].lstrip(". "),
        "header": [{"text": text, "number": number} for text, number in head],
        "rows": [row for row, is_away in zip(rows, away, strict=True) if not is_away],
        "folded": [row for row, is_away in zip(rows, away, strict=True) if is_away],
        "of_folded": of_folded,
        "is_folded": Path(path).stem in folded,
    }


#: A number with what may stand behind it: spread, interval, unit; or an interval alone.
_NUMBER = re.compile(
    r"([+−-]?[\d.,]+(e[+-]?\d+)?%?( ?[±%] ?[\d.,]*)*( ?\[[^\]]*\])?( ?%)?(, p [\d.e-]+)?)?"
    r"|\[[\d., +−-]+\]"
)


def unbroken(text: str) -> str:
    """Text whose intervals and units stay in one line."""
    within = re.sub(r"\[[^\]]*\]", lambda found: found[0].replace(" ", _BLANK), text)
    return re.sub(r"(?<=\d) (?=[%±\[])|(?<=±) ", _BLANK, within)


_BLANK = "\N{NO-BREAK SPACE}"


def chart_of(account: Sequence[Part]) -> dict[str, Any]:
    """Where the bars of a small chart lie, in pixels of 400 across."""
    left, right = 184.0, 350.0
    low = min(0.0, *(part.ci_low for part in account))
    high = max(1.0, *(part.ci_high for part in account))

    def at(value: float) -> float:
        return round(left + (right - left) * (value - low) / (high - low), 1)

    bars = [
        {
            "name": part.name,
            "y": 4 + 28 * place,
            "x": min(at(part.value), at(0.0)),
            "width": round(abs(at(part.value) - at(0.0)), 1),
            "low": at(part.ci_low),
            "high": at(part.ci_high),
            "text": f"{part.value:.0f} %",
        }
        for place, part in enumerate(account)
    ]
    told = (
        f"{part.name} {part.value:.0f} % [{part.ci_low:.0f}, {part.ci_high:.0f}]"
        for part in account
    )
    return {"bars": bars, "height": 28 * len(bars), "zero": at(0.0), "spoken": "; ".join(told)}


def make(
    *,
    found: Sequence[Answer],
    notes: Sequence[str],
    figures: Sequence[Mapping[str, Any]],
    tables: Sequence[Mapping[str, Any]],
    settings: str,
    trained: Sequence[str],
    versions: Mapping[str, str],
) -> str:
    """The page as HTML: nothing is loaded from anywhere, and whatever comes from data
    is text, never markup.
    """
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"unbroken": unbroken, "chart": chart_of}
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        answers=found,
        warnings=notes,
        figures=figures,
        tables=tables,
        settings=settings,
        trained=trained,
        versions=versions,
    )


def figure_of(svg: str | Path, caption: str | Path, title: str, folded: bool) -> dict[str, Any]:
    """A figure for :func:`make`: its picture, its width on the page (pixels of 1/96
    inch), the text that the report shows too, and whether it is shown folded.
    """
    text, picture = Path(caption).read_text(encoding="utf-8").strip(), Path(svg).read_bytes()
    # Matplotlib gives sizes in points of 1/72 inch.
    points = re.search(rb'<svg[^>]* width="([\d.]+)pt"', picture)
    return {
        "name": Path(svg).stem,
        "title": title,
        "caption": text,
        "width": round(float(points[1]) * 96 / 72) if points else 600,
        "data": base64.b64encode(picture).decode(),
        "folded": folded,
    }
