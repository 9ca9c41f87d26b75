"""The study on one page that opens from disk: the answer in a sentence per model, then
figures, tables, settings.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from pandas import DataFrame

from lastitem.files import read_json
from lastitem.report.answers import Answer
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


def read_layout(path: str | Path, studies: Mapping[str, str]) -> dict[str, Any]:
    """A table for :func:`make`, of the JSON that holds its layout: ``name``, ``title``,
    ``caption``, ``header`` and ``rows`` of cells (``text``, ``bold``).

    Raises
    ------
    InputError if it is not there, or is of another study than ``studies`` names for it.
    """
    layout = read_json(path)
    check_study(path, layout["study"], studies.get(Path(path).stem))
    title = re.match(r"(?:Table \d+\. )?.*?(?=\.(?:\s|$)|$)", layout["caption"])
    rows = [
        [
            {"text": text, "bold": [row, column] in layout["bold"]}
            for column, text in enumerate(cells)
        ]
        for row, cells in enumerate(layout["rows"])
    ]
    known = {key: layout[key] for key in ("caption", "header")}
    return {"name": Path(path).stem, "title": title[0] if title else "", "rows": rows, **known}


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


def figure_of(png: str | Path, caption: str | Path, title: str) -> dict[str, Any]:
    """A figure for :func:`make`: its picture, its width on the page (pixels of 1/96
    inch), and the text that the report shows too.
    """
    text, picture = Path(caption).read_text(encoding="utf-8").strip(), Path(png).read_bytes()
    # A PNG begins with its signature and the header chunk, whose first number is the
    # width in pixels; the chunk pHYs holds the pixels of a metre.
    density = int.from_bytes(picture[picture.index(b"pHYs") + 4 :][:4], "big") * 0.0254
    width = round(int.from_bytes(picture[16:20], "big") * 96 / round(density))
    return {
        "name": Path(png).stem,
        "title": title,
        "caption": text,
        "width": width,
        "data": base64.b64encode(picture).decode(),
    }
