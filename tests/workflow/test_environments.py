"""The conda environment repeats the pins of the pip route."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def test_every_requirement_is_pinned_and_explained():
    """A direct dependency has one exact version, and the README names its reason."""
    lines = [
        line
        for line in (ROOT / "envs/requirements.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for line in lines:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9.]+", line), line
        assert f"`{line.split('==')[0]}`" in readme, line


def test_conda_environment_installs_the_same_pins():
    """An upgrade of one file alone fails here."""
    environment = yaml.safe_load((ROOT / "envs/lastitem.yaml").read_text())
    (by_pip,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    lines = [
        line
        for line in (ROOT / "envs/requirements.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert by_pip == lines


def test_the_lock_holds_the_same_pins_and_a_hash_of_every_package():
    """An upgrade without a new lock fails here."""
    lines = [
        line
        for line in (ROOT / "envs/requirements.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    packages = re.split(
        r"^(?=[a-z])", (ROOT / "envs/requirements.lock").read_text(), flags=re.MULTILINE
    )[1:]
    assert {package.split()[0] for package in packages} >= set(lines)
    for package in packages:
        assert re.fullmatch(
            r"[a-z0-9-]+==[\w.]+( ; [^\\]+)? \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+", package
        ), package[:200]


@pytest.mark.parametrize("recipe", ["Dockerfile", "apptainer.def"])
def test_containers_install_the_pins_and_nothing_else(recipe: str):
    """By the file itself, so that there is nothing to keep equal."""
    lines = (ROOT / "envs" / recipe).read_text(encoding="utf-8").splitlines()
    assert any(
        line.split()[-2:] == ["envs/requirements.txt", "/requirements.txt"] for line in lines
    )
    installs = [line for line in lines if " install " in line]
    assert (
        len(installs) == 1
        and installs[0].split("pip ")[1] == "install --no-cache-dir --requirement /requirements.txt"
    )
