"""A real Slurm on this machine alone: one node, one partition, one pretended GPU.
Started and stopped as root, without systemd.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
# Slurm's programs look here: the plugin takes SLURM_CONF, like every SLURM_ variable,
# out of the environment before it submits.
SITE = Path("/etc/slurm")
SLURM_CONF = """
ClusterName=onenode
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
KillWait=5
MpiDefault=none
ReturnToService=2
MinJobAge=300
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={megabytes} Gres=gpu:1 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
# Without a file the node would be refused as one that has fewer GPUs than configured.
GRES_CONF = "Name=gpu File=/dev/null\n"


def why_not() -> str | None:
    """What this machine lacks to run it, or None."""
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        return f"no {', '.join(missing)} here (Debian: slurmctld slurmd slurm-client munge)"
    if os.geteuid() != 0:
        return "Slurm's daemons are started as root only"
    if any(
        (SITE / name).exists() or (SITE / name).is_symlink() for name in ("slurm.conf", "gres.conf")
    ):
        return f"{SITE} already holds a configuration, which is left alone"
    return None


def wait_for(what: str, holds: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until something holds; TimeoutError names it."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.2)


def queue() -> list[dict[str, str]]:
    """The jobs that wait or run: id, state, and the GPUs they ask for in all and on
    each node, as ``gres:gpu:1`` or ``N/A``.
    """
    lines = subprocess.run(
        [
            "squeue",
            "--noheader",
            "--Format=jobid:20,state:20,tres-per-job:40,tres-per-node:40",
            "--states=PENDING,RUNNING,COMPLETING,CONFIGURING",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    ).stdout.splitlines()
    return [
        dict(zip(("id", "state", "in_all", "per_node"), line.split(), strict=True))
        for line in lines
    ]


def with_gpu(*states: str) -> list[str]:
    """Ids of the jobs in these states that asked for the GPU."""
    asking = [
        job
        for job in queue()
        if any("gpu" in job[way] and not job[way].endswith(":0") for way in ("in_all", "per_node"))
    ]
    return [job["id"] for job in asking if job["state"] in states]


@contextmanager
def one_node(folder: Path) -> Iterator[None]:
    """Slurm inside of the block; behind it no process, no job and no link of it is
    left.
    """
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge/key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    values = {
        "folder": folder,
        "host": socket.gethostname().split(".")[0],
        "cores": os.cpu_count(),
        "megabytes": psutil.virtual_memory().total // 2**20 - 1024,
    }
    (folder / "slurm.conf").write_text(SLURM_CONF.format(**values))
    (folder / "gres.conf").write_text(GRES_CONF)
    links = [SITE / name for name in ("slurm.conf", "gres.conf")]
    pids = [folder / name for name in ("slurmd.pid", "slurmctld.pid", "munge/munged.pid")]
    # So that a test run that is ended by a time limit stops the daemons, too.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for link in links:
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(folder / link.name)
        parts = {
            "key": "key",
            "socket": "munge.socket",
            "pid": "munged.pid",
            "log": "munged.log",
            "seed": "munged.seed",
        }
        options = [
            f"--{option}-file={folder}/munge/{name}"
            for option, name in parts.items()
            if option != "socket"
        ]
        for command in (
            ["munged", "--force", f"--socket={folder}/munge/munge.socket", *options],
            ["slurmctld", "-c"],
            ["slurmd"],
        ):
            subprocess.run(command, check=True, timeout=30)
        state = ["sinfo", "--noheader", "--format=%T"]
        wait_for(
            "an idle node",
            lambda: (
                subprocess.run(
                    state, capture_output=True, text=True, timeout=10, check=False
                ).stdout.strip()
                == "idle"
            ),
        )
        yield
    finally:
        with suppress(subprocess.SubprocessError, TimeoutError):
            for job in queue():
                subprocess.run(["scancel", "--full", job["id"]], timeout=10, check=False)
            wait_for("an empty queue", lambda: not queue(), 30)
        for pid in pids:
            with suppress(FileNotFoundError, ProcessLookupError, ValueError, psutil.NoSuchProcess):
                process = psutil.Process(int(pid.read_text()))
                process.send_signal(signal.SIGTERM)
                with suppress(psutil.TimeoutExpired):
                    process.wait(10)
                if process.is_running():
                    process.kill()
        for link in links:
            link.unlink(missing_ok=True)
        signal.signal(signal.SIGTERM, before)
