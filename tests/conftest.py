"""The order of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

#: Folders whose tests take minutes each.
LONG = ("slurm", "workflow")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first, so that the workers end at about the same time."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(here).parts[0] not in LONG)
