"""One record per line: JSON objects, or dictionaries of Python literals."""

import ast
import json
import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from lastitem.data.readers.rows import RawLog, Rows
from lastitem.data.readers.transcoding import UNREADABLE, as_text, shown
from lastitem.errors import InputError

_LINES = 1 << 17


def read_json_lines(log: RawLog) -> Iterator[Rows]:
    """See :func:`lastitem.data.readers.reading.read_rows`."""
    # Numbers stay the text they are written in: an id such as 1E5, or one of 19 digits,
    # is no quantity.
    decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=lambda _: None)
    return _read(log, decoder.decode, "not a JSON object")


def read_python_literals(log: RawLog) -> Iterator[Rows]:
    """See :func:`lastitem.data.readers.reading.read_rows`."""
    parse = partial(parse_python_record, wanted=frozenset(log.columns.values()))
    # Free text full of backslashes is no reason to warn of invalid escapes.
    with warnings.catch_warnings(action="ignore"):
        yield from _read(log, parse, "not a dictionary of Python literals")


def _read(log: RawLog, parse: Callable[[str], Any], fault: str) -> Iterator[Rows]:
    columns = log.columns
    file_lines = enumerate(as_text(log.stream, log.encoding), 1)
    found_keys: set[str] = set()
    unseen = set(columns.values())
    while chunk := list(islice(file_lines, _LINES)):
        rows: dict[int, list[str | None]] = {}
        for number, line in chunk:
            text = line.decode().strip()
            if not text:
                continue
            try:
                record = parse(text)
                if not isinstance(record, dict):
                    raise ValueError
                row = [_text_of(record.get(column)) for column in columns.values()]
            except UnicodeError:
                cause = f"id or time is not {log.encoding.upper()}"
            except TypeError:
                cause = "id or time is neither text nor a number"
            except (ValueError, RecursionError, MemoryError):
                cause = fault
            else:
                if unseen:
                    unseen -= record.keys()
                    found_keys |= record.keys()
                rows[number] = row
                continue
            log.bad.add(cause, [number], [shown(text)])
        if rows and unseen:
            role = next(role for role, column in columns.items() if column in unseen)
            none = "no record has"
            if len(chunk) == _LINES:
                none = f"none of the first {chunk[-1][0]:,} lines has"
            found = ", ".join(sorted(found_keys)[:40])
            raise InputError(f"{none} {columns[role]!r} for {role}; found: {found}")
        values = {
            role: pa.array([row[place] for row in rows.values()], pa.string())
            for place, role in enumerate(columns)
        }
        yield Rows(values, np.array([*rows], dtype=np.int64))


def _text_of(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError
    # Half of a surrogate pair is no character and cannot be stored.
    if not value.isascii() and re.search(f"[\ud800-\udfff]|{UNREADABLE}", value):
        raise UnicodeError
    return value


_STRING = r"""[uU]?(?:'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")"""
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_PAIR = re.compile(
    rf"[ \t]*({_STRING})[ \t]*:[ \t]*({_STRING}|{_NUMBER}|True|False|None)[ \t]*(?:,|(?=\}}))"
)


def parse_python_record(line: str, wanted: frozenset[str]) -> dict[str, Any]:
    """Read a line that holds one Python dictionary of literals, without evaluating
    anything.

    Flat dictionaries, which nearly all are, are taken apart by a pattern; whatever it
    does not match to the end goes through Python's own parser, which is five times
    slower.

    Parameters
    ----------
    wanted : keys whose values are needed; the values of other keys may come back as
        they are written.

    Returns
    -------
    key → text (a number as it is written), None, or something else that is no id.

    Raises
    ------
    ValueError if the line is no dictionary of literals.
    """
    tokens: dict[str, str] = {}
    at = 1
    while pair := _PAIR.match(line, at):
        tokens[pair[1].lstrip("uU")[1:-1]] = pair[2]
        at = pair.end()
    try:
        if line[:1] == "{" and line[at:].strip() == "}" and not any("\\" in key for key in tokens):
            return {key: _value(token) if key in wanted else token for key, token in tokens.items()}
        tree = ast.parse(line, mode="eval").body
        ast.literal_eval(tree)
        if not isinstance(tree, ast.Dict):
            raise ValueError
        return {
            key.value: _value(ast.get_source_segment(line, value) or "")
            for key, value in zip(tree.keys, tree.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
    except (SyntaxError, TypeError):
        # A TypeError is a key that cannot be one, such as a list.
        raise ValueError from None


def _value(token: str) -> Any:
    if re.fullmatch(r"[+-]?[0-9].*|[+-]?\.[0-9].*", token):
        return token
    value = ast.literal_eval(token)
    return value if value is None or isinstance(value, str) else (value,)
