"""The one exception that means "the input is at fault", and how a script reports it."""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

MORE_MEMORY = (
    "Run fewer jobs at once (--cores), lower training.batch_size, or take a machine with more"
    " memory."
)


class InputError(Exception):
    """Data, a file or a setting cannot be used; the message names it and says what to
    do.
    """


def run(main: Callable[[Sequence[str] | None], None]) -> None:
    """Run a script's ``main``; an :class:`InputError` or a lack of memory ends it with
    one clear line and exit status 1.

    Anything else is a fault of this program and keeps its traceback.
    """
    # A job killed by the scheduler must unwind, so that half-written files are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        main(None)
    except InputError as error:
        _end(str(error))
    except (MemoryError, RuntimeError) as error:
        if not is_lack_of_memory(error):
            raise
        first = str(error).strip().partition("\n")[0] or "no memory"
        _end(f"out of memory ({first}). {MORE_MEMORY}")


def after_failure(logs: Iterable[str]) -> str:
    """What Snakemake's own logs of a failed run do not say: what ended a job that was
    killed, and what running again will do.
    """
    killed = any(
        line.rstrip().endswith("returned non-zero exit status 137.")
        for log in logs
        for line in Path(log).read_text(encoding="utf-8", errors="replace").splitlines()
    )
    why = (
        "A job was killed from outside (signal 9): so ends a process when the system has no memory"
        f" left. {MORE_MEMORY}\n"
        if killed
        else ""
    )
    return (
        f"{why}Run the same command again when the cause is mended: what is complete is kept, and a"
        " training goes on from its last epoch."
    )


def is_lack_of_memory(error: Exception) -> bool:
    """Whether Python's, numpy's, pyarrow's or torch's own error says that no memory was
    left, on the CPU or on a GPU.
    """
    # torch is not imported for its OutOfMemoryError: most scripts do without it.
    return isinstance(error, MemoryError) or any(
        sign in str(error) for sign in ("can't allocate memory", "out of memory")
    )


def _end(message: str) -> None:
    print(f"{os.path.basename(sys.argv[0])}: error: {message}", file=sys.stderr)
    sys.exit(1)
