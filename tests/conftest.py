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


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first and each by itself, the others by file: so the workers end at
    about the same time.
    """

    def place(item: pytest.Item) -> int:
        parts = item.path.relative_to(Path(__file__).parent).parts
        return next((rank for rank, part in enumerate(LONG) if part in parts), len(LONG))

    items.sort(key=place)
    for item in items:
        if place(item) == len(LONG) or {*item.path.parts} & {*TOGETHER}:
            item.add_marker(pytest.mark.xdist_group(item.path.as_posix()))


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
