"""Which modules of this package a script depends on, read from its import statements without running it."""

from __future__ import annotations

import ast
from pathlib import Path


def imported_modules(script: str | Path) -> list[Path]:
    """Find the files of the package beside a script that the script imports, directly or through one another.

    The workflow names them as inputs of the script's rule, so that an edit reruns what depends on it and nothing else.

    Parameters
    ----------
    script : a Python file in the folder that holds the package ``lastitem``.

    Returns
    -------
    Sorted paths, ``__init__.py`` of packages within the package included; not its own, which holds the version and names that are fetched
    when asked for: no result depends on it, and a release reruns nothing.
    """
    root = Path(script).parent
    own = root / "lastitem" / "__init__.py"
    found: set[Path] = set()
    waiting = [Path(script)]
    while waiting:
        for name in _imports(waiting.pop()):
            parts = name.split(".")
            for depth in range(1, len(parts) + 1):
                place = root.joinpath(*parts[:depth])
                for path in (place.with_suffix(".py"), place / "__init__.py"):
                    if path.is_file() and path not in found and path != own:
                        found.add(path)
                        waiting.append(path)
    return sorted(found)


def _imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from lastitem import ranking` imports a module, `from lastitem.ranking import rank` a function of one.
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if name.split(".")[0] == "lastitem"]
