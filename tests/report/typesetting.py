"""Compiling the LaTeX tables with a real TeX."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest


def typeset(folder: Path, tables: Sequence[Path]) -> None:
    """Compile a document of the width of two columns that includes the tables; nothing
    may stop TeX or stick out of the page.
    """
    if not shutil.which("pdflatex"):
        pytest.skip(
            "no pdflatex here: the LaTeX tables are not compiled (Debian: texlive-latex-base,"
            " texlive-latex-recommended)"
        )
    inputs = "".join(f"\\input{{t{number}}}\n" for number, _ in enumerate(tables))
    for number, table in enumerate(tables):
        shutil.copy(table, folder / f"t{number}.tex")
    packages = (
        "\\usepackage[textwidth=506pt]{geometry}\n\\usepackage{array,booktabs,graphicx,longtable}\n"
    )
    document = (
        f"\\documentclass{{article}}\n{packages}\\begin{{document}}\n{inputs}\\end{{document}}\n"
    )
    (folder / "document.tex").write_text(document, encoding="utf-8")
    for _ in range(2):  # The second run knows the widths of the long tables' columns.
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "document.tex"]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, encoding="latin-1"
        )
        assert done.returncode == 0, done.stdout[-2000:]
    assert (folder / "document.pdf").stat().st_size > 0
    assert not re.findall(r"Overfull \\hbox.*|Float too large.*|.*undefined.*", done.stdout)
