"""Compare two folders of results number by number, as after a change of the code that
must not change one.

Compared are every csv (learning curves among them), every Parquet file (types and
values, column by column), every safetensors file (bit for bit) and every JSON file;
tables as Markdown and TeX, figures and the page are not. Left out are what is said of
versions, and the columns ``study``, ``seeds`` and ``versions`` at the end of a new csv
whose old one has no column of that name.

    python benchmarks/compare_results.py old/results results
    python benchmarks/compare_results.py old/results results --renamed seeds=n_seeds

One line a file; the exit status is 1 if anything differs or is missing.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

#: Columns that say what a csv was made from.
PROVENANCE = ("study", "seeds", "versions")
#: The kinds of numbers of a safetensors file that numpy has, too.
NUMBERS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "<u1"}

#: A named column, tensor or place in a JSON file → its values, one by one.
Columns = dict[str, Any]


def read_csv(path: Path) -> Columns:
    """Column → its cells as text."""
    with path.open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    return {name: [row[place] for row in rows] for place, name in enumerate(header)}


def without_provenance(old: Columns, new: Columns) -> Columns:
    """The new columns but for those at the end that say what they were made from."""
    left_out = [name for name in list(new)[-3:] if name in PROVENANCE and name not in old]
    return {name: cells for name, cells in new.items() if name not in left_out}


def read_parquet(path: Path) -> Columns:
    """Column → Arrow array."""
    table = pyarrow.parquet.read_table(path)
    return {name: table[name].combine_chunks() for name in table.column_names}


def read_safetensors(path: Path) -> Columns:
    """Tensor → kind, shape and bytes."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    tensors = json.loads(content[8:start])
    tensors.pop("__metadata__", None)
    return {
        name: (
            tensor["dtype"],
            tensor["shape"],
            content[start:][slice(*tensor["data_offsets"])],
        )
        for name, tensor in tensors.items()
    }


def read_json(path: Path) -> Columns:
    """Place, ``core.users``, → its value in a list."""

    def leaves(value: Any, way: str) -> Iterator[tuple[str, Any]]:
        if not isinstance(value, dict | list) or not value:
            yield way, [value]
            return
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if key != "versions":
                yield from leaves(inner, f"{way}.{key}".lstrip("."))

    return dict(leaves(json.loads(path.read_text(encoding="utf-8")), ""))


def number(value: Any) -> float:
    """A cell as a number, or nan if it is none."""
    try:
        return np.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return np.nan


def difference_of_cells(old: Sequence[Any], new: Sequence[Any]) -> str | None:
    """How two lists of cells differ, or None."""
    if len(old) != len(new):
        return f"{len(old)} values, now {len(new)}"
    places = [
        place
        for place, (one, other) in enumerate(zip(old, new, strict=True))
        if type(one) is not type(other) or repr(one) != repr(other)
    ]
    if not places:
        return None
    first = places[0]
    distances = np.abs([number(old[place]) - number(new[place]) for place in places])
    how_much = "" if np.isnan(distances).all() else f", by at most {np.nanmax(distances):.3g}"
    return (
        f"{len(places)} of {len(old)} values{how_much}, first {old[first]!r} → {new[first]!r}"
        f" (value {first + 1})"
    )


def difference_of_bytes(old: np.ndarray, new: np.ndarray) -> str | None:
    """How two arrays of the same kind differ in their bits, or None."""
    if old.size != new.size:
        return f"{old.size} values, now {new.size}"
    differs = (old.view(np.uint8) != new.view(np.uint8)).reshape(-1, old.itemsize).any(axis=1)
    if not differs.any():
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.abs(old[differs].astype(float) - new[differs].astype(float)).max()
    first = int(differs.argmax())
    return (
        f"{differs.sum()} of {old.size} values, by at most {largest:.3g}, first"
        f" {old[first]} → {new[first]} (value {first + 1})"
    )


def difference_of_arrays(old: pa.Array, new: pa.Array) -> str | None:
    """How two columns differ: in type, in what is missing, in the lengths of lists, in
    values; or None.
    """
    if old.type != new.type:
        return f"{old.type}, now {new.type}"
    if isinstance(old, pa.DictionaryArray):
        return difference_of_arrays(old.dictionary_decode(), new.dictionary_decode())
    if old.null_count or new.null_count:
        if told := difference_of_cells(old.is_null().to_pylist(), new.is_null().to_pylist()):
            return f"missing: {told}"
        old, new = old.drop_null(), new.drop_null()
    if pa.types.is_list(old.type) or pa.types.is_large_list(old.type):
        lengths = [column.value_lengths().to_numpy(zero_copy_only=False) for column in (old, new)]
        if told := difference_of_bytes(*lengths):
            return f"lengths: {told}"
        return difference_of_arrays(old.flatten(), new.flatten())
    if pa.types.is_floating(old.type) or pa.types.is_integer(old.type):
        return difference_of_bytes(
            *(np.ascontiguousarray(column.to_numpy(zero_copy_only=False)) for column in (old, new))
        )
    return difference_of_cells(old.to_pylist(), new.to_pylist())


def difference_of_tensors(old: tuple[Any, ...], new: tuple[Any, ...]) -> str | None:
    """How two tensors differ, or None."""
    if old[:2] != new[:2]:
        return f"{old[0]} {old[1]}, now {new[0]} {new[1]}"
    kind = NUMBERS.get(old[0], "<u1")
    return difference_of_bytes(np.frombuffer(old[2], kind), np.frombuffer(new[2], kind))


KINDS = {
    ".csv": (read_csv, difference_of_cells),
    ".parquet": (read_parquet, difference_of_arrays),
    ".safetensors": (read_safetensors, difference_of_tensors),
    ".json": (read_json, difference_of_cells),
}


def differences(old: Path, new: Path, names: Mapping[str, str]) -> list[str]:
    """What differs between two files of one kind, a line for each column."""
    read, difference = KINDS[old.suffix]
    before, after = read(old), read(new)
    for name in list(before):
        renamed = ".".join(names.get(part, part) for part in name.split("."))
        if renamed != name and renamed in after:
            before[renamed] = before.pop(name)
    if old.suffix == ".csv":
        after = without_provenance(before, after)
    told = [f"{name}: only in the old" for name in before if name not in after]
    told += [f"{name}: only in the new" for name in after if name not in before]
    return told + [
        f"{name}: {found}"
        for name in before
        if name in after and (found := difference(before[name], after[name]))
    ]


def files_of(folder: Path) -> set[str]:
    """The files that are compared, relative to their folder."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix in KINDS and path.is_file()
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Compare, and print a line for each file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument(
        "--renamed",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="a column of csv and Parquet files, a tensor or a key of JSON files has a new name",
    )
    arguments = parser.parse_args(argv)
    names = dict(pair.split("=", 1) for pair in arguments.renamed)
    before, after = files_of(arguments.old), files_of(arguments.new)
    if not before | after:
        sys.exit(f"{arguments.old}, {arguments.new}: no results there")
    counts = {"equal": 0, "differ": 0, "missing": 0}
    for name in sorted(before | after):
        if name not in before or name not in after:
            counts["missing"] += 1
            print(f"{name}: missing in {arguments.old if name in after else arguments.new}")
            continue
        told = differences(arguments.old / name, arguments.new / name, names)
        counts["differ" if told else "equal"] += 1
        print(f"{name}: differs" if told else f"{name}: equal", *told, sep="\n    ")
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    sys.exit(counts["differ"] + counts["missing"] > 0)


if __name__ == "__main__":
    main()
