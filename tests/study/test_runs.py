"""Files of single runs: they know their run, and none is left out
silently.
"""

import argparse

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from lastitem.arguments import add_run, run_of
from lastitem.errors import InputError
from lastitem.study.runs import (
    RUN_COLUMNS,
    STAMP_COLUMNS,
    Rows,
    Run,
    Stamp,
    made_with,
    read_csv,
    read_run_tables,
    read_summary,
    stack,
    write_csv,
    write_run_table,
    write_summary,
)


def written(folder, model, columns, seed=1, note=""):
    path = folder / f"{model}-{seed}.parquet"
    write_run_table(path, Run("d é", "loo", model, seed), columns, note)
    return path


def test_tables_are_stacked_with_their_runs_in_front(tmp_path):
    first = written(tmp_path, "b", {"user": np.array([1, 2], dtype=np.int32), "rank": [3, 4]})
    second = written(tmp_path, "a", {"user": np.array([1], dtype=np.int32), "rank": [5]}, seed=2)
    read = read_run_tables([first, second])
    found = read.rows
    assert list(found.columns) == [*RUN_COLUMNS, "user", "rank"]
    assert found.to_numpy().tolist() == [
        ["d é", "loo", "b", 1, 1, 3],
        ["d é", "loo", "b", 1, 2, 4],
        ["d é", "loo", "a", 2, 1, 5],
    ]
    assert found["user"].dtype == np.int32
    assert read.missing == []
    assert read.stamp.seeds == [1, 2]


def test_a_file_without_rows_is_listed_with_its_note(tmp_path):
    """Whether it comes first or last, and also where its columns are unknown."""
    filled = written(tmp_path, "sasrec", {"user": [1], "rank": [5]})
    empty = written(tmp_path, "gru4rec", {}, note="no attention block")
    for paths in ([filled, empty], [empty, filled]):
        found = read_run_tables(paths)
        assert found.rows["model"].tolist() == ["sasrec"]
        assert found.rows["user"].tolist() == [1]
        assert found.missing == [("d é", "loo", "gru4rec", 1, "no attention block")]


def test_only_files_without_rows(tmp_path):
    found = read_run_tables(
        [written(tmp_path, "gru4rec", {}, seed=seed, note="why") for seed in (1, 2)]
    )
    assert found.rows.empty
    assert list(found.rows.columns) == RUN_COLUMNS
    assert [entry[3] for entry in found.missing] == [1, 2]


def test_no_files_at_all():
    found = read_run_tables([]).rows
    assert found.empty
    assert list(found.columns) == RUN_COLUMNS


def test_a_missing_file_is_an_error(tmp_path):
    """One of three: nothing is averaged over the other two."""
    paths = [written(tmp_path, "sasrec", {"user": [1]}, seed=seed) for seed in (1, 2, 3)]
    paths[1].unlink()
    with pytest.raises(InputError, match=r"sasrec-2\.parquet: no such file"):
        read_run_tables(paths)


@pytest.mark.parametrize("content", [b"", b"user,rank\n1,2\n", None])
def test_a_damaged_file_is_an_error(tmp_path, content):
    """Empty, another format, and cut short."""
    path = written(tmp_path, "sasrec", {"user": [1]})
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)
    with pytest.raises(InputError, match=r"sasrec-1\.parquet: not a readable Parquet file"):
        read_run_tables([path])


def test_a_table_of_no_run_is_an_error(tmp_path):
    """A Parquet file of another origin does not say whose results it holds."""
    pyarrow.parquet.write_table(pa.table({"user": [1]}), tmp_path / "other.parquet")
    with pytest.raises(InputError, match=r"other\.parquet: does not say which run"):
        read_run_tables([tmp_path / "other.parquet"])


def test_columns_are_plain_for_other_readers(tmp_path):
    """Read back without this package: the same values and no categories."""
    path = written(
        tmp_path, "sasrec", {"user": np.array([7, 8]), "part": np.array(["Attn", "AttnRes"])}
    )
    frame = pd.read_parquet(path)
    assert frame["user"].tolist() == [7, 8]
    assert frame["part"].tolist() == ["Attn", "AttnRes"]
    assert "category" not in {str(kind) for kind in frame.dtypes}


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(pa.ArrowInvalid):
        written(tmp_path, "sasrec", {"user": [1, 2], "rank": [1]})
    assert list(tmp_path.iterdir()) == []


def test_arguments_name_the_run():
    parser = argparse.ArgumentParser()
    add_run(parser)
    arguments = parser.parse_args(
        ["--dataset", "a b", "--split", "gts", "--model", "m.1+", "--seed", "12"]
    )
    assert run_of(arguments) == Run("a b", "gts", "m.1+", 12)
    with pytest.raises(SystemExit):
        parser.parse_args(["--dataset", "a", "--split", "gts", "--model", "m"])


def test_stacked_tables_repeat_single_values():
    """One value stands for all rows of its own table; the kinds of numbers are kept."""
    columns = stack(
        [
            {"a": np.array([1, 2], dtype=np.int32), "b": "x"},
            {"a": np.array([3], dtype=np.int32), "b": "y"},
        ]
    )
    assert columns["a"].tolist() == [1, 2, 3] and columns["a"].dtype == np.int32
    assert columns["b"].tolist() == ["x", "x", "y"]


STAMP = Stamp("0123456789ab", [1, 2], ["trained: torch 2", "made: numpy 2"])
MISSING = [("d é", "loo", "gru4rec", 1, "no attention block")]


def test_a_summary_keeps_its_rows_what_is_missing_and_its_stamp(tmp_path):
    """Numbers to the last bit, texts that look like numbers, empty cells."""
    rows = pd.DataFrame(
        {"model": ["007", "NA"], "value": [1 / 3, np.nan], "users": [3, 4], "held": [True, False]}
    )
    write_summary(tmp_path / "accuracy.parquet", Rows(rows, MISSING, STAMP))
    found = read_summary(tmp_path / "accuracy.parquet", {"accuracy": STAMP.study})
    pd.testing.assert_frame_equal(found.rows, rows, check_dtype=False, check_exact=True)
    assert found.rows["users"].dtype == np.int64
    assert (found.missing, found.stamp) == (MISSING, STAMP)


def test_what_is_missing_survives_merges_and_groups(tmp_path):
    """It stands beside the frame, not in it, where pandas would lose it."""
    found = Rows(pd.DataFrame({"model": ["a", "a"], "value": [1, 2]}), MISSING)
    other = found.rows.groupby("model").sum().merge(found.rows, on="model")
    assert len(other) == 2 and found.missing == MISSING


def test_a_summary_of_another_study_is_refused(tmp_path):
    """The message names the file, both studies and the command that makes it anew."""
    path = tmp_path / "accuracy.parquet"
    write_summary(path, Rows(pd.DataFrame({"value": [1.0]}), (), STAMP))
    with pytest.raises(InputError, match=rf"0123456789ab; .*f00.*snakemake {path} --force"):
        read_summary(path, {"accuracy": "f00"})
    assert len(read_summary(path, {"shuffles": "f00"}).rows) == 1, "of it nothing is expected"
    table = written(tmp_path, "sasrec", {"user": [1]})
    with pytest.raises(InputError, match=r"sasrec-1\.parquet: is no summary"):
        read_summary(table, {})


def test_a_csv_ends_with_its_stamp(tmp_path):
    """The study stays text, also where its digits look like a number."""
    stamp = Stamp("12345678e123", [3, 14], ["trained: torch 2", "made: numpy 2"])
    write_csv(pd.DataFrame({"n": [12345678], "x": [1 / 3]}), tmp_path / "t.csv", stamp)
    assert (tmp_path / "t.csv").read_text(encoding="utf-8") == (
        "n,x,study,seeds,versions\n"
        "12345678,0.3333333333,12345678e123,3 14,trained: torch 2; made: numpy 2\n"
    )
    found = read_csv(tmp_path / "t.csv")
    assert found[STAMP_COLUMNS].iloc[0].tolist() == [
        "12345678e123",
        "3 14",
        "trained: torch 2; made: numpy 2",
    ]


def test_a_csv_may_hold_all_digits(tmp_path):
    write_csv(pd.DataFrame({"loss": [1 / 3]}), tmp_path / "t.csv", Stamp(), digits=None)
    assert read_csv(tmp_path / "t.csv")["loss"].tolist() == [1 / 3]


def test_stamps_are_joined():
    """Seeds and versions of all that is behind, each once; trainings first."""
    text = made_with("made", {"lastitem": "0.1.0", "numpy": "2"})
    stamps = [Stamp("a", [2], ["trained: x"]), Stamp("b", [1, 2], ["trained: y", text])]
    assert text == "made: lastitem 0.1.0 numpy 2"
    assert Stamp.joined("c", stamps, [text]) == Stamp(
        "c", [1, 2], ["trained: y", "trained: x", text]
    )
