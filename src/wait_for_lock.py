"""Make the working directory free for Snakemake: wait for one that still works here,
clear the lock of one that was killed.

Snakemake's lock does not say whose it is, so after a kill it would have to be removed
by hand. Whether somebody still works here is asked of the operating system: any
Snakemake, or job of it, whose working directory this is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from lastitem.errors import run

LOCKS, SNAKEFILE = ".snakemake/locks", Path(__file__).parents[1] / "Snakefile"
SECONDS_BETWEEN_LOOKS = 1
SECONDS_BETWEEN_NOTES = 60


def workers(folder: Path) -> list[psutil.Process]:
    """Processes other than this one and its parents that run Snakemake, or a script of
    this workflow, in ``folder``.
    """
    own = {psutil.Process().pid, *(parent.pid for parent in psutil.Process().parents())}
    here = Path(__file__)
    # Not this one: of two that wait, each would wait for the other.
    scripts = tuple(
        f"{here.parent.name}/{script.name}"
        for script in here.parent.glob("*.py")
        if script.name != here.name
    )
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid in own or process.status() == psutil.STATUS_ZOMBIE:
                continue
            command = process.cmdline()
            if not _may_be_in(process, folder):
                continue
        except (psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError):
            continue
        runs_python = bool(command) and Path(command[0]).name.startswith(("python", "snakemake"))
        if runs_python and any(
            Path(part).name == "snakemake" or part.endswith(scripts) for part in command
        ):
            found.append(process)
    return found


def _may_be_in(process: psutil.Process, folder: Path) -> bool:
    """Whether a process works in a folder; one that does not tell, another user's, is
    taken to do so if the lock there is that user's.
    """
    try:
        return Path(process.cwd()) == folder
    except psutil.AccessDenied:
        return process.uids().effective in {
            lock.stat().st_uid for lock in (folder / LOCKS).glob("*")
        }


def wait(folder: Path) -> None:
    """Return once nobody works in ``folder``, saying every minute whom it waits for."""
    last_note = -float(SECONDS_BETWEEN_NOTES)
    while working := workers(folder):
        if time.monotonic() - last_note >= SECONDS_BETWEEN_NOTES:
            last_note = time.monotonic()
            names = ", ".join(str(process.pid) for process in working)
            print(
                f"waiting for another run in this folder (process {names}); Ctrl-C to give up",
                flush=True,
            )
        time.sleep(SECONDS_BETWEEN_LOOKS)


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
