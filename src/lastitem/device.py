"""Where and how torch computes: threads, determinism, and a clear word if the device is not there."""

from __future__ import annotations

import argparse
import os

import torch

from lastitem.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --device and --threads."""
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, …")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="CPU threads")


def configure(arguments: argparse.Namespace) -> str:
    """Set the number of threads, ask for deterministic algorithms, and return the device.

    Raises
    ------
    InputError if a CUDA device is asked for that torch does not see.
    """
    # cuBLAS is deterministic only with a fixed workspace, which it reads when it starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(arguments.threads)
    torch.use_deterministic_algorithms(True)
    device = torch.device(arguments.device)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device {arguments.device!r}: torch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices; "
            "use device=cpu, or install a CUDA build of torch on a machine with a GPU"
        )
    return str(device)
