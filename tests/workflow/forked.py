"""Snakemake and the scripts it calls in processes of their own, forked from one that
has imported what they import: that takes half of a dry run, and most of a job.

The process that is forked knows neither the tests nor the package, so that what is
imported of the package is the project's own. As a script: ``forked.py SOCKET`` serves,
``forked.py SOCKET SCRIPT …`` asks for a run of a script and ends as it does.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path

#: What the scripts import, and of torch what an optimizer does.
IMPORTED = (
    "snakemake.cli",
    "torch._dynamo",
    "torch.optim",
    "safetensors.torch",
    "matplotlib.pyplot",
    "matplotlib.backends.backend_pdf",
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "scipy.sparse",
    "scipy.special",
    "jinja2",
    "tqdm",
)


class Forks:
    """The process that is forked, started when it is first needed; it ends with the one
    that has started it.
    """

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "forks"
        command = [sys.executable, __file__, str(self.socket)]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._server.stdout and self._server.stdout.readline() == b"ready\n"
        # In place of `python`, for the rules.
        self.path = folder / "bin"
        self.path.mkdir()
        shim = self.path / "python"
        options = f"-IS '{__file__}' '{self.socket}' '{sys.executable}'"
        shim.write_text(f"#!/bin/sh\nexec '{sys.executable}' {options} \"$@\"\n", encoding="utf-8")
        shim.chmod(0o755)

    def run(
        self, command: list[str], folder: Path, environment: dict[str, str], output: int, limit: int
    ) -> int:
        """Run a command of Snakemake in a folder, for so many seconds at most, with
        standard output and error in an open file; its exit status.
        """
        with open(os.devnull, "rb") as nothing:
            files = [nothing.fileno(), output, output]
            return ask(self.socket, command, str(folder), environment, files, limit)


def ask(
    server: str | Path,
    command: list[str],
    folder: str,
    environment: dict[str, str],
    files: list[int],
    limit: int | None = None,
) -> int:
    """Have a command run, with these as its standard input, output and error; its exit
    status.
    """
    told = json.dumps([command, folder, environment]).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(limit)
        connection.connect(str(server))
        socket.send_fds(connection, [len(told).to_bytes(4, "big")], files)
        connection.sendall(told)
        return connection.recv(1)[0]


def serve(path: str) -> None:
    """Import, and then fork for each that asks, until the one that has started this
    process has ended.
    """
    for name in IMPORTED:
        __import__(name)
    # Nothing here is garbage that a fork would have to look through.
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection = listener.accept()[0]
            if not os.fork():
                listener.close()
                attend(connection)
                return
            connection.close()


def attend(connection: socket.socket) -> None:
    """Run in a process what is asked for, and tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, files, _, _ = socket.recv_fds(connection, 4, 3)
    told = b""
    while len(told) < int.from_bytes(size, "big"):
        told += connection.recv(1 << 16)
    if process := os.fork():
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        connection.sendall(bytes([status if status >= 0 else 128 - status]))
        os._exit(0)
    connection.close()
    for standard, file in enumerate(files):
        os.dup2(file, standard)
        os.close(file)
    run(*json.loads(told))


def run(command: list[str], folder: str, environment: dict[str, str]) -> None:
    """What Python does with a script, or with the entry point of Snakemake."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command
    sys.path[0] = str(Path(command[0]).absolute().parent)
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    status: object = 0
    try:
        if command[0] == "snakemake":
            sys.modules["snakemake.cli"].main()
        else:
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    if isinstance(status, str):
        print(status, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    # Not by the usual way, which would first take apart all that is shared: that takes
    # longer than the job.
    os._exit(status if isinstance(status, int) else bool(status))


if __name__ == "__main__":
    server, *rest = sys.argv[1:]
    if not rest:
        serve(server)
    elif len(rest) > 1 and rest[1].endswith(".py"):
        sys.exit(ask(server, rest[1:], os.getcwd(), dict(os.environ), [0, 1, 2]))
    else:
        os.execv(rest[0], rest)
