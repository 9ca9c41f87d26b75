"""Snakemake in a process of its own, forked from one that has imported it: importing
takes half of a dry run.

The process that is forked knows neither the tests nor the package, so that what it
imports of the package is the project's own.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["snakemake.cli"])


def run(command: list[str], folder: str, environment: dict[str, str], output: str) -> None:
    """What the forked process does: `snakemake` with these arguments, as its entry
    point does it.
    """
    stream = os.open(output, os.O_WRONLY | os.O_CREAT)
    for standard in (1, 2):
        os.dup2(stream, standard)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command
    from snakemake.cli import main

    main()


def run_forked(
    command: list[str], folder: Path, environment: dict[str, str], output: str, seconds: float
) -> int:
    """Run a command of Snakemake in a folder, with standard output and error in a file;
    its exit status.
    """
    process = FORKS.Process(target=run, args=(command, str(folder), environment, output))
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"{command} runs for more than {seconds} seconds")
    return process.exitcode
