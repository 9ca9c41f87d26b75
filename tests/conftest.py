"""How many tests run at once, with how many threads and in which order, and a disk to
fill.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Of the tests that run at once each computes with one thread: those of several would
# wait for one another. Read when torch is imported.
os.environ["OMP_NUM_THREADS"] = "1"

#: Folders whose tests take minutes each.
LONG = ("slurm", "workflow")


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: the tests of servers and schedulers wait for most
    of their time.
    """
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first, so that the workers end at about the same time."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(here).parts[0] not in LONG)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mount a disk of so many KiB; root alone may."""
    disk = tmp_path / "disk"

    def mount(kibibytes: int) -> Path:
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", str(disk)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
        return disk

    yield mount
    if disk.is_mount():
        subprocess.run(["umount", str(disk)], check=True)
