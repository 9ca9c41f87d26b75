"""Profiles where no scheduler is needed to see whether they say what they mean;
tests/slurm/ runs them on a real one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

import wait_for_lock

from .conftest import copy_project, environment, snakemake

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("scontrol", "sacct", "said"),
    [
        ("echo JobId=7 JobState=RUNNING Reason=None", "exit 1", "running"),
        ("echo JobId=7 JobState=COMPLETED", "exit 1", "success"),
        ("echo JobId=7 JobState=OUT_OF_MEMORY", "exit 1", "failed"),
        (
            "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
            "echo COMPLETED",
            "success",
        ),
        (
            "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
            "echo 'CANCELLED by 0'",
            "failed",
        ),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", "exit 1", "failed"),
        (
            "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
            "exit 1",
            "running",
        ),
    ],
    ids=[
        "running",
        "ended",
        "killed",
        "forgotten",
        "forgotten cancelled",
        "forgotten without accounting",
        "no controller",
    ],
)
def test_the_state_of_a_job_is_one_of_three_words(
    tmp_path: Path, scontrol: str, sacct: str, said: str
):
    """Whatever Slurm answers: without a word Snakemake would give up the whole run."""
    for name, does in (("scontrol", scontrol), ("sacct", sacct)):
        command = tmp_path / name
        command.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        command.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    status = PROJECT / "profiles/cluster-generic/status.sh"
    done = subprocess.run(
        [status, "7"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{said}\n"


def test_a_profile_for_gpus_never_falls_back_to_the_cpu_unsaid(tmp_path: Path):
    """--config takes the place of the profile's device=cuda, --resources of its
    resources; who says nothing of the device is asked.
    """
    project = copy_project(tmp_path / "project")
    plan = ("-n", "results/tiny/loo/sasrec/seed=3/model.json", "--workflow-profile", "profiles/gpu")
    assert "--device cuda" in snakemake(project, *plan, "-p").stdout
    for more in ((), ("--resources", "gpu=4")):
        refused = snakemake(project, *plan, *more, "--config", "shuffle_repeats=3")
        assert refused.returncode != 0 and "say both: --config device=cuda" in refused.stdout
    for device in ("cuda", "cpu"):
        assert (
            f"--device {device}"
            in snakemake(
                project, *plan, "-p", "--config", "shuffle_repeats=3", f"device={device}"
            ).stdout
        )


def test_a_run_that_does_not_say_where_it_works_may_work_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Another user's Snakemake hides its folder; that user's lock is not cleared, and a
    lock of one's own waits for nobody else.
    """
    (tmp_path / "snakemake").write_text("import time; time.sleep(60)", encoding="utf-8")
    with subprocess.Popen([sys.executable, tmp_path / "snakemake"], cwd=tmp_path) as process:
        try:
            assert process.pid not in wait_for_lock.workers(tmp_path / "elsewhere")

            def hidden(worker: psutil.Process) -> str:
                raise psutil.AccessDenied(worker.pid)

            monkeypatch.setattr(psutil.Process, "cwd", hidden)
            lock = tmp_path / "elsewhere" / wait_for_lock.LOCKS / "0.input.lock"
            assert process.pid not in wait_for_lock.workers(tmp_path / "elsewhere")
            lock.parent.mkdir(parents=True)
            lock.touch()
            assert process.pid in wait_for_lock.workers(tmp_path / "elsewhere")
            monkeypatch.setattr(
                psutil.Process,
                "uids",
                lambda worker: SimpleNamespace(effective=lock.stat().st_uid + 1),
            )
            assert process.pid not in wait_for_lock.workers(tmp_path / "elsewhere")
        finally:
            process.kill()


def test_a_lock_in_a_folder_without_the_workflow_is_cleared_too(tmp_path: Path):
    """Of a study that was made with --directory and killed."""
    lock = tmp_path / wait_for_lock.LOCKS / "0.input.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("results/table1.csv\n", encoding="utf-8")
    command = [sys.executable, PROJECT / "src/wait_for_lock.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "clearing the lock" in done.stdout and not lock.exists()
