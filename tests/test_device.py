"""Each job its own GPU. No GPU is needed: only how many torch sees is pretended, the
processes and their locks are real.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from lastitem import device
from lastitem.errors import InputError


def take(folder: Path, gpus: int, asked: str, visible: str | None, said: Connection) -> None:
    """Be a job: take a device, say which, and keep it until killed."""
    tempfile.tempdir = str(folder)
    device.torch.cuda.device_count = lambda: gpus
    if visible:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    said.send(device.configure(asked, threads=1))
    said.recv()


@contextmanager
def job(folder: Path, gpus: int, asked: str = "cuda", visible: str | None = None) -> Iterator[str]:
    """The device that a process gets, which it keeps until the block ends; then it is
    killed. Forked, so that torch need not be imported once more.
    """
    processes = multiprocessing.get_context("fork")
    here, there = processes.Pipe()
    process = processes.Process(target=take, args=(folder, gpus, asked, visible, there))
    process.start()
    try:
        assert here.poll(60), "no device within a minute"
        yield here.recv()
    finally:
        process.kill()
        process.join()


def test_each_job_has_a_gpu_of_its_own_and_a_killed_one_gives_it_back(tmp_path):
    with job(tmp_path, 2) as second_to_leave:
        assert second_to_leave == "cuda:0"
        with job(tmp_path, 2) as other:
            assert other == "cuda:1"
            with job(tmp_path, 2) as one_too_many:
                assert one_too_many == "cuda:0", "more jobs than GPUs share"
    with job(tmp_path, 2) as again:
        assert again == "cuda:0"


def test_devices_are_those_that_are_visible(tmp_path):
    """Two jobs of a scheduler that were given different GPUs do not take
    each other's.
    """
    with job(tmp_path, 2, visible="3,5") as first, job(tmp_path, 2, visible="5,3") as second:
        assert (first, second) == ("cuda:0", "cuda:0"), "3 and 5"


@pytest.mark.parametrize(("gpus", "asked"), [(1, "cuda"), (2, "cuda:1"), (2, "cpu")])
def test_what_leaves_no_choice_is_taken_as_it_is(tmp_path, gpus, asked):
    with job(tmp_path, gpus, asked) as found:
        assert found == asked
    assert not list(tmp_path.glob("*.lock"))


def test_float32_is_float32_in_every_library():
    """cuDNN, which computes GRU4Rec, takes TF32 by itself."""
    device.configure("cpu", threads=1)
    assert (
        not device.torch.backends.cudnn.allow_tf32
        and not device.torch.backends.cuda.matmul.allow_tf32
    )


@pytest.mark.skipif(device.torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize("asked", ["cuda", "cuda:1"])
def test_a_device_that_is_not_there_is_named(asked):
    with pytest.raises(InputError, match=f"'{asked}'.* sees 0 CUDA devices"):
        device.configure(asked, threads=1)


def tell_whether_deterministic(said: Connection) -> None:
    """Be a job: tell whether torch may compute in an order of its own."""
    device.configure("cpu", threads=1)
    said.send(device.torch.are_deterministic_algorithms_enabled())


def test_a_job_computes_the_same_twice():
    """Torch refuses what is not deterministic."""
    processes = multiprocessing.get_context("fork")
    here, there = processes.Pipe()
    process = processes.Process(target=tell_whether_deterministic, args=(there,))
    process.start()
    assert here.poll(60) and here.recv()
    process.join()


def test_what_is_freed_is_kept_for_the_next_tensor():
    """Forty megabytes are filled and freed again and again: nearly all of their 9,800
    pages are new only once, and not three times (so it was measured without).
    """
    code = (
        "import resource, torch\n"
        "from lastitem import device\n"
        "device.configure('cpu', 1)\n"
        "for _ in range(5):\n"
        "    kept = [torch.ones(250_000) for _ in range(40)]\n"
        "    del kept\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)\n"
    )
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=here, capture_output=True, text=True, check=True)
    faults = [int(line) for line in done.stdout.split()]
    assert faults[-1] - faults[0] < 9_800
