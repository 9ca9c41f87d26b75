"""H1: the study killed at any moment, in turn by SIGKILL, SIGTERM and SIGINT; a rerun ends in the same bytes.

Two rounds by default; LASTITEM_KILL_ROUNDS=20 runs as many. Each round is drawn from its number, so it can be repeated alone.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from .conftest import copy_project, environment, snakemake
from .test_study import digests

ROUNDS = int(os.environ.get("LASTITEM_KILL_ROUNDS", "2"))
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
STEPS = 37
FILES = ("results/*.csv", "results/**/*.parquet", "results/**/*.safetensors", "results/**/*.json", "results/**/*.png", "data/**/raw")


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_kill_at_any_moment_loses_nothing(finished: Path, tmp_path: Path, number: int):
    random = np.random.default_rng([20, number])
    steps, seconds, kind = int(random.integers(STEPS)), float(random.uniform(0, 3)), SIGNALS[number % len(SIGNALS)]
    project = copy_project(tmp_path / "project")
    log = project / "snakemake.log"
    with log.open("w") as stream:
        run = subprocess.Popen(
            ["snakemake", "all", "--configfile", "tiny.yaml"],
            cwd=project,
            env=environment(),
            start_new_session=True,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    deadline = time.monotonic() + 300
    while (
        run.poll() is None
        and time.monotonic() < deadline
        and len(re.findall(r"^\d+ of \d+ steps", log.read_text(encoding="utf-8"), re.MULTILINE)) < steps
    ):
        time.sleep(0.05)
    time.sleep(seconds)
    if run.poll() is None:
        os.killpg(run.pid, kind)
    run.wait(timeout=120)
    done, whole = (({path: hash for pattern in FILES for path, hash in digests(place, pattern).items()}) for place in (project, finished))
    assert {path: hash for path, hash in done.items() if ".partial" not in path}.items() <= whole.items(), "nothing half-written"

    subprocess.run(["python", "src/wait_for_lock.py"], cwd=project, env=environment(), check=True, timeout=120)
    again = snakemake(project, "all")
    assert again.returncode == 0, again.stdout[-4000:]
    assert {path: hash for pattern in FILES for path, hash in digests(project, pattern).items()} == whole
    assert not list(project.glob("results/**/.*partial*")) and not list(project.glob("data/**/.*partial*"))
    print(f"round {number}: {kind.name} {seconds:.1f} s after {steps} of {STEPS} steps: complete and equal")
