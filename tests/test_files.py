"""Writing aside and renaming: a name never stands for half of its content."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lastitem.errors import InputError
from lastitem.files import read_json, read_parquet, write_aside, write_json, write_parquet

SOURCE = Path(__file__).resolve().parents[1] / "src"

WRITER = """
import sys, time
from lastitem.errors import InputError, run
from lastitem.files import write_aside

def main(argv):
    with write_aside(sys.argv[1]) as aside:
        aside.write_text("half")
        print("writing", flush=True)
        if sys.argv[2] == "refuse":
            raise InputError("the second half is missing")
        if sys.argv[2] == "fail":
            raise RuntimeError("a fault of the program")
        if sys.argv[2] == "fill":
            aside.write_bytes(bytes(1_000_000))
        time.sleep(600)

run(main)
"""
ALLOCATE = """
import sys
from lastitem.errors import run

def main(argv):
    __import__(sys.argv[1]).empty(10**15)

run(main)
"""


def start(path: Path, behaviour: str) -> subprocess.Popen:
    """A process that is in the middle of writing ``path`` when this returns."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), behaviour],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "writing\n"
    return process


def dead_process() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_writes_under_a_temporary_name_and_renames(tmp_path):
    path = tmp_path / "new" / "folder" / "table.tar.gz"
    with write_aside(path) as aside:
        assert aside.parent == path.parent
        assert aside.suffix == ".gz"
        assert aside.name.startswith(".table.tar.gz.")
        assert str(os.getpid()) in aside.name
        aside.write_bytes(b"whole")
        assert not path.exists()
    assert names(path.parent) == ["table.tar.gz"]
    assert path.read_bytes() == b"whole"


def test_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError, match="halfway"), write_aside(tmp_path / "a.json") as aside:
        aside.write_text("half")
        raise RuntimeError("halfway")
    assert names(tmp_path) == []


def test_a_failure_leaves_the_earlier_content(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})
    with pytest.raises(KeyboardInterrupt), write_aside(path) as aside:
        aside.write_text("half")
        raise KeyboardInterrupt
    assert read_json(path) == {"old": 1}
    assert names(tmp_path) == ["a.json"]


def test_a_block_that_writes_nothing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), write_aside(tmp_path / "a.json"):
        pass
    assert names(tmp_path) == []


def test_a_killed_process_leaves_no_file_under_the_name_and_the_next_one_cleans_up(tmp_path):
    path = tmp_path / "model.safetensors"
    process = start(path, "wait")
    process.kill()
    process.communicate()
    left = names(tmp_path)
    assert len(left) == 1
    assert left[0] != path.name
    assert left[0].startswith(".")
    with write_aside(path) as aside:
        assert names(tmp_path) == []
        aside.write_text("whole")
    assert names(tmp_path) == [path.name]
    assert path.read_text() == "whole"


def test_a_terminated_process_removes_what_it_had_written(tmp_path):
    """A scheduler ends a job with SIGTERM: the script unwinds."""
    process = start(tmp_path / "a.parquet", "wait")
    process.terminate()
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert complaint == ""
    assert names(tmp_path) == []


def test_an_input_error_ends_a_script_with_one_line(tmp_path):
    process = start(tmp_path / "a.parquet", "refuse")
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 1
    assert complaint == "-c: error: the second half is missing\n"
    assert names(tmp_path) == []


def test_a_fault_of_the_program_keeps_its_traceback(tmp_path):
    process = start(tmp_path / "a.parquet", "fail")
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" in complaint
    assert "RuntimeError: a fault of the program" in complaint
    assert names(tmp_path) == []


def test_only_leftovers_of_dead_processes_of_this_file_are_removed(tmp_path):
    """Not those of a living process, of another file, or of the same stem with another
    suffix; glob characters are plain.
    """
    dead, path = dead_process(), tmp_path / "a[1]*.json"
    stale = f".a[1]*.json.{dead}.partial.json"
    others = [
        f".a[1]*.json.{os.getppid()}.partial.json",
        f".a[1]*.json.{dead}.partial.txt",
        f".a1x.json.{dead}.partial.json",
        f".b.json.{dead}.partial.json",
        ".a[1]*.json.someone.partial.json",
        f"a[1]*.json.{dead}.partial.json",
    ]
    for name in (stale, *others):
        (tmp_path / name).write_text("half")
    write_json(path, [1])
    assert names(tmp_path) == sorted([path.name, *others])


def test_a_living_writer_is_left_alone(tmp_path):
    """Two processes write the same name: neither takes the other's temporary file, and
    each result is whole.
    """
    path = tmp_path / "a.json"
    process = start(path, "wait")
    try:
        write_json(path, {"whole": True})
        assert read_json(path) == {"whole": True}
        assert names(tmp_path) == [f".a.json.{process.pid}.partial.json", "a.json"]
    finally:
        process.kill()
        process.communicate()


def test_json_is_utf8_with_a_final_newline_and_refuses_nan(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"name": "é", "values": [1, None, 0.5]})
    assert path.read_bytes().decode("utf-8").endswith("}\n")
    assert "é" in path.read_bytes().decode("utf-8")
    assert read_json(path) == {"name": "é", "values": [1, None, 0.5]}
    with pytest.raises(ValueError, match=r"[Oo]ut of range"):
        write_json(path, [float("nan")])
    assert read_json(path)["name"] == "é"
    assert names(tmp_path) == ["a.json"]


def test_a_damaged_json_file_is_named_with_its_line(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1,\n"b": }', encoding="utf-8")
    with pytest.raises(InputError, match=r"a\.json:2: not JSON"):
        read_json(path)


def test_a_damaged_parquet_file_is_never_read_as_another(tmp_path):
    """Cut or with one bit flipped, drawn places: an error with the name and the remedy,
    or, where it makes no difference, the table.
    """
    path, random = tmp_path / "a.parquet", np.random.default_rng(4)
    table = pa.table(
        {"user": np.arange(500, dtype=np.int32), "items": [[int(user), 7] for user in range(500)]}
    )
    write_parquet(path, table)
    content = path.read_bytes()
    for number in range(300):
        damaged = bytearray(content)
        if number % 3:
            damaged[int(random.integers(len(content)))] ^= 1 << int(random.integers(8))
        else:
            del damaged[int(random.integers(len(content))) :]
        path.write_bytes(damaged)
        try:
            assert read_parquet(path).equals(table), number
        except InputError as error:
            assert "a.parquet: not a readable Parquet file (" in str(
                error
            ) and "delete it to have it made anew" in str(error)


def test_a_parquet_file_that_cannot_be_opened_is_not_called_damaged(tmp_path):
    with pytest.raises(InputError, match=r"a folder: cannot be read: Is a directory"):
        (tmp_path / "a folder").mkdir()
        read_parquet(tmp_path / "a folder")


@pytest.mark.skipif(
    not Path("/proc/self/task").exists(),
    reason="threads are counted in /proc, which this system has not",
)
def test_reading_parquet_starts_no_thread_that_could_outlive_python(tmp_path):
    table = pa.table(
        {"user": np.repeat(np.arange(1000, dtype=np.int32), 100), "item": np.arange(100_000)}
    )
    write_parquet(tmp_path / "a.parquet", table)
    count = """
import os, sys
from lastitem.files import read_parquet
before = os.listdir("/proc/self/task")
assert read_parquet(sys.argv[1]).num_rows == 100_000
assert os.listdir("/proc/self/task") == before
"""
    subprocess.run(
        [sys.executable, "-c", count, tmp_path / "a.parquet"],
        check=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )


def test_a_full_disk_is_named_with_the_file_and_the_remedy(small_disk):
    path = small_disk(64) / "new" / "table.parquet"
    process = start(path, "fill")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert (
        stderr
        == f"-c: error: {path}: cannot be written: No space left on device; make room and run"
        " again: what is complete is kept, and a training goes on from its last epoch\n"
    )
    assert names(path.parent) == []


def test_a_folder_that_cannot_be_written_to_is_named(small_disk):
    disk = small_disk(64)
    (disk / "kept").write_text("kept")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    for path in (disk / "table.json", disk / "new" / "table.json"):
        with pytest.raises(
            InputError,
            match=r"table\.json: cannot be written: Read-only file system; .*--directory",
        ):
            write_json(path, {})
    assert names(disk) == ["kept"]


def test_a_file_that_the_block_cannot_read_is_not_taken_for_the_one_it_writes(tmp_path):
    with pytest.raises(PermissionError), write_aside(tmp_path / "a.json"):
        raise PermissionError(errno.EACCES, "Permission denied", "/elsewhere/b.json")
    assert names(tmp_path) == []


def test_after_a_failure_without_logs_nobody_waits_for_input():
    """A submitted job has none, and its standard input may stay open."""
    command = [
        sys.executable,
        "-c",
        "from lastitem.errors import after_failure; print(after_failure([]))",
    ]
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE) as silent:
        done = subprocess.run(
            command,
            stdin=silent.stdout,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            capture_output=True,
            timeout=30,
        )
        silent.kill()
    assert done.stdout.startswith(b"Run the same command again")


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_lack_of_memory_is_said_in_one_line(library):
    command = [sys.executable, "-c", ALLOCATE, library]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert (
        done.stderr.startswith("-c: error: out of memory (")
        and "training.batch_size" in done.stderr
    )
