"""What the source must look like and ruff does not check: sizes, which module may
import which, and that only the models know one architecture from another.

Files are read, not imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
#: From the top. A module imports from its own floor and from those below.
FLOORS = (
    ("training", "report"),
    ("evaluation",),
    ("models", "study"),
    ("data",),
    ("files", "device", "errors", "progress", "randomness", "arrays"),
)
#: For scripts alone.
ARGUMENTS = "lastitem.arguments"
MOST_LINES_OF_A_FILE, MOST_LINES_OF_A_FUNCTION, MOST_COLUMNS = 400, 60, 100
Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    """The dotted name of a module or package."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


SCRIPTS = {name_of(path): path for path in sorted(SOURCE.glob("*.py"))}
LIBRARY = {name_of(path): path for path in sorted(SOURCE.glob("lastitem/**/*.py"))}
#: The package itself holds no more than its version and its lazy names.
MODULES = {name: path for name, path in LIBRARY.items() if name != "lastitem"}
#: Name of each architecture → ``module:Class``, from the dict that says so.
ARCHITECTURES = {
    ast.literal_eval(key): ast.literal_eval(value.elts[0])
    for node in tree(LIBRARY["lastitem.models.settings"]).body
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "ARCHITECTURES"
    if isinstance(node.value, ast.Dict)
    for key, value in zip(node.value.keys, node.value.values, strict=True)
    if key and isinstance(value, ast.Tuple)
}
HOMES = {path.split(":")[0] for path in ARCHITECTURES.values()}
CLASSES = {
    node.name
    for home in HOMES
    for node in ast.walk(tree(LIBRARY[home]))
    if isinstance(node, ast.ClassDef)
}


def docstring(node: ast.AST) -> ast.stmt | None:
    """The statement that is the docstring of a module, a class or a function."""
    if (
        isinstance(node, (ast.Module, ast.ClassDef, Function))
        and ast.get_docstring(node) is not None
    ):
        return node.body[0]
    return None


def lines_of(path: Path, node: Function | None = None) -> int:
    """Lines of a file, or of a function with what is nested in it, without blank lines
    and docstrings.
    """
    text = path.read_text(encoding="utf-8").splitlines()
    root = node or tree(path)
    left_out = {
        line
        for inner in ast.walk(root)
        if (found := docstring(inner))
        for line in range(found.lineno, (found.end_lineno or 0) + 1)
    }
    first, last = (node.lineno, node.end_lineno or 0) if node else (1, len(text))
    return sum(
        bool(text[line - 1].strip()) for line in range(first, last + 1) if line not in left_out
    )


def imports_of(name: str, path: Path) -> Iterator[tuple[int, str, str]]:
    """Each import of a file, at any depth: its line, the module, and the name taken
    from it or "".

    A module of a package that is imported from it, ``from lastitem import files``, is
    the module.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                taken = (inner, "") if inner in LIBRARY else (base, alias.name)
                yield (node.lineno, *taken)


def floor_of(name: str) -> int | None:
    """The number of a module's floor from the top, or None if it stands on none."""
    first = name.split(".")[1]
    return next((number for number, rooms in enumerate(FLOORS) if first in rooms), None)


def told(path: Path, line: int, what: str) -> str:
    """A fault with its place."""
    return f"{path.relative_to(ROOT)}:{line}: {what}"


def none_of(faults: list[str]) -> None:
    """Fail with one fault a line."""
    assert not faults, "\n" + "\n".join(faults)


def test_no_file_is_long():
    none_of(
        [
            told(path, 1, f"{lines_of(path)} lines")
            for path in (SCRIPTS | LIBRARY).values()
            if lines_of(path) > MOST_LINES_OF_A_FILE
        ]
    )


def test_no_function_is_long():
    none_of(
        [
            told(path, node.lineno, f"{node.name}: {lines_of(path, node)} lines")
            for path in (SCRIPTS | LIBRARY).values()
            for node in ast.walk(tree(path))
            if isinstance(node, Function) and lines_of(path, node) > MOST_LINES_OF_A_FUNCTION
        ]
    )


def test_no_line_is_wide():
    """Of Python everywhere, and of the rules."""
    paths = [ROOT / "Snakefile", *ROOT.glob("workflow/rules/*")]
    paths += [
        path
        for name in ("src", "tests", "benchmarks", "docs")
        for path in ROOT.glob(f"{name}/**/*.py")
    ]
    none_of(
        [
            told(path, number, f"{len(line)} columns")
            for path in sorted(paths)
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if len(re.sub(r"  # (type: ignore|noqa)\S*$", "", line)) > MOST_COLUMNS
        ]
    )


def test_every_module_stands_on_a_floor_and_imports_only_from_there_down():
    faults = []
    for name, path in MODULES.items():
        if name == ARGUMENTS:
            continue
        here = floor_of(name)
        if here is None:
            faults.append(told(path, 1, "stands on no floor"))
            continue
        for line, other, _ in imports_of(name, path):
            there = floor_of(other) if other in MODULES and other != ARGUMENTS else None
            if other == ARGUMENTS or other in SCRIPTS or (there is not None and there < here):
                faults.append(told(path, line, f"imports {other}, which is above it"))
    none_of(faults)


def test_no_modules_import_one_another_in_a_circle():
    needs = {
        name: {other for _, other, _ in imports_of(name, path) if other in MODULES}
        for name, path in MODULES.items()
    }
    # Whoever needs nothing that is left is in no circle.
    while free := [name for name, others in needs.items() if not others & needs.keys()]:
        for name in free:
            del needs[name]
    none_of([f"{name} needs {sorted(others & needs.keys())}" for name, others in needs.items()])


def test_a_package_holds_a_docstring_only():
    """Reading the Snakefile must stay fast."""
    none_of(
        [
            told(path, 1, "more than a docstring, or none")
            for path in MODULES.values()
            if path.name == "__init__.py"
            and (len(tree(path).body) != 1 or docstring(tree(path)) is None)
        ]
    )


def test_only_scripts_parse_arguments():
    none_of(
        [
            told(path, line, f"imports {other}")
            for name, path in MODULES.items()
            for line, other, _ in imports_of(name, path)
            if name != ARGUMENTS and other.split(".")[0] == "argparse"
        ]
    )


def test_reading_the_snakefile_loads_nothing_heavy():
    """Each job of a cluster reads it again. What it imports, and what that imports."""
    heavy = {"torch", "numpy", "pandas", "pyarrow", "scipy", "matplotlib"}
    rules = "\n".join(
        path.read_text(encoding="utf-8")
        for path in [ROOT / "Snakefile", *sorted(ROOT.glob("workflow/rules/*.smk"))]
    )
    left = re.findall(r"^(?:from|import) (lastitem[\w.]*)", rules, re.MULTILINE)
    assert left
    seen: set[str] = set()
    faults = []
    while left:
        name = left.pop()
        if name not in MODULES or name in seen:
            continue
        seen.add(name)
        for line, other, _ in imports_of(name, MODULES[name]):
            left.append(other)
            if other.split(".")[0] in heavy:
                faults.append(told(MODULES[name], line, f"imports {other}"))
    none_of(faults)


def compared(node: ast.AST) -> list[ast.expr]:
    """What is compared, asked for its class, or matched in a node."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.args[1:] if node.func.id in ("isinstance", "issubclass") else []
    if isinstance(node, ast.MatchClass):
        return [node.cls]
    return [node.value] if isinstance(node, ast.MatchValue) else []


def architecture_in(expression: ast.expr) -> str | None:
    """The architecture that an expression names, as text or as a class."""
    for node in ast.walk(expression):
        name = (
            node.value
            if isinstance(node, ast.Constant)
            else node.id
            if isinstance(node, ast.Name)
            else node.attr
            if isinstance(node, ast.Attribute)
            else None
        )
        if isinstance(name, str) and name in {*CLASSES, *ARCHITECTURES, *ARCHITECTURES.values()}:
            return name
    return None


def test_only_the_models_know_one_architecture_from_another():
    """No other module imports a class of a model or compares with one or its name; what
    is trained or diagnosed otherwise says so itself.
    """
    assert {"lastitem.models.sasrec", "lastitem.models.popularity"} <= HOMES
    faults = []
    for name, path in (SCRIPTS | MODULES).items():
        if name.startswith("lastitem.models"):
            continue
        faults += [
            told(path, line, f"imports {taken or module} of {module}")
            for line, module, taken in imports_of(name, path)
            if module in HOMES or (module in LIBRARY and taken in CLASSES)
        ]
        faults += [
            told(path, getattr(node, "lineno", 1), f"compares with {found}")
            for node in ast.walk(tree(path))
            for expression in compared(node)
            if (found := architecture_in(expression))
        ]
    none_of(faults)


def test_names_of_tests_are_words():
    """Not the letter and number of a list of faults, ``test_d9_…``."""
    none_of(
        [
            told(path, number, line.strip())
            for path in sorted(ROOT.glob("tests/**/*.py"))
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if re.match(r"\s*(async )?(def|class) (?i:test_?[a-z]\d+)(_|\W)", line)
        ]
    )
