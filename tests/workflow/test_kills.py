"""Kills and a second run: the study is killed at any moment, in turn by SIGKILL,
SIGTERM and SIGINT, and a rerun ends in the same bytes.

One round by default; LASTITEM_KILL_ROUNDS=20 runs as many. Each round is drawn from its
number, so it can be repeated alone.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np
import psutil
import pytest

from .conftest import (
    HEEDS_INTERRUPTS,
    SECONDS,
    copy_finished,
    copy_project,
    digests,
    environment,
    snakemake,
)

ROUNDS = int(os.environ.get("LASTITEM_KILL_ROUNDS", "1"))
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
STEPS = 40
#: All that a study leaves: its download, the files of each run, tables, figures and the
#: page.
FILES = ("data/**/raw", "results/**/*.*")
#: A study of one model, which has every rule and every table and figure.
ONE_MODEL = ("all", "--config", "models=[bert4rec]", "baselines=[]")


def files(project: Path) -> dict[str, str]:
    """Path → sha256 of all that a study of one model leaves, without what other models
    have left there.
    """
    found = {path: hash for pattern in FILES for path, hash in digests(project, pattern).items()}
    return {
        path: hash
        for path, hash in found.items()
        if "/loo/" not in path or re.search("/loo/([^/]*$|bert4rec/)", path)
    }


def start_endless_training(
    project: Path, log: IO[str] | int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """The study with trainings that do not end by themselves, in a process group of its
    own.
    """
    command = [
        "snakemake",
        "all",
        "--configfile",
        "tiny.yaml",
        "--config",
        'training={"maximum_epochs":100000,"patience":100000}',
    ]
    return subprocess.Popen(
        command,
        cwd=project,
        env=environment(),
        start_new_session=True,
        stdout=log,
        stderr=subprocess.STDOUT,
    )


def wait_for_a_trained_epoch(project: Path, run: subprocess.Popen[bytes]) -> list[Path]:
    """Logs of the trainings that have ended an epoch: which the scheduler takes first
    is its affair.
    """
    deadline = time.monotonic() + SECONDS
    while not (
        begun := [log for log in project.glob("logs/train/*.log") if "epoch" in log.read_text()]
    ):
        assert time.monotonic() < deadline and run.poll() is None
        time.sleep(0.2)
    return begun


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_kill_at_any_moment_loses_nothing(finished: Path, tmp_path: Path, number: int):
    """And two runs with the same config and seed, one of them broken off and one beside
    other models, give the same bytes.

    They answer what this model can answer: it has no earlier prediction to go back to.
    """
    random = np.random.default_rng([20, number])
    steps, seconds, kind = (
        int(random.integers(STEPS)),
        float(random.uniform(0, 3)),
        SIGNALS[number % len(SIGNALS)],
    )
    of_one, project = copy_finished(finished, tmp_path / "a"), copy_project(tmp_path / "b")
    undisturbed = snakemake(of_one, *ONE_MODEL)
    assert undisturbed.returncode == 0, undisturbed.stdout[-4000:]
    assert "| bert4rec" in (of_one / "results/table4.md").read_text(encoding="utf-8")
    whole = files(of_one)
    log = project / "snakemake.log"
    with log.open("w") as stream:
        run = subprocess.Popen(
            [*HEEDS_INTERRUPTS, "snakemake", *ONE_MODEL, "--configfile", "tiny.yaml"],
            cwd=project,
            env=environment(),
            start_new_session=True,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    deadline = time.monotonic() + SECONDS
    while (
        run.poll() is None
        and time.monotonic() < deadline
        and len(re.findall(r"^\d+ of \d+ steps", log.read_text(encoding="utf-8"), re.MULTILINE))
        < steps
    ):
        time.sleep(0.05)
    time.sleep(seconds)
    if run.poll() is None:
        os.killpg(run.pid, kind)
    run.wait(timeout=SECONDS)
    named = {
        path: hash
        for path, hash in files(project).items()
        if ".partial" not in path and Path(path).name != "unfinished.pt"
    }
    assert named.items() <= whole.items(), "nothing half-written"

    subprocess.run(
        ["python", "src/wait_for_lock.py"],
        cwd=project,
        env=environment(),
        check=True,
        timeout=SECONDS,
    )
    again = snakemake(project, *ONE_MODEL)
    assert again.returncode == 0, again.stdout[-4000:]
    assert files(project) == whole
    assert not list(project.glob("results/**/.*partial*")) and not list(
        project.glob("data/**/.*partial*")
    )
    print(
        f"round {number}: {kind.name} {seconds:.1f} s after {steps} of {STEPS} steps: complete and"
        " equal"
    )


def test_a_kill_in_training_loses_nothing(finished: Path, tmp_path: Path):
    """SIGKILL of the whole group while a model trains; `make results` clears the
    stale lock, waits for nobody, completes.
    """
    project = copy_finished(finished, tmp_path / "killed")
    shutil.rmtree(project / "logs")
    run = start_endless_training(project)
    try:
        begun = wait_for_a_trained_epoch(project, run)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    for log in begun:
        assert not (
            project / f"results/tiny/loo/{log.name.split('.')[2]}/seed=3/model.safetensors"
        ).exists()
    locked = snakemake(project, "all")
    assert locked.returncode != 0 and "lock" in locked.stdout.lower()
    command = ["python", "src/wait_for_lock.py"]
    waited = subprocess.run(
        command, cwd=project, env=environment(), text=True, capture_output=True, timeout=SECONDS
    )
    assert waited.returncode == 0 and "clearing the lock" in waited.stdout
    whole = digests(finished, "results/tiny/loo/*/seed=3/model.*")
    # The rest is the same with or without a kill before.
    lost = [path for path in whole if not (project / path).exists()]
    assert lost
    done = snakemake(project, *lost, "results/table2.csv")
    assert done.returncode == 0, done.stdout[-4000:]
    assert digests(project, "results/tiny/loo/*/seed=3/model.*") == whole
    assert digests(project, "results/table2.csv") == digests(finished, "results/table2.csv")
    assert not list(project.glob("results/**/.*partial*"))


def test_a_killed_job_is_explained(finished: Path, tmp_path: Path):
    """The process of a training alone is killed, as a system without memory would:
    Snakemake says which rule, we why and what to do.
    """
    project = copy_finished(finished, tmp_path / "killed")
    shutil.rmtree(project / "logs")
    with (project / "snakemake.log").open("w") as stream:
        run = start_endless_training(project, stream)
        try:
            wait_for_a_trained_epoch(project, run)
            for process in psutil.Process(run.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if "src/train.py" in process.cmdline():
                        process.kill()
            assert run.wait(timeout=SECONDS) != 0
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
    said = (project / "snakemake.log").read_text(encoding="utf-8")
    assert "Error in rule train" in said and "killed from outside (signal 9)" in said
    assert "lower training.batch_size" in said and "a training goes on from its last epoch" in said


def test_two_runs_at_once(finished: Path, tmp_path: Path):
    """The second Snakemake says that the folder is locked; `make results` would
    wait for the first one instead.
    """
    project = copy_finished(finished, tmp_path / "busy")
    first = start_endless_training(project)
    waiting = []
    try:
        deadline = time.monotonic() + SECONDS
        while not list(project.glob(".snakemake/locks/*")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        second = snakemake(project, "all")
        assert second.returncode != 0 and "lock" in second.stdout.lower()
        command = ["python", "-u", "src/wait_for_lock.py"]
        for _ in range(2):
            # Neither waits for the other.
            waiting.append(
                subprocess.Popen(
                    command, cwd=project, env=environment(), text=True, stdout=subprocess.PIPE
                )
            )
            assert (
                waiting[-1].stdout is not None and str(first.pid) in waiting[-1].stdout.readline()
            )
        pressed = [*HEEDS_INTERRUPTS, *command]
        impatient = subprocess.Popen(
            pressed,
            cwd=project,
            env=environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert impatient.stdout is not None and "Ctrl-C to give up" in impatient.stdout.readline()
        impatient.send_signal(signal.SIGINT)
        assert (
            impatient.communicate(timeout=SECONDS)[0] == "given up; what runs here goes on\n"
            and impatient.returncode == 1
        )
        assert all(one.poll() is None for one in waiting)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        assert all(one.wait(timeout=SECONDS) == 0 for one in waiting)


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk can be mounted by root alone")
def test_a_full_disk_names_rule_file_and_remedy_and_costs_nothing(
    finished: Path, tmp_path: Path, small_disk: Callable[[int], Path]
):
    """A study on a disk that is full before the first training ends; with more room it
    goes on to the results of any other.
    """
    project, disk = copy_project(tmp_path / "project"), small_disk(310)
    (disk / "data").mkdir()
    shutil.copy(project / "data/tiny log.csv", disk / "data")
    shutil.copy(project / "tiny.yaml", disk)
    run = (
        "results/table1.csv",
        "results/tiny/loo/sasrec/seed=3/evaluation.json",
        "--snakefile",
        project / "Snakefile",
        "--cores",
        "1",
    )
    full = snakemake(disk, *run)
    assert full.returncode != 0
    assert re.search(
        r"error: \S+: cannot be written: No space left on device; make room and run again",
        full.stdout,
    ), full.stdout[-3000:]
    assert re.search(r"Error in rule \w+", full.stdout)
    assert not list(disk.rglob("*.partial*"))
    subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
    done = snakemake(disk, *run)
    assert done.returncode == 0, done.stdout[-3000:]
    for path in ("results/table1.csv", "results/tiny/loo/sasrec/seed=3/evaluation.json"):
        assert (disk / path).read_bytes() == (finished / path).read_bytes()
