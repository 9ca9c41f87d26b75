"""Results of single runs on disk: Parquet files that know which run they belong to."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from lastitem.errors import InputError
from lastitem.files import read_parquet, write_parquet

RUN_COLUMNS = ["dataset", "split", "model", "seed"]
_METADATA_KEY = b"lastitem"


@dataclass(frozen=True)
class Run:
    """One trained model: the data it saw, its name in the study, and its seed."""

    dataset: str
    split: str
    model: str
    seed: int


def write_run_table(path: str | Path, run: Run, columns: Mapping[str, Any], note: str = "") -> None:
    """Write columns of equal length as Parquet; the run, and a note such as why there
    are no rows, go into the metadata.
    """
    table = pa.table(dict(columns))
    metadata = {_METADATA_KEY: json.dumps({**asdict(run), "note": note})}
    write_parquet(path, table.replace_schema_metadata(metadata))


def stack(tables: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[Any]]:
    """Put tables (column → array, or one value for all rows of its table) below each
    other.
    """
    filled = []
    for table in tables:
        rows = max(len(column) for column in table.values() if np.ndim(column))
        filled.append(
            {
                name: column if np.ndim(column) else np.full(rows, column)
                for name, column in table.items()
            }
        )
    return {name: np.concatenate([table[name] for table in filled]) for name in filled[0]}


def read_run_tables(paths: Sequence[str | Path]) -> pd.DataFrame:
    """Read and stack tables written by :func:`write_run_table`, with the columns of the
    run in front.

    Returns
    -------
    One frame; ``frame.attrs["not_applicable"]`` lists (dataset, split, model, seed,
    note) of the files without rows.

    Raises
    ------
    InputError if a file is missing or is not such a table: nothing is left out
    silently.
    """
    frames, empty = [], []
    for path in paths:
        table = read_parquet(path)
        metadata = (table.schema.metadata or {}).get(_METADATA_KEY)
        if metadata is None:
            raise InputError(
                f"{path}: does not say which run it belongs to; delete it to have it made anew"
            )
        run = json.loads(metadata)
        if not table.num_rows:
            empty.append(tuple(run[key] for key in [*RUN_COLUMNS, "note"]))
        frame = table.to_pandas()
        for place, column in enumerate(RUN_COLUMNS):
            frame.insert(place, column, run[column])
        frames.append(frame)
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    stacked = pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=RUN_COLUMNS)
    stacked.attrs["not_applicable"] = empty
    return stacked


def add_user_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --datasets and --users, of which :func:`read_user_ids` makes the original
    ids.
    """
    parser.add_argument("--datasets", required=True, nargs="+", help="names of the datasets")
    parser.add_argument("--users", required=True, nargs="+", help="users.parquet of each of them")


def read_user_ids(datasets: Sequence[str], paths: Sequence[str | Path]) -> dict[str, NDArray[Any]]:
    """Dataset → original id of each user, by code.

    Raises
    ------
    InputError if there are not as many files as names, or a file cannot be read.
    """
    if len(datasets) != len(paths):
        raise InputError(f"{len(datasets)} datasets, but {len(paths)} files of users")
    tables = (read_parquet(path) for path in paths)
    return {
        name: table["user_id"].to_numpy()[np.argsort(table["user"].to_numpy())]
        for name, table in zip(datasets, tables, strict=True)
    }
