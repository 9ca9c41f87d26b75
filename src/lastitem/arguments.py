"""What several scripts ask for on their command line."""

import argparse
import inspect
import json
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from lastitem.study.runs import Run


def parser_of(
    description: str | None, /, *groups: Callable[[argparse.ArgumentParser], None], **files: str
) -> argparse.ArgumentParser:
    """A parser with groups of options, :func:`add_run` and the like, and a required
    option for each file (:func:`add_files`).
    """
    parser = argparse.ArgumentParser(description=description)
    for add in groups:
        add(parser)
    add_files(parser, **files)
    return parser


def add_files(parser: argparse.ArgumentParser, nargs: str | None = None, **files: str) -> None:
    """Add a required option for each file, or for several (``nargs``); its help says
    what the file is.
    """
    for name, help_text in files.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, required=True, nargs=nargs, help=help_text)


def add_seen_filter(parser: argparse.ArgumentParser) -> None:
    """Add --filter-seen (:func:`filters_seen`)."""
    parser.add_argument(
        "--filter-seen",
        required=True,
        choices=("true", "false"),
        help="whether items of the history are left out of the lists",
    )


def filters_seen(arguments: argparse.Namespace) -> bool:
    """What --filter-seen says."""
    return arguments.filter_seen == "true"


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


def add_shuffles(parser: argparse.ArgumentParser) -> None:
    """Add --repeats and --shuffle-seed
    (:func:`lastitem.evaluation.interventions.intervention`).
    """
    parser.add_argument(
        "--repeats", required=True, type=int, help="draws of each intervention that draws"
    )
    parser.add_argument(
        "--shuffle-seed", type=int, default=0, help="with user and repeat decides what is drawn"
    )


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
    add_files(
        parser,
        weights="trained model (safetensors)",
        description="its description (JSON)",
        test="test part (Parquet)",
    )
    add_device(parser)


def add_shown(parser: argparse.ArgumentParser, module: ModuleType, endings: str) -> None:
    """Add what makes a table or figure is told: its function, what it shows, the study,
    and where to write.
    """
    parser.add_argument("function", type=function_in(module), help="its function")
    add_files(parser, "+", summaries="what it shows, in this order (Parquet)")
    parser.add_argument("--published", nargs="*", default=[], help="CSV of the paper's numbers")
    add_study(parser)
    add_files(parser, "+", out=f"outputs: {endings}, by their ending")


def function_in(module: ModuleType) -> Callable[[str], Callable[..., Any]]:
    """The type of an argument that names a public function of a module."""

    def named(name: str) -> Callable[..., Any]:
        function = vars(module).get(name)
        if name.startswith("_") or not inspect.isfunction(function):
            raise argparse.ArgumentTypeError(f"{module.__name__} has no function {name!r}")
        return function

    return named


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
