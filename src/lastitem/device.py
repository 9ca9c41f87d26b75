"""Where and how torch computes: threads, determinism, a GPU of its own for each job,
and a clear word if the device is not there.
"""

import ctypes
import fcntl
import os
import tempfile
from pathlib import Path
from typing import IO

import torch

from lastitem.errors import InputError

# Locks last as long as the process, however it ends.
_taken: list[IO[str]] = []


def configure(device: str, threads: int) -> str:
    """Set the number of threads, ask for deterministic algorithms, and return the
    device.

    ``cuda`` without a number takes the first GPU that no other process of this package
    has taken on this machine (of those that CUDA_VISIBLE_DEVICES names), and the first
    of all if there are more jobs than GPUs.

    Raises
    ------
    InputError if a CUDA device is asked for that torch does not see.
    """
    # cuBLAS is deterministic only with a fixed workspace, which it reads when it
    # starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    _keep_memory()
    # The flag of torch.use_deterministic_algorithms, which tells the compiler, too: to
    # import that takes every job a second and a half. Who compiles tells it itself.
    torch.set_deterministic_debug_mode("error")
    # By default cuDNN, which computes GRU4Rec's layers, rounds to TF32 what the other
    # models compute in float32.
    torch.backends.cudnn.allow_tf32 = False
    asked = torch.device(device)
    if asked.type != "cuda":
        return device
    count = torch.cuda.device_count()
    if (asked.index or 0) >= count:
        raise InputError(
            f"device {device!r}: torch {torch.__version__} sees {count} CUDA devices; "
            "use device=cpu, or install a CUDA build of torch on a machine with a GPU"
        )
    return f"cuda:{_free_of(count)}" if device == "cuda" and count > 1 else device


def _keep_memory() -> None:
    """Have glibc keep what is freed for the next tensor of that size: memory new from
    the system is filled with zeros first, page by page.
    """
    allocator = ctypes.CDLL(None)
    if hasattr(allocator, "mallopt"):
        # The largest piece that may be kept (M_MMAP_THRESHOLD), and from when on
        # something is given back (M_TRIM_THRESHOLD).
        allocator.mallopt(-3, 32 << 20)
        allocator.mallopt(-1, 1 << 30)


def _free_of(count: int) -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace(",", " ").split()
    names = visible if len(visible) == count else [str(index) for index in range(count)]
    for index, name in enumerate(names):
        # Kept open as long as the lock is to hold.
        lock = (Path(tempfile.gettempdir()) / f"lastitem-{os.getuid()}-gpu-{name}.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        _taken.append(lock)
        return index
    return 0
