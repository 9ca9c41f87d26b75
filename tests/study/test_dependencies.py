"""Which modules a script depends on, so that an edit reruns what it must and nothing
else.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lastitem.errors import InputError
from lastitem.models.settings import ARCHITECTURES
from lastitem.study.dependencies import files_of, imported_modules

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
    """Checking the config happens while the Snakefile is parsed, in no script; training
    alone keys its state by its code, and the page, made in seconds, names the figures
    of the study.
    """
    found = {path.relative_to(SOURCE).as_posix() for path in imported_modules(SOURCE / script)}
    only = {"lastitem/study/config.py", "lastitem/study/dependencies.py"}
    exempt = {"train.py": {"lastitem/study/dependencies.py"}, "make_page.py": only}
    assert not found & (only - exempt.get(script, set()))


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
        "interventions.py",
        "effects.py",
        "downloading.py",
        "tie_order.py",
    }


def written(folder, **files):
    """Files of one's own; ``__`` in a keyword stands for a folder."""
    for name, text in files.items():
        path = folder / (name.replace("____init", "/__init__").replace("__in__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory, and a folder on PYTHONPATH."""
    folder, elsewhere = tmp_path.resolve() / "here", tmp_path.resolve() / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    return folder, elsewhere


def test_the_files_of_a_class_are_found_by_reading(here):
    """In the working directory and on PYTHONPATH; relative imports, of a package's own
    files too; files of the library that they import; and nothing is imported: the
    modules would fail, or leave a trace.
    """
    folder, elsewhere = here
    mark = folder / "mark"
    acting = f"open({str(mark)!r}, 'w')\nraise SystemExit\n"
    written(
        folder,
        mine____init=acting,
        mine__in__model=f"{acting}from . import parts\nfrom .deep.layers import Layer\nfrom"
        " lastitem import randomness\nimport aside, numpy\nclass Model: ...",
        mine__in__parts="from .model import Model",
        mine__in__unused="",
        mine__in__deep____init="from ..third import x",
        mine__in__deep__in__layers="from .. import fourth",
        mine__in__third="",
        mine__in__fourth="",
    )
    written(elsewhere, aside="import far.away", far____init="", far__in__away="")
    found = [path.resolve() for path in files_of("mine.model:Model")]
    library = SOURCE / "lastitem"
    assert [path for path in found if path.is_relative_to(folder)] == [
        folder / "mine" / name
        for name in (
            "__init__.py",
            "deep/__init__.py",
            "deep/layers.py",
            "fourth.py",
            "model.py",
            "parts.py",
            "third.py",
        )
    ]
    assert {path for path in found if path.is_relative_to(elsewhere)} == {
        elsewhere / name for name in ("aside.py", "far/__init__.py", "far/away.py")
    }
    assert library / "randomness.py" in found and library / "files.py" not in found
    assert not mark.exists() and not {"mine", "aside", "far"} & set(sys.modules)


def test_a_class_may_be_in_a_package_itself_or_imported_there(here):
    folder, _ = here
    written(folder, mine____init="from .model import Model as Short", mine__in__model="")
    assert files_of("mine:Short") == [Path("mine/__init__.py"), Path("mine/model.py")]
    with pytest.raises(InputError, match=r"mine/__init__\.py defines no Model; found: Short"):
        files_of("mine:Model")


def test_the_working_directory_comes_before_the_path(here):
    folder, elsewhere = here
    written(folder, mine="class Model: ...")
    written(elsewhere, mine="class Other: ...", theirs="class Model: ...")
    assert files_of("mine:Model") == [Path("mine.py")]
    assert files_of("theirs:Model") == [elsewhere / "theirs.py"]


@pytest.mark.parametrize("path", ["mien:Model", "mine.deep:Model", "mine.modle:Model", ":Model"])
def test_a_missing_module_is_named_with_the_folders_looked_in(here, path):
    folder, elsewhere = here
    written(folder, mine____init="", mine__in__model="class Model: ...")
    with pytest.raises(InputError) as error:
        files_of(path)
    text = str(error.value)
    assert f"{path}: there is no module {path.removesuffix(':Model')} in" in text
    for place in (folder, elsewhere):
        assert str(place) in text
    assert str(SOURCE) in {os.path.abspath(word) for word in text.split(" in ")[1].split(", ")}


def test_a_missing_class_is_named_with_those_that_are_there(here):
    folder, _ = here
    written(folder, mine="import numpy as np\nclass Model: ...\nOther = Model\ndef make(): ...")
    with pytest.raises(InputError) as error:
        files_of("mine:Modle")
    assert "mine.py defines no Modle; found: np, Model, Other, make" in str(error.value)


def test_a_module_that_is_not_python_is_named_with_the_line(here):
    folder, _ = here
    written(folder, mine="class Model: ...\n\nclass Model(:")
    with pytest.raises(InputError, match=r"mine\.py:3: cannot be read as Python"):
        files_of("mine:Model")


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_the_files_of_a_model_are_those_of_no_other(name):
    """An edit of one architecture reruns those that are made of it alone."""
    found = {path.stem.replace("_", "-") for path in files_of(ARCHITECTURES[name][0])}
    bases = {"duorec": {"sasrec"}}
    assert found & set(ARCHITECTURES) == {name} | bases.get(name, set())
