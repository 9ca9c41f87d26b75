"""A table and its writers: a tidy CSV for machines, and the same facts laid out for
readers in Markdown, LaTeX and JSON.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from lastitem.errors import InputError
from lastitem.files import write_aside, write_json
from lastitem.study.runs import Stamp, write_csv

NOT_APPLICABLE = "n/a"
#: LaTeX: cells with more characters than a line are set in lines of a paragraph's
#: width, tables with more lines than a page over pages.
LINE, PARAGRAPH, PAGE = 30, "4.5cm", 50


@dataclass
class Table:
    """One table: ``facts`` go into the CSV, ``layout`` (text cells) and ``caption``
    into Markdown, LaTeX and JSON.

    ``best`` marks cells of the layout to print bold: column → row positions.
    """

    facts: DataFrame
    layout: DataFrame
    caption: str
    best: Mapping[str, Sequence[int]] = field(default_factory=dict)


def laid_out(rows: Sequence[Mapping[str, str]]) -> DataFrame:
    """A layout of rows of text cells; what a row lacks is n/a."""
    return DataFrame(rows).fillna(NOT_APPLICABLE)


def write(table: Table, path: str | Path, stamp: Stamp) -> None:
    """Write a table in the form that ``path`` ends with: csv, md, tex or json."""
    ending = Path(path).suffix
    if ending == ".csv":
        write_csv(table.facts, path, stamp)
    elif ending == ".json":
        write_json(path, {"study": stamp.study, **as_json(table)})
    elif ending in (".md", ".tex"):
        with write_aside(path) as aside:
            text = as_markdown(table) if ending == ".md" else as_latex(table)
            aside.write_text(text, encoding="utf-8")
    else:
        raise InputError(f"{path}: a table is written as .csv, .md, .tex or .json")


def as_json(table: Table) -> dict[str, object]:
    """``caption``, ``header`` and ``rows`` of cells as text, and ``bold``: row and
    column of each bold one.
    """
    header = list(table.layout.columns)
    bold = [[row, header.index(column)] for column, rows in table.best.items() for row in rows]
    return {
        "caption": table.caption,
        "header": header,
        "rows": table.layout.to_numpy().tolist(),
        "bold": sorted(bold),
    }


def as_markdown(table: Table) -> str:
    """The caption, and below it the layout, the best in ``**``."""
    bold = table.layout.copy()
    for column, rows in table.best.items():
        place = bold.columns.get_loc(column)
        for row in rows:
            bold.iat[row, place] = f"**{bold.iat[row, place]}**"
    left = ["left"] * bold.shape[1]
    body = bold.to_markdown(index=False, disable_numparse=True, colalign=left)
    return f"{table.caption}\n\n{body}\n"


def as_latex(table: Table) -> str:
    """LaTeX no wider than the text: a float is scaled down to it, a table longer than a
    page is broken over pages in small type. It needs the packages array, booktabs,
    graphicx and longtable.
    """

    def weight(column: Series) -> list[str]:
        rows = table.best.get(column.name, ())
        return ["font-weight: bold;" if row in rows else "" for row in range(len(column))]

    style = table.layout.style.hide(axis="index").format(_latex).format_index(_latex, axis=1)
    style, width = style.apply(weight), table.layout.map(len)
    caption = _latex(re.sub(r"^Table \d+\. ", "", table.caption))
    columns = "".join(
        f">{{\\raggedright\\arraybackslash}}p{{{PARAGRAPH}}}" if longest > LINE else "l"
        for longest in width.max()
    )
    look = {"column_format": columns, "hrules": True, "convert_css": True}
    if np.ceil(width / LINE).max(axis=1).sum() > PAGE:
        long = style.to_latex(environment="longtable", caption=caption, **look)
        return (
            "\\begingroup\\scriptsize\\setlength{\\tabcolsep}{3pt}"
            f"\\setlength{{\\LTcapwidth}}{{\\linewidth}}\n{long}\\endgroup\n"
        )
    narrower = "\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi"
    fitted = f"\\resizebox{{{narrower}}}{{!}}{{%\n{style.to_latex(**look).rstrip()}}}"
    return (
        f"\\begin{{table}}[htbp]\n\\centering\n\\caption{{{caption}}}\n\\smallskip\n"
        f"{fitted}\n\\end{{table}}\n"
    )


def _latex(text: str) -> str:
    special = {character: f"\\{character}" for character in "%_&#${}"}
    special |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {
        "λ": r"$\lambda$",
        "ε": r"$\varepsilon$",
        "−": "$-$",
        "±": r"$\pm$",
        "×": r"$\times$",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
    }
    minus_signs = re.sub(r"(?<!\w)-(?=\d)", "−", text)
    return "".join(special.get(character, character) for character in minus_signs)


def cell(form: str, value: float) -> str:
    """A value in its form; n/a where there is none."""
    return NOT_APPLICABLE if pd.isna(value) else form.format(value)


def with_interval(row: Mapping[str, Any], measure: str = "", form: str = ".3f") -> str:
    """``0.250 ± 0.010 [0.200, 0.300]``, of the columns of a measure."""
    start = f"{measure}_" if measure else ""
    value = row[measure or "value"]
    low, high, deviation = (row[f"{start}{part}"] for part in ("ci_low", "ci_high", "sd_seeds"))
    if pd.isna(value):
        return NOT_APPLICABLE
    spread = "" if pd.isna(deviation) else f" ± {deviation:{form.lstrip('+')}}"
    return f"{value:{form}}{spread} [{low:{form}}, {high:{form}}]"


def counts(column: Iterable[float]) -> str:
    """The different counts of a column."""
    known = sorted({int(count) for count in column if pd.notna(count)})
    return ", ".join(f"{count:,}" for count in known) or "no"
