"""Which modules of this package a script depends on, read from its import statements
without running it.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path


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
    root = Path(script).parent
    own = root / "lastitem" / "__init__.py"
    found: set[Path] = set()
    waiting = [Path(script)]
    while waiting:
        for place in _places(waiting.pop().read_text(encoding="utf-8")):
            for path in (root / f"{place}.py", root / place / "__init__.py"):
                if path not in found and path != own and path.is_file():
                    found.add(path)
                    waiting.append(path)
    return sorted(found)


@functools.cache
def _places(code: str) -> list[str]:
    """Where what is imported may lie, packages before what is in them: ``lastitem``,
    ``lastitem/ranking``, ``lastitem/ranking/rank``.

    Kept, because the workflow, which is read anew in every cluster job, asks for the
    modules of each script, and most are the same.
    """
    names = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from lastitem import ranking` imports a module, `from
            # lastitem.evaluation.ranking import rank` a function of one.
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    own = [name.split(".") for name in names if name.split(".")[0] == "lastitem"]
    return list(
        dict.fromkeys(
            "/".join(parts[:depth]) for parts in own for depth in range(1, len(parts) + 1)
        )
    )
