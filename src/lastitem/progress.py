"""How far a long job is: a bar on a terminal, elsewhere a line now and then, so that a
log stays readable.
"""

import sys
import time

from tqdm import tqdm

LOG_SECONDS = 10


class Progress:
    """Bytes done so far, told on standard error.

    Parameters
    ----------
    description : of whose bytes.
    done : bytes at the start.
    total : bytes in all, if known.
    """

    def __init__(self, description: str, done: int = 0, total: int | None = None) -> None:
        self._description, self._done, self._total = description, done, total
        self._said = time.monotonic()
        self._bar = tqdm(
            total=total, initial=done, unit="B", unit_scale=True, desc=description, disable=None
        )

    def reach(self, done: int) -> None:
        """So many bytes are done by now."""
        self._bar.update(done - self._done)
        self._done = done
        if time.monotonic() - self._said >= LOG_SECONDS:
            self.say()

    def say(self) -> None:
        """Write a line, if there is no bar."""
        self._said = time.monotonic()
        if self._bar.disable:
            print(
                f"{self._description}: {self._done:,} of {self._total or self._done:,} bytes",
                file=sys.stderr,
                flush=True,
            )

    def close(self) -> None:
        """End the bar."""
        self._bar.close()
