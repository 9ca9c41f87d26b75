"""Which files a script or a model depends on, read from import statements without
running anything.
"""

import ast
import functools
import os
from collections.abc import Iterator
from pathlib import Path

from lastitem.errors import InputError


def imported_modules(script: str | Path) -> list[Path]:
    """Find the files of the package beside a script that the script imports, directly
    or through one another.

    The workflow names them as inputs of the script's rule, so that an edit reruns what
    depends on it and nothing else.

    Parameters
    ----------
    script : a Python file in the folder that holds the package ``lastitem``.

    Returns
    -------
    Sorted paths, ``__init__.py`` of packages within the package included; not its own,
    which holds the version and names that are fetched when asked for: no result depends
    on it, and a release reruns nothing.
    """
    return _imported_by([Path(script)], (Path(script).parent,))


def search_path() -> tuple[Path, ...]:
    """Where the modules of models are looked for: the working directory, this package,
    PYTHONPATH.
    """
    folders = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    here = os.path.relpath(Path(__file__).parents[2])
    return (Path(), Path(here), *map(Path, folders))


def files_of(import_path: str) -> list[Path]:
    """The file that defines a class, and those it imports from :func:`search_path`.

    Parameters
    ----------
    import_path : ``package.module:Class``.

    Raises
    ------
    InputError if there is no such file, or it neither defines nor imports the class.
    """
    module, _, name = import_path.partition(":")
    folders = search_path()
    files = list(_files(module, folders))
    if not files or _module_of(files[-1])[-module.count(".") - 1 :] != module.split("."):
        looked = ", ".join(str(folder.absolute()) for folder in folders)
        raise InputError(f"{import_path}: there is no module {module} in {looked}")
    found = _defined(files[-1])
    if name not in found:
        raise InputError(
            f"{import_path}: {files[-1]} defines no {name}; found: {', '.join(found) or 'nothing'}"
        )
    return sorted({*files, *_imported_by(files, folders)})


def _module_of(file: Path) -> list[str]:
    """The parts of a module's place: those of its folder for a package."""
    return [part for part in file.with_suffix("").parts if part != "__init__"]


def _imported_by(waiting: list[Path], folders: tuple[Path, ...]) -> list[Path]:
    found: set[Path] = set()
    waiting = list(waiting)
    while waiting:
        importer = waiting.pop()
        for name in _names(importer.read_text(encoding="utf-8"), str(importer)):
            level = len(name) - len(name.lstrip("."))
            where = (importer.parents[level - 1],) if level else folders
            for path in _files(name.lstrip("."), where):
                if path not in found:
                    found.add(path)
                    waiting.append(path)
    return sorted(found)


def _files(name: str, folders: tuple[Path, ...]) -> Iterator[Path]:
    """The files of a dotted name, packages before what is in them; its end may be a
    name in a module.
    """
    parts = name.split(".")
    names = (parts[0], f"{parts[0]}.py")
    homes = (folder for folder in folders if any((folder / name).exists() for name in names))
    folder = next(homes, None)
    if folder is None or not parts[0]:
        return
    for depth in range(1, len(parts) + 1):
        place = Path(folder, *parts[:depth])
        for path in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if path.is_file() and path.parts[-2:] != ("lastitem", "__init__.py"):
                yield path
                break


@functools.cache
def _names(code: str, path: str) -> list[str]:
    """Dotted names that a module imports, or from which; with leading dots where
    relative.
    """
    # Kept, because the workflow, which is read anew in every cluster job, asks for the
    # modules of each script, and most are the same.
    names: dict[str, None] = {}
    for node in ast.walk(_parsed(code, path)):
        if isinstance(node, ast.Import):
            names |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from package import module` imports a module, `from module import name` a
            # function of one.
            base = "." * node.level + (f"{node.module}." if node.module else "")
            names |= dict.fromkeys(base + alias.name for alias in node.names)
    return list(names)


def _defined(path: Path) -> list[str]:
    """Names that a module binds at its top."""
    names: list[str] = []
    for node in _parsed(path.read_text(encoding="utf-8"), str(path)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names += [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return names


def _parsed(code: str, path: str) -> ast.Module:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 1)
        raise InputError(
            f"{path}:{line}: cannot be read as Python ({getattr(error, 'msg', error)})"
        ) from None
