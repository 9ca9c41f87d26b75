"""What the diagnosis scripts have in common: a trained model, held-out cases, and where
to compute.
"""

from __future__ import annotations

import argparse

from lastitem import device
from lastitem.models.interface import SequenceModel
from lastitem.models.registry import load
from lastitem.study.runs import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the run, its trained model, and the device."""
    Run.add_arguments(parser)
    parser.add_argument("--weights", required=True, help="trained model (safetensors)")
    parser.add_argument("--description", required=True, help="its description (JSON)")
    parser.add_argument("--test", required=True, help="test part (Parquet)")
    device.add_arguments(parser)


def prepare(arguments: argparse.Namespace) -> SequenceModel:
    """Configure torch, put the device that was taken in place of the one asked for, and
    load the model onto it, ready to predict.
    """
    arguments.device = device.configure(arguments)
    model, _ = load(arguments.weights, arguments.description)
    return model.to(arguments.device)
