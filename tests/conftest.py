"""How many tests run at once, with how many threads and in which order, and a disk to
fill.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# Of the tests that run at once each computes with one thread: those of several would
# wait for one another. Read when torch is imported.
os.environ["OMP_NUM_THREADS"] = "1"

#: Folders and files whose tests take longest, the longest first.
LONG = (
    "slurm",
    "test_kills.py",
    "test_variants.py",
    "test_precision.py",
    "test_registry.py",
    "workflow",
)
#: Their tests share one cluster, one study or one browser; the others there share only
#: what is on disk.
TOGETHER = ("slurm", "test_check.py", "test_page_in_a_browser.py")


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: the tests of servers and schedulers wait for most
    of their time.
    """
    return (os.cpu_count() or 1) + 1


def cost(nodeid: str) -> int:
    """The rank of a test among the long ones; those of all others are equal."""
    parts = nodeid.split("::")[0].split("/")
    return next((rank for rank, part in enumerate(LONG) if part in parts), len(LONG))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first, so that the workers end at about the same time."""
    items.sort(key=lambda item: cost(item.nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Each long test goes to a worker by itself, the others by file."""

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            alone = cost(nodeid) < len(LONG) and not {*file.split("/")} & {*TOGETHER}
            return nodeid if alone else file

    return Scheduling(config, log)


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
