"""The tiny study through profiles/slurm and profiles/cluster-generic on a real Slurm.
Run by `make test-cluster`; takes minutes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import yaml

from ..workflow.conftest import (
    HEEDS_INTERRUPTS,
    SECONDS,
    copy_project,
    digests,
    environment,
    finished,
)
from .one_node import SITE, one_node, queue, wait_for, why_not, with_gpu

__all__ = ["finished"]

#: What an administrator would edit, and waits that a real cluster wants longer. The GPU
#: is pretended, so the CPU computes.
EDITS = {
    "slurm": {
        "slurm-status-command": "squeue",
        "seconds-between-status-checks": 1,
        "slurm-init-seconds-before-status-checks": 1,
    },
    "cluster-generic": {"seconds-between-status-checks": 1},
}
#: One model and one baseline, so that the study stays short; its tables and figures are
#: then its own, the files of each run those of the whole study.
CONFIG = ["device=cpu", "models=[sasrec]", "baselines=[popularity]"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if os.environ.get("LASTITEM_TEST_CLUSTER") != "1":
        pytest.skip(
            "the cluster tests start daemons as root, so they run only when asked for: make"
            " test-cluster"
        )
    if lacking := why_not():
        pytest.skip(f"no one-node Slurm: {lacking}")
    with one_node(tmp_path_factory.mktemp("slurm")):
        yield
    daemons = {process.name() for process in psutil.process_iter()} & {
        "munged",
        "slurmctld",
        "slurmd",
    }
    assert not daemons and not any(
        (SITE / name).is_symlink() for name in ("slurm.conf", "gres.conf")
    )


def project_for(folder: Path, profile: str) -> Path:
    """A project with the tiny study and a profile that is the real one, edited as its
    comments say.
    """
    project = copy_project(folder / "project")
    text = (
        (project / f"profiles/{profile}/config.yaml")
        .read_text(encoding="utf-8")
        .replace("--partition=gpu", "--partition=main")
    )
    settings = yaml.safe_load(text) | EDITS[profile] | {"config": CONFIG, "latency-wait": 10}
    settings["default-resources"] = [
        line.replace("slurm_partition=gpu", "slurm_partition=main")
        for line in settings["default-resources"]
        if not line.startswith("slurm_account")
    ]
    settings["set-resources"] = [f"{rule}:gpu=1" for rule in ("train", "decompose")]
    (project / "profiles/here").mkdir()
    (project / "profiles/here/config.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    return project


@contextmanager
def started(
    project: Path, *arguments: str, option: str = "--workflow-profile"
) -> Iterator[subprocess.Popen[str]]:
    """The study, or the targets that the arguments name, running; killed at the end of
    the block if it still does.
    """
    command = [
        *HEEDS_INTERRUPTS,
        "snakemake",
        option,
        "profiles/here",
        *arguments,
        "--configfile",
        "tiny.yaml",
    ]
    with (project / "snakemake.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=project, env=environment(), text=True, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def said(project: Path) -> str:
    return (project / "snakemake.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("profile", "targets"),
    [
        ("slurm", ["all"]),
        # The rest differs in nothing for it.
        (
            "cluster-generic",
            [
                "results/table1.csv",
                "results/table3.csv",
                "results/tiny/loo/popularity/seed=3/model.safetensors",
            ],
        ),
    ],
)
def test_the_study_completes_and_equals_a_local_run(
    cluster: None, finished: Path, tmp_path: Path, profile: str, targets: list[str]
):
    """Downloads, tables and figures run here, the rest is submitted; two jobs never
    hold the one GPU at once; a training that is cancelled while it runs (scancel) is
    submitted anew.
    """
    project, holders, waited = project_for(tmp_path, profile), set(), False
    with started(project, *targets) as process:
        wait_for("a running training", lambda: bool(with_gpu("RUNNING")), SECONDS)
        cancelled = with_gpu("RUNNING")
        subprocess.run(["scancel", *cancelled], check=True, timeout=10)
        end = time.monotonic() + SECONDS
        while process.poll() is None and time.monotonic() < end:
            holding = with_gpu("RUNNING", "COMPLETING")
            assert len(holding) <= 1
            holders |= set(holding)
            waited |= bool(holding) and bool(with_gpu("PENDING"))
            time.sleep(0.2)
        assert process.wait(timeout=10) == 0, said(project)[-4000:]
    assert len(holders | {*cancelled}) >= 4 and waited, "several jobs asked for the GPU at once"
    assert "Trying to restart job" in said(project)
    whole, made, expected = (
        targets == ["all"],
        digests(project, "results/tiny/**/*.*"),
        digests(finished, "results/tiny/**/*.*"),
    )
    assert (
        made.items() <= expected.items()
        and len([path for path in made if path.endswith("model.safetensors")]) == 2
    )
    assert whole or all((project / target).exists() for target in targets)
    assert digests(project, "results/table1.csv") == digests(finished, "results/table1.csv")
    rules = set(re.findall(r"^(?:local)?rule (\w+):", said(project), flags=re.MULTILINE))
    here = set(re.findall(r"^localrule (\w+):", said(project), flags=re.MULTILINE))
    assert {"download", "table1"} | ({"fig1", "page"} if whole else set()) <= here
    submitted = {"train", "evaluate", "intervene", "decompose", "rescale"}
    assert not here & submitted and "train" in rules
    assert queue() == []


def test_the_other_option_for_profiles_submits_too(cluster: None, finished: Path, tmp_path: Path):
    """--profile, with which profiles/default is read as well."""
    project = project_for(tmp_path, "slurm")
    with started(project, "--until", "core_filter", option="--profile") as process:
        assert process.wait(timeout=SECONDS) == 0, said(project)[-4000:]
    assert "has been submitted with SLURM jobid" in said(project)
    path = "results/tiny/core/interactions.parquet"
    assert (project / path).read_bytes() == (finished / path).read_bytes()


def test_ctrl_c_leaves_an_empty_queue(cluster: None, tmp_path: Path):
    project = project_for(tmp_path, "slurm")
    with started(
        project, "--config", *CONFIG, 'training={"maximum_epochs":100000,"patience":100000}'
    ) as process:
        wait_for("a running training", lambda: bool(with_gpu("RUNNING")), SECONDS)
        # As at a terminal: pressed again where nothing happens, since Snakemake may
        # swallow one in the middle of a submission.
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=40)
                break
        assert process.poll(), "ended, and not as if all were well"
    wait_for("an empty queue", lambda: not queue(), 30)
    assert not list(project.glob("results/tiny/loo/sasrec/seed=3/model.safetensors"))
