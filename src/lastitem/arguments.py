"""What several scripts ask for on their command line."""

from __future__ import annotations

import argparse
import json
import os

from lastitem.study.runs import Run


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the four options that name a run (:func:`run_of`)."""
    group = parser.add_argument_group("the run, as it will be named in tables and figures")
    group.add_argument("--dataset", required=True)
    group.add_argument("--split", required=True)
    group.add_argument("--model", required=True, help="the model's name in the config")
    group.add_argument("--seed", required=True, type=int)


def run_of(arguments: argparse.Namespace) -> Run:
    """The run that the parsed options name."""
    return Run(arguments.dataset, arguments.split, arguments.model, arguments.seed)


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add --device and --threads (:func:`lastitem.device.configure`)."""
    parser.add_argument(
        "--device",
        default="cpu",
        help="cpu, cuda (of several GPUs one that no other job here has), cuda:1, …",
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="CPU threads")


def add_trained_model(parser: argparse.ArgumentParser) -> None:
    """Add what every diagnosis is told: the run, its trained model, the test part, and
    where to compute.
    """
    add_run(parser)
    parser.add_argument("--weights", required=True, help="trained model (safetensors)")
    parser.add_argument("--description", required=True, help="its description (JSON)")
    parser.add_argument("--test", required=True, help="test part (Parquet)")
    add_device(parser)


def add_study(parser: argparse.ArgumentParser) -> None:
    """Add what is told of the study to what makes a summary, table, figure or page:
    --settings, --study and --studies.
    """
    parser.add_argument(
        "--settings", type=json.loads, default={}, help="JSON: settings of the function"
    )
    parser.add_argument(
        "--study", default="", help="hash of the settings that the output stands on"
    )
    parser.add_argument(
        "--studies",
        type=json.loads,
        default={},
        help="JSON: name → that of each file it is made of; one of another study is refused",
    )
