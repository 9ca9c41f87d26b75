"""What the diagnosis scripts have in common: a trained model, held-out cases, and where to compute."""

from __future__ import annotations

import argparse
import os

import torch

from lastitem.models.interface import SequenceModel
from lastitem.models.registry import load
from lastitem.runs import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the run, its trained model, and the device."""
    Run.add_arguments(parser)
    parser.add_argument("--weights", required=True, help="trained model (safetensors)")
    parser.add_argument("--description", required=True, help="its description (JSON)")
    parser.add_argument("--test", required=True, help="test part (Parquet)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, …")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="CPU threads")


def prepare(arguments: argparse.Namespace) -> SequenceModel:
    """Set threads and determinism, and load the model onto the device, ready to predict."""
    torch.set_num_threads(arguments.threads)
    torch.use_deterministic_algorithms(True)
    model, _ = load(arguments.weights, arguments.description)
    return model.to(arguments.device)
