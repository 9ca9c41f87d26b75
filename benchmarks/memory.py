"""The largest resident memory of this process so far."""

from __future__ import annotations

import re
from pathlib import Path


def peak_mib() -> float:
    """VmHWM of /proc, in MiB; unlike ``ru_maxrss`` it does not hold what the parent had
    before this program was started.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024
