"""Results on disk that know what they are of: Parquet files of single runs, summaries
over runs, and CSVs; and the names that all of them use.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lastitem.errors import InputError
from lastitem.files import read_parquet, write_aside, write_parquet

if TYPE_CHECKING:
    from pandas import DataFrame

# pandas is imported where it is needed: jobs that only write would lose half a second.

STUDY_COLUMNS = ["dataset", "split", "model"]
RUN_COLUMNS = [*STUDY_COLUMNS, "seed"]
#: The last columns of every CSV: on which settings it stands, the seeds of the
#: trainings behind it, and what they and it were made with.
STAMP_COLUMNS = ["study", "seeds", "versions"]
_METADATA_KEY = b"lastitem"

#: The parts whose mixing ratios are taken, from the attention alone to what leaves the
#: normalization.
PARTS = ("Attn", "AttnRes", "AttnResLN")
#: The layer under which the whole stack is filed, and what the parts that are head
#: shares are called.
WHOLE_STACK, HEAD_SHARE = 0, "share of head "
#: The contrast of a comparison of an intervention with the ordered input.
INTERVENTION = "intervention"
#: In place of a seed: all of a model together.
ALL_SEEDS = "all"
#: How λ is chosen.
ON_VALIDATION, ORACLE = "validation", "oracle (test)"
#: Which targets the tie-order study looks at: all, those with the time of the item
#: before them, those without.
TARGET_GROUPS = ("all", "tied", "untied")
#: Its measures: NDCG of the ordered input, last-item hit rates, and what the shuffles
#: change.
TIE_ORDER_MEASURES = ("NDCG", "HRLI", "HRL2I", "partial shuffle, %", "full shuffle, %")
#: The row that holds differences.
TIES_DIFFERENCE = "item - random"


@dataclass(frozen=True)
class Run:
    """One trained model: the data it saw, its name in the study, and its seed."""

    dataset: str
    split: str
    model: str
    seed: int


class Stamp(NamedTuple):
    """What a file stands on.

    Parameters
    ----------
    study : hash of the settings that can change it
        (:func:`lastitem.study.products.study_of`).
    seeds : seeds of the trainings behind it.
    versions : what these, and the file, were made with (:func:`made_with`).
    """

    study: str = ""
    seeds: Sequence[int] = ()
    versions: Sequence[str] = ()

    @classmethod
    def joined(cls, study: str, behind: Iterable[Stamp], versions: Iterable[str] = ()) -> Stamp:
        """The stamp of what is made of files with the stamps ``behind``."""
        behind = list(behind)
        known = {text for stamp in behind for text in stamp.versions} | {*versions}
        seeds = {seed for stamp in behind for seed in stamp.seeds}
        # Trainings first, then what read them.
        return cls(study, sorted(seeds), sorted(known, reverse=True))


def made_with(what: str, versions: Mapping[str, str]) -> str:
    """Versions as text without commas: ``trained: lastitem 0.1.0 torch 2.13.0``."""
    return f"{what}: {' '.join(f'{name} {number}' for name, number in versions.items())}"


@dataclass(frozen=True)
class Rows:
    """Rows of several runs, and what is missing among them.

    Parameters
    ----------
    rows : a row a fact.
    missing : dataset, split, model, seed and reason of the runs without rows.
    stamp : what the rows stand on.
    """

    rows: DataFrame
    missing: Sequence[tuple[str, str, str, int, str]] = ()
    stamp: Stamp = field(default_factory=Stamp)


def write_run_table(path: str | Path, run: Run, columns: Mapping[str, Any], note: str = "") -> None:
    """Write columns of equal length as Parquet; the run, and a note such as why there
    are no rows, go into the metadata.
    """
    _write(path, pa.table(dict(columns)), {**asdict(run), "note": note})


def stack(tables: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[Any]]:
    """Put tables (column → array, or one value for all rows of its table) below each
    other.
    """
    parts = [
        dict(zip(table, np.broadcast_arrays(*table.values()), strict=True)) for table in tables
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class RunTables:
    """Tables of runs that are read one study at a time, because those of all runs
    together may not fit into memory; without the original ids.

    Iterating gives the stacked rows of each dataset, split and model
    (:func:`read_run_tables`); what is ``missing``, and the ``stamp``, are known
    afterwards.
    """

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self._paths = paths
        self.missing: list[tuple[str, str, str, int, str]] = []
        self.stamp = Stamp()

    def __iter__(self) -> Iterator[DataFrame]:
        # The runs of a study are the folders below that of its model.
        for _, paths in itertools.groupby(self._paths, lambda path: Path(path).parents[1]):
            found = read_run_tables(list(paths), without=("user_id", "target_id"))
            self.missing += found.missing
            self.stamp = Stamp.joined("", [self.stamp, found.stamp])
            yield found.rows


def read_run_tables(paths: Sequence[str | Path], without: Sequence[str] = ()) -> Rows:
    """Read and stack tables written by :func:`write_run_table`, with the columns of the
    run in front, ``without`` some of their own.

    Raises
    ------
    InputError if a file is missing or is not such a table: nothing is left out
    silently.
    """
    import pandas as pd

    frames, missing, seeds = [], [], set()
    for path in paths:
        table, run = _read(path, "dataset", "does not say which run it belongs to")
        seeds.add(run["seed"])
        if not table.num_rows:
            missing.append(tuple(run[key] for key in [*RUN_COLUMNS, "note"]))
        frame = table.drop_columns([name for name in without if name in table.column_names])
        frame = frame.to_pandas()
        for place, column in enumerate(RUN_COLUMNS):
            frame.insert(place, column, run[column])
        frames.append(frame)
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    stacked = pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=RUN_COLUMNS)
    return Rows(stacked, missing, Stamp(seeds=sorted(seeds)))


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


def write_summary(path: str | Path, found: Rows) -> None:
    """Write a summary as Parquet; what is missing, and its stamp, go into the
    metadata.
    """
    table = pa.Table.from_pandas(found.rows, preserve_index=False)
    _write(path, table, {"missing": found.missing, **found.stamp._asdict()})


def read_summary(path: str | Path, studies: Mapping[str, str]) -> Rows:
    """Read what :func:`write_summary` wrote.

    Parameters
    ----------
    studies : name of a summary → the study that it must be of.

    Raises
    ------
    InputError if it is not there, is no summary, or is of another study.
    """
    table, kept = _read(path, "study", "is no summary")
    check_study(path, kept["study"], studies.get(Path(path).stem))
    missing = [tuple(entry) for entry in kept["missing"]]
    stamp = Stamp(kept["study"], kept["seeds"], kept["versions"])
    return Rows(table.to_pandas(), missing, stamp)


def check_study(path: str | Path, found: str, expected: str | None) -> None:
    """Raise an :class:`InputError` if a file stands on other settings than those
    expected of it; without an expectation any will do.
    """
    if expected is not None and found != expected:
        raise InputError(
            f"{path}: is of another study ({found}; wanted is {expected}); make it anew, with the"
            f" --configfile and --config of this study: snakemake {path} --force"
        )


def write_csv(facts: DataFrame, path: str | Path, stamp: Stamp, digits: int | None = 10) -> None:
    """Write a tidy CSV: UTF-8, numbers with ten significant digits (None: with all),
    empty where there is no value; the stamp in the last columns.
    """
    texts = (stamp.study, " ".join(map(str, stamp.seeds)), "; ".join(stamp.versions))
    stamped = facts.assign(**dict(zip(STAMP_COLUMNS, texts, strict=True)))
    with write_aside(path) as aside:
        form = f"%.{digits}g" if digits else None
        stamped.to_csv(aside, index=False, float_format=form, lineterminator="\n")


def read_csv(path: str | Path) -> DataFrame:
    """Read a tidy CSV; names stay the text they are, also 007 and NA."""
    import pandas as pd

    names = dict.fromkeys(
        (*STUDY_COLUMNS, "ties", "group", "reading", "part", "measure", *STAMP_COLUMNS), str
    )
    return pd.read_csv(path, dtype=names, keep_default_na=False, na_values=[""])


def _write(path: str | Path, table: pa.Table, known: Mapping[str, Any]) -> None:
    write_parquet(path, table.replace_schema_metadata({_METADATA_KEY: json.dumps(known)}))


def _read(path: str | Path, key: str, fault: str) -> tuple[pa.Table, dict[str, Any]]:
    table = read_parquet(path)
    known = json.loads((table.schema.metadata or {}).get(_METADATA_KEY, "{}"))
    if key not in known:
        raise InputError(f"{path}: {fault}; delete it to have it made anew")
    return table, known
