"""Which modules a script depends on, so that an edit reruns what it must and nothing
else.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from lastitem.study.dependencies import imported_modules

SOURCE = Path(__file__).parents[2] / "src"


def package(folder, **files):
    """A small package; ``__`` in a keyword stands for a folder."""
    for name, text in {"lastitem____init__": "", **files}.items():
        path = folder / (
            name.replace("____init__", "/__init__")
            .replace("__models__", "/models/")
            .replace("lastitem__", "lastitem/")
            + ".py"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def names(folder, script="script"):
    return [
        path.relative_to(folder).as_posix() for path in imported_modules(folder / f"{script}.py")
    ]


@pytest.mark.parametrize(
    "line",
    [
        "import lastitem.a",
        "import lastitem.a as short",
        "from lastitem import a",
        "from lastitem import a as short, nothing",
        "from lastitem.a import thing",
        "from lastitem.a import *",
        "def late():\n    from lastitem import a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lastitem.a import thing",
    ],
)
def test_every_form_of_import_is_found(tmp_path, line):
    package(tmp_path, script=line, lastitem__a="", lastitem__b="")
    assert names(tmp_path) == ["lastitem/a.py"]


def test_modules_are_followed_through_one_another(tmp_path):
    """Script → a → b → models.c, and back from b to a: each once, in order, files of
    packages in it included.
    """
    package(
        tmp_path,
        script="from lastitem import a",
        lastitem__a="from lastitem.b import thing",
        lastitem__b="import lastitem.a\nfrom lastitem.models.c import other",
        lastitem____init__="",
        lastitem__models____init__="",
        lastitem__models__c="import os, numpy",
        lastitem__unused="from lastitem import a",
    )
    assert names(tmp_path) == [
        "lastitem/a.py",
        "lastitem/b.py",
        "lastitem/models/__init__.py",
        "lastitem/models/c.py",
    ]


def test_the_package_file_is_none_of_them(tmp_path):
    """It holds the version, and a release is no reason to train anew."""
    package(
        tmp_path,
        script="import lastitem",
        lastitem____init__="from lastitem import a",
        lastitem__a="",
    )
    assert names(tmp_path) == []


def test_the_package_file_computes_nothing():
    """It may stay out of account only as long as it imports no module of
    the package.
    """
    tree = ast.parse((SOURCE / "lastitem/__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {node.module for node in imports if isinstance(node, ast.ImportFrom)} == {
        "importlib",
        "typing",
    } and len(imports) == 2


def test_names_in_text_and_other_packages_are_not_imports(tmp_path):
    package(
        tmp_path,
        script=(
            '"""from lastitem import a"""\n# import lastitem.a\nimport lastitems.a\nfrom numpy'
            " import a"
        ),
        lastitem__a="",
    )
    assert names(tmp_path) == []


def test_nothing_is_run(tmp_path):
    """Reading suffices: a module that would fail, or act, when imported."""
    package(
        tmp_path,
        script="from lastitem import a",
        lastitem__a=f"open({str(tmp_path / 'mark')!r}, 'w')\nraise SystemExit",
    )
    assert names(tmp_path) == ["lastitem/a.py"]
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("script", sorted(path.name for path in SOURCE.glob("*.py")))
def test_no_script_reruns_for_what_only_the_workflow_uses(script):
    """Checking the config happens while the Snakefile is parsed, in no script;
    training alone keys its state by its code.
    """
    found = {path.relative_to(SOURCE).as_posix() for path in imported_modules(SOURCE / script)}
    assert not found & (
        {"lastitem/study/config.py"}
        | (set() if script == "train.py" else {"lastitem/study/dependencies.py"})
    )


@pytest.mark.parametrize("script", ["download", "train"])
def test_nothing_that_is_really_loaded_is_missed(script):
    """The interpreter's own list of loaded modules, for a light and a heavy script, is
    within what was found.
    """
    program = (
        f"import sys, {script}; print(*[m.__file__ for n, m in sys.modules.items() if"
        " n.split('.')[0] == 'lastitem'], sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(SOURCE)},
    )
    loaded = {Path(line).relative_to(SOURCE).as_posix() for line in done.stdout.splitlines()}
    found = {
        path.relative_to(SOURCE).as_posix() for path in imported_modules(SOURCE / f"{script}.py")
    }
    assert {"lastitem/errors.py", "lastitem/files.py"} <= loaded - {"lastitem/__init__.py"} <= found


def test_training_does_not_depend_on_what_only_reports_use():
    """An edit of a figure or a table must not retrain a model."""
    found = {path.name for path in imported_modules(SOURCE / "train.py")}
    assert not found & {
        "figures.py",
        "tables.py",
        "summaries.py",
        "decomposition.py",
        "rescaling.py",
        "shuffling.py",
        "downloading.py",
        "tie_order.py",
    }
