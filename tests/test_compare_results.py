"""Two folders of results, compared: nothing that differs is passed over, and it is said
by how much.
"""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import safetensors.numpy

ROOT = Path(__file__).parents[1]
main = runpy.run_path(str(ROOT / "benchmarks/compare_results.py"))["main"]
RUN = "tiny/loo/sasrec/seed=3"
TABLE = "dataset,model,value,seeds\ntiny,sasrec,0.25,2\ntiny,gru4rec,,2\n"
RANKS = {
    "user": pa.array([1, 2, 3], pa.int32()),
    "score": pa.array([0.5, float("nan"), None], pa.float32()),
    "items": pa.array([[4, 5], [], None], pa.list_(pa.int32())),
    "name": pa.array(["é", None, "b"]),
    "kept": pa.array([True, False, True]),
}
WEIGHTS = {"item.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "empty": np.zeros(0)}
DESCRIPTION = {"settings": {"sizes": [8, 4], "dropout": 0.1}, "versions": {"torch": "2.0"}}


def write_results(folder: Path) -> Path:
    """One file of each kind, a figure, and a learning curve."""
    run = folder / RUN
    run.mkdir(parents=True)
    (folder / "table2.csv").write_text(TABLE, encoding="utf-8")
    (folder / "fig1.png").write_bytes(b"a figure")
    (run / "learning_curve.csv").write_text("epoch,loss,best\n1,2.5,True\n", encoding="utf-8")
    (run / "model.json").write_text(json.dumps(DESCRIPTION), encoding="utf-8")
    pyarrow.parquet.write_table(pa.table(RANKS), run / "ranks.parquet")
    safetensors.numpy.save_file(WEIGHTS, run / "model.safetensors")
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Old and new results, equal."""
    old = write_results(tmp_path / "old")
    return old, Path(shutil.copytree(old, tmp_path / "new"))


def compared(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, list[str]]:
    """The exit status, and what was printed of files that are not equal."""
    with pytest.raises(SystemExit) as end:
        main([*map(str, folders), *options])
    lines = capsys.readouterr().out.splitlines()
    return int(end.value.code or 0), [line for line in lines if not line.endswith(": equal")]


def test_equal_folders_are_equal_whatever_is_said_of_versions(folders, capsys):
    """And whatever a figure looks like: those are not compared."""
    _, new = folders
    versions = {**DESCRIPTION, "versions": {"torch": "3.0", "numpy": "2"}}
    (new / RUN / "model.json").write_text(json.dumps(versions, indent=1), encoding="utf-8")
    (new / "fig1.png").write_bytes(b"another figure")
    assert compared(folders, capsys) == (0, ["5 equal, 0 differ, 0 missing"])


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("table2.csv", "0.25", "0.2501", "value: 1 of 2 values, by at most 0.0001, first '0.25'"),
        ("table2.csv", "0.25", "0.250", "value: 1 of 2 values, by at most 0, first '0.25' → '0.25"),
        ("table2.csv", ",,", ",n/a,", "value: 1 of 2 values, first '' → 'n/a' (value 2)"),
        ("table2.csv", "tiny,gru4rec,,2\n", "", "model: 2 values, now 1"),
        ("table2.csv", "value", "mean", "value: only in the old"),
        (f"{RUN}/learning_curve.csv", "2.5", "2.625", "loss: 1 of 1 values, by at most 0.125"),
        (f"{RUN}/model.json", "[8, 4]", "[8, 5]", "settings.sizes.1: 1 of 1 values, by at most 1"),
        (f"{RUN}/model.json", "0.1", "true", "settings.dropout: 1 of 1 values, first 0.1 → True"),
        (f"{RUN}/model.json", "[8, 4]", "[8, 4, 2]", "settings.sizes.2: only in the new"),
    ],
)
def test_one_change_of_a_text_file_is_found(folders, capsys, name, old, new, said):
    path = folders[1] / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    status, lines = compared(folders, capsys)
    assert status == 1 and lines[0] == f"{name}: differs" and lines[-1].startswith("4 equal, 1 ")
    assert any(line.startswith(f"    {said}") for line in lines), lines


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("user", pa.array([1, 2, 5], pa.int32()), "1 of 3 values, by at most 2, first 3 → 5"),
        ("user", pa.array([1, 2, 3], pa.int64()), "int32, now int64"),
        ("score", pa.array([0.5, 0.25, None], pa.float32()), "1 of 2 values, by at most nan"),
        ("score", pa.array([0.5, None, None], pa.float32()), "missing: 1 of 3 values"),
        (
            "items",
            pa.array([[4, 6], [], None], pa.list_(pa.int32())),
            "1 of 2 values, by at most 1",
        ),
        ("items", pa.array([[4], [5], None], pa.list_(pa.int32())), "lengths: 2 of 2 values"),
        ("name", pa.array(["e", None, "b"]), "1 of 2 values, first 'é' → 'e' (value 1)"),
        ("kept", pa.array([True, True, True]), "1 of 3 values, first False → True"),
    ],
)
def test_one_change_of_a_column_is_found(folders, capsys, column, values, said):
    """In a number, a type, what is missing, the length of a list, a text."""
    path = folders[1] / RUN / "ranks.parquet"
    pyarrow.parquet.write_table(pa.table({**RANKS, column: values}), path)
    status, lines = compared(folders, capsys)
    assert status == 1 and lines[0] == f"{RUN}/ranks.parquet: differs" and len(lines) == 3
    assert lines[1].startswith(f"    {column}: {said}")


def test_the_order_of_columns_says_nothing_but_one_more_or_less_does(folders, capsys):
    path = folders[1] / RUN / "ranks.parquet"
    pyarrow.parquet.write_table(pa.table(dict(reversed(RANKS.items()))), path)
    assert compared(folders, capsys)[0] == 0
    fewer = {name: values for name, values in RANKS.items() if name != "kept"}
    pyarrow.parquet.write_table(pa.table({**fewer, "more": RANKS["kept"]}), path)
    assert compared(folders, capsys) == (
        1,
        [
            f"{RUN}/ranks.parquet: differs",
            "    kept: only in the old",
            "    more: only in the new",
            "4 equal, 1 differ, 0 missing",
        ],
    )


def test_one_bit_of_a_weight_is_found(folders, capsys):
    path = folders[1] / RUN / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    path.write_bytes(content)
    status, lines = compared(folders, capsys)
    assert status == 1
    assert lines[1].startswith(
        "    item.weight: 1 of 6 values, by at most 4.77e-07, first 5.0 → 5.0"
    )
    weights = {**WEIGHTS, "item.weight": WEIGHTS["item.weight"].T.copy()}
    safetensors.numpy.save_file(weights, path)
    status, lines = compared(folders, capsys)
    assert status == 1 and lines[1] == "    item.weight: F32 [2, 3], now F32 [3, 2]"


def test_a_file_that_is_missing_on_either_side_is_named(folders, capsys):
    old, new = folders
    (new / RUN / "model.json").unlink()
    shutil.copy(new / "table2.csv", new / "table9.csv")
    assert compared(folders, capsys) == (
        1,
        [
            f"table9.csv: missing in {old}",
            f"{RUN}/model.json: missing in {new}",
            "4 equal, 0 differ, 2 missing",
        ],
    )


def test_two_folders_without_results_are_not_equal(tmp_path):
    with pytest.raises(SystemExit, match="no results there"):
        main([str(tmp_path / "a"), str(tmp_path / "b")])


def test_new_columns_that_say_what_a_csv_stands_on_are_left_out(folders, capsys):
    """The old count of seeds has another name now, so that the new ``seeds`` is none of
    the numbers.
    """
    path = folders[1] / "table2.csv"
    path.write_text(
        "dataset,model,value,runs,study,seeds,versions\n"
        "tiny,sasrec,0.25,2,a1,1 2,torch 2\ntiny,gru4rec,,2,a1,1 2,torch 2\n",
        encoding="utf-8",
    )
    assert compared(folders, capsys, "--renamed", "seeds=runs")[0] == 0
    status, lines = compared(folders, capsys)
    assert status == 1 and "    runs: only in the new" in lines, "unless the new name is said"
    path.write_text(
        TABLE.replace("dataset", "study,dataset").replace("tiny", "a1,tiny"), encoding="utf-8"
    )
    status, lines = compared(folders, capsys)
    assert status == 1 and "    study: only in the new" in lines, "unless it stands elsewhere"


def test_a_renamed_key_or_tensor_is_compared_under_its_new_name(folders, capsys):
    """Where the new file has that name; a file that kept the old one is compared as it
    is.
    """
    run = folders[1] / RUN
    text = (run / "model.json").read_text(encoding="utf-8")
    (run / "model.json").write_text(text.replace("sizes", "widths"), encoding="utf-8")
    assert compared(folders, capsys, "--renamed", "sizes=widths")[0] == 0
    (run / "model.json").write_text(
        text.replace("sizes", "dims").replace("4", "3"), encoding="utf-8"
    )
    status, lines = compared(folders, capsys, "--renamed", "sizes=dims", "--renamed", "value=mean")
    assert status == 1 and lines[1].startswith("    settings.dims.1: 1 of 1 values, by at most 1")
