"""Writing files so that a name never stands for half of its content, and reading what we wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lastitem.errors import InputError


@contextmanager
def write_aside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; rename it to ``path`` once the block has ended well.

    The temporary name carries the process id, so that two processes never write the same one, and keeps the
    suffix of ``path``, by which some writers choose their format. Leftovers of processes that were killed are
    removed on the way.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{path.name}."
    for leftover in path.parent.glob(f"{_escape_glob(prefix)}*.partial{_escape_glob(path.suffix)}"):
        process = leftover.name[len(prefix) :].split(".")[0]
        if process.isdigit() and not _is_running(int(process)):
            leftover.unlink(missing_ok=True)
    aside = path.with_name(f"{prefix}{os.getpid()}.partial{path.suffix}")
    try:
        yield aside
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write ``content`` as indented UTF-8 JSON with a final newline, aside and renamed; NaN is refused."""
    with write_aside(path) as aside:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        aside.write_text(text + "\n", encoding="utf-8")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file; :class:`InputError` names the file and line if it is not JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: not JSON ({error.msg}); delete the file to have it made anew") from None


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _escape_glob(text: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in text)
