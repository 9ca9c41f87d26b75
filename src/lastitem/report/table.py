"""A table and its writers: a tidy CSV for machines, and the same facts laid out for
readers in Markdown, LaTeX and JSON.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
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
#: The same where a long table is broken behind its keys; the width of a page, and that
#: of a character, of a paragraph and between columns in its small type, in points.
NARROW_LINE, NARROW_PARAGRAPH = 18, "2.1cm"
_TEXT, _CHARACTER, _PARAGRAPH, _BETWEEN = 506.0, 4.2, 60.0, 6.0


@dataclass
class Table:
    """One table: ``facts`` go into the CSV, ``layout`` (text cells) and ``caption``
    into Markdown, LaTeX and JSON.

    ``best`` marks cells of the layout to print bold: column → row positions. ``keys``
    columns at the front say what a row is of: behind them, a long table may be broken
    where it is too wide.
    """

    facts: DataFrame
    layout: DataFrame
    caption: str
    best: Mapping[str, Sequence[int]] = field(default_factory=dict)
    keys: int = 0


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
    page is broken over pages in small type, and behind its keys over several tables. It
    needs the packages array, booktabs, graphicx and longtable.
    """
    width = table.layout.map(len)
    caption = _latex(re.sub(r"^Table \d+\. ", "", table.caption))
    if np.ceil(width / LINE).max(axis=1).sum() > PAGE:
        long = "".join(
            _tabular(table, columns, caption=again, environment="longtable")
            for columns, again in zip(
                _parts(table), chain([caption], repeat(caption.split(".")[0])), strict=False
            )
        )
        return (
            "\\begingroup\\scriptsize\\setlength{\\tabcolsep}{3pt}"
            f"\\setlength{{\\LTcapwidth}}{{\\linewidth}}\n{long}\\endgroup\n"
        )
    narrower = "\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi"
    whole = _tabular(table, list(table.layout.columns)).rstrip()
    fitted = f"\\resizebox{{{narrower}}}{{!}}{{%\n{whole}}}"
    return (
        f"\\begin{{table}}[htbp]\n\\centering\n\\caption{{{caption}}}\n\\smallskip\n"
        f"{fitted}\n\\end{{table}}\n"
    )


def _tabular(table: Table, columns: Sequence[str], **look: str) -> str:
    """Some columns of a table as LaTeX."""

    def weight(column: Series) -> list[str]:
        rows = table.best.get(column.name, ())
        return ["font-weight: bold;" if row in rows else "" for row in range(len(column))]

    layout = table.layout[columns]
    style = layout.style.hide(axis="index").format(_latex).format_index(_latex, axis=1)
    narrow = bool(table.keys and "environment" in look)
    line, paragraph = (NARROW_LINE, NARROW_PARAGRAPH) if narrow else (LINE, PARAGRAPH)
    form = "".join(
        f">{{\\raggedright\\arraybackslash}}p{{{paragraph}}}" if longest > line else "l"
        for longest in layout.map(len).max()
    )
    look = {"column_format": form, **look}
    return style.apply(weight).to_latex(hrules=True, convert_css=True, **look)


def _parts(table: Table) -> list[list[str]]:
    """The columns of a long table in parts, each as wide as a page at most and with the
    keys in front; all in one for a table without keys.
    """
    columns = list(table.layout.columns)
    keys, rest = columns[: table.keys], columns[table.keys :]
    if not keys:
        return [columns]
    longest = table.layout.map(len).max()
    needed = {
        name: _BETWEEN
        + (
            _PARAGRAPH
            if longest[name] > NARROW_LINE
            else _CHARACTER * max(longest[name], len(name))
        )
        for name in columns
    }
    left = _TEXT - sum(needed[name] for name in keys)
    parts, used = [[*keys, rest[0]]], needed[rest[0]]
    for name in rest[1:]:
        used += needed[name]
        if used > left:
            parts.append([*keys])
            used = needed[name]
        parts[-1].append(name)
    return parts


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
