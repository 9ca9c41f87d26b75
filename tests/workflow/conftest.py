"""The real pipeline on a tiny real log: a copy of the project in a folder with a space
and an é in its path.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from .forked import Forks

ROOT = Path(__file__).parents[2]
COPIED = [
    "Snakefile",
    "config.yaml",
    "config",
    "workflow",
    "profiles",
    "envs",
    "src",
    "Makefile",
    "README.md",
]
CONFIG = """
registry:
  tiny:
    filter_seen: false
    ties: file
    sources:
      own: {path: data/tiny log.csv, form: {columns: {user: who, item: what, timestamp: when}}}
datasets: [tiny]
baselines: [popularity, markov]
seeds: [3]
shuffle_repeats: 2
residual_scales: [0.0, 0.5, 1.0]
cutoffs: [1, 5, 10]
bootstrap: {resamples: 200}
model_settings:
  sasrec: {hidden_size: 8, maximum_length: 12}
  gru4rec: {hidden_size: 8, maximum_length: 12}
  bert4rec: {hidden_size: 8, maximum_length: 12}
training: {maximum_epochs: 3, batch_size: 16, round_updates: 1}
"""


def write_tiny_log(path: Path, users: int = 40, items: int = 20) -> None:
    """A few hundred events: each user walks through the catalogue, mostly to the next
    item.
    """
    generator = np.random.default_rng(7)
    lines = ["who,what,when"]
    for user in range(users):
        item = int(generator.integers(items))
        for step in range(int(generator.integers(8, 16))):
            lines.append(f"user é{user},item {item},{1_000_000_000 + user * 1000 + step * 60}")
            item = (item + int(generator.choice([1, 1, 1, 2, 5]))) % items
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def copy_project(to: Path) -> Path:
    """A fresh working copy with the tiny log and its config."""
    to.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, to / name)
    write_tiny_log(to / "data" / "tiny log.csv")
    (to / "tiny.yaml").write_text(CONFIG, encoding="utf-8")
    return to


def environment() -> dict[str, str]:
    """The test's own Python first in the PATH, because rules call `python`."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


#: No wait is longer: a machine may be busy with other things, and a test fails by what
#: it asserts, not by its speed.
SECONDS = 1800
#: Before a command that SIGINT is to reach: where tests run in the background, it is
#: ignored, and what they start inherits that.
HEEDS_INTERRUPTS = ["env", "--default-signal=INT"]


@functools.cache
def forks() -> Forks:
    """What runs of Snakemake and of its scripts are forked from."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Forks(folder)


def snakemake(
    project: Path, *arguments: str | Path, configfile: str | None = "tiny.yaml"
) -> subprocess.CompletedProcess[str]:
    """Run Snakemake in a project; standard error is folded into standard output.

    It is forked, and so are the scripts it calls (:mod:`tests.workflow.forked`).
    """
    command = ["snakemake", *map(str, arguments)]
    if configfile:
        command += ["--configfile", configfile]
    here = environment()
    here["PATH"] = f"{forks().path}{os.pathsep}{here['PATH']}"
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        status = forks().run(command, project, here, output.fileno(), SECONDS)
        output.seek(0)
        return subprocess.CompletedProcess(command, status, output.read())


def planned_rules(output: str) -> dict[str, int]:
    """Rule → number of jobs, from the job table of a dry run; empty if nothing is to be
    done.
    """
    rules: dict[str, int] = {}
    lines = iter(output.splitlines())
    for line in lines:
        if line.startswith("Job stats:"):
            rules = {}
            next(lines), next(lines)
            for row in lines:
                if len(row.split()) != 2:
                    break
                name, count = row.split()
                rules[name] = int(count)
    rules.pop("total", None)
    return rules


def digests(project: Path, pattern: str) -> dict[str, str]:
    """Relative path → sha256 of the files that match."""
    return {
        str(path.relative_to(project)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(project.glob(pattern))
    }


def copy_finished(finished: Path, to: Path) -> Path:
    """The project with its results, modification times and Snakemake's records; not
    with another test's lock.
    """
    return Path(shutil.copytree(finished, to, ignore=shutil.ignore_patterns("locks")))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose whole study has run. Tests that change it work on a copy.

    With several test workers the first one that wants it runs it, and the others wait
    for it.
    """
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    project = shared / "study" / "a b" / "é"
    with (shared / "study.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "study.finished").exists():
            assert not project.exists(), "another worker's run of the study has failed"
            done = snakemake(copy_project(project), "all")
            assert done.returncode == 0, done.stdout[-6000:]
            (shared / "study.finished").touch()
    return project


@pytest.fixture
def changed(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished project for a test to change."""
    return copy_finished(finished, tmp_path / "copy")
