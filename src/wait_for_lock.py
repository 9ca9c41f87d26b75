"""Make the working directory free for Snakemake: wait for one that still works here,
clear the lock of one that was killed.

Snakemake's lock does not say whose it is, so after a kill it would have to be removed
by hand. Whether somebody still works here is asked of the operating system: any
Snakemake, or job of it, whose working directory this is.
"""

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from lastitem.errors import run

LOCKS, SNAKEFILE = ".snakemake/locks", Path(__file__).parents[1] / "Snakefile"
SECONDS_BETWEEN_NOTES = 60


def workers(folder: Path) -> list[int]:
    """Ids of the processes, other than this one and its parents, that run Snakemake, or
    a script of this workflow, in ``folder``.
    """
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    here = Path(__file__)
    # Not this one: of two that wait, each would wait for the other.
    scripts = tuple(
        f"{here.parent.name}/{script.name}"
        for script in here.parent.glob("*.py")
        if script.name != here.name
    )
    found = []
    for process in psutil.process_iter():
        # A process may end, and a lock go, while it is looked at.
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError):
            program, *arguments = process.cmdline() or [""]
            if (
                process.pid not in own
                and Path(program).name.startswith(("python", "snakemake"))
                and any(
                    Path(part).name == "snakemake" or part.endswith(scripts)
                    for part in (program, *arguments)
                )
                and _may_be_in(process, folder)
            ):
                found.append(process.pid)
    return found


def _may_be_in(process: psutil.Process, folder: Path) -> bool:
    """Whether a process works in a folder; one that does not tell, another user's, is
    taken to do so if the lock there is that user's.
    """
    try:
        return Path(process.cwd()) == folder
    except psutil.AccessDenied:
        owners = {lock.stat().st_uid for lock in (folder / LOCKS).glob("*")}
        return process.uids().effective in owners


def wait(folder: Path) -> None:
    """Return once nobody works in ``folder``, saying every minute whom it waits for."""
    for second in itertools.count():
        if not (working := workers(folder)):
            return
        if second % SECONDS_BETWEEN_NOTES == 0:
            print(
                f"waiting for another run in this folder (process {', '.join(map(str, working))});"
                " Ctrl-C to give up",
                flush=True,
            )
        time.sleep(1)


def main(argv: Sequence[str] | None = None) -> None:
    """Wait, then unlock if a lock is left."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    folder = Path.cwd()
    try:
        wait(folder)
        if any((folder / LOCKS).glob("*")):
            print("clearing the lock of a run that was killed", flush=True)
            # Named, because the folder may be one that was given with --directory.
            subprocess.run(
                ["snakemake", "--unlock", "--quiet", "--snakefile", SNAKEFILE], check=True
            )
    except KeyboardInterrupt:
        sys.exit("given up; what runs here goes on")


if __name__ == "__main__":
    run(main)
