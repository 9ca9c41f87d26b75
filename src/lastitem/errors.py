"""The one exception that means "the input is at fault", and how a script reports it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence


class InputError(Exception):
    """Data, a file or a setting cannot be used; the message names it and says what to do."""


def run(main: Callable[[Sequence[str] | None], None]) -> None:
    """Run a script's ``main``; an :class:`InputError` ends it with one clear line and exit status 1.

    Anything else is a fault of this program and keeps its traceback.
    """
    # A job killed by the scheduler must unwind, so that half-written files are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        main(None)
    except InputError as error:
        script = os.path.basename(sys.argv[0])
        print(f"{script}: error: {error}", file=sys.stderr)
        sys.exit(1)
