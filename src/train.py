"""Train one recommender on one split with one seed; early stopping on validation, the
best state kept.
"""

import argparse
import json
import math
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pandas import DataFrame
from tqdm import tqdm

from lastitem import __version__, device
from lastitem.arguments import (
    add_device,
    add_run,
    add_seen_filter,
    filters_seen,
    parser_of,
    run_of,
)
from lastitem.data.sequences import read_held_out, read_training
from lastitem.errors import InputError, run
from lastitem.files import read_json, read_parquet, write_aside
from lastitem.models.registry import build, save
from lastitem.models.settings import import_path
from lastitem.study.dependencies import files_of, imported_modules
from lastitem.study.runs import Stamp, made_with, write_csv
from lastitem.study.settings import TrainingSettings, checked
from lastitem.training.checkpoints import Checkpoint, key_of
from lastitem.training.loop import Round, epochs_left, train


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options of this script."""
    parser = parser_of(
        __doc__,
        add_run,
        add_seen_filter,
        add_device,
        train="training part (Parquet)",
        validation="validation part (Parquet)",
        items="item map (Parquet); its length is the size of the catalogue",
        study="hash of the settings behind this training, for the last columns of the curve",
        architecture="name of an architecture, or package.module:Class of your own",
        weights="output (safetensors)",
        description="output: architecture, settings, best validation step (JSON)",
        curve="output: loss and validation NDCG of each validation step (CSV)",
    )
    for name, of in (("settings", "architecture"), ("training", "training")):
        parser.add_argument(
            f"--{name}", type=json.loads, default={}, help=f"JSON: settings of the {of}"
        )
    parser.add_argument(
        "--choice",
        help="JSON written by choose.py: settings that override --settings; its own seed is not"
        " trained again",
    )
    parser.add_argument(
        "--state",
        help="state of an unfinished training, from which a killed one goes on; removed at the end",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, train, write the model and its learning curve."""
    arguments = parsed(argv)
    this = run_of(arguments)
    name = f"{this.dataset} {this.split} {this.model} seed={this.seed}"

    def say(text: str) -> None:
        tqdm.write(f"[{name}] {text}")
        # Into a pipe, as to the log, a line would otherwise wait until many are there.
        sys.stdout.flush()

    if arguments.choice:
        choice = read_json(arguments.choice)
        if choice["seed"] == this.seed:
            take_chosen(arguments, choice["point"])
            return say(f"taken from the grid: {choice['point']}")
        arguments.settings |= choice["settings"]
    place = device.configure(arguments.device, arguments.threads)
    torch.manual_seed(this.seed)
    settings = checked(TrainingSettings, arguments.training, "training")
    sequences, validation = read_training(arguments.train), read_held_out(arguments.validation)
    items = read_parquet(arguments.items).num_rows
    try:
        model = build(arguments.architecture, items, arguments.settings)
    except InputError as error:
        raise InputError(f"model_settings.{this.model}: {error}") from None
    description = {
        "architecture": arguments.architecture,
        "items": items,
        "settings": arguments.settings,
        "training": asdict(settings),
        "run": asdict(this),
    }
    facts = description | {
        "filter_seen": arguments.filter_seen,
        # Not which of several GPUs: a training may go on on another one.
        "device": place.split(":")[0],
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    code = [__file__, *imported_modules(__file__), *files_of(import_path(arguments.architecture))]
    data = [arguments.train, arguments.validation, arguments.items]
    checkpoint = Checkpoint(arguments.state, key_of([*data, *code], facts), say)
    with tqdm(total=settings.maximum_epochs, desc=name, unit="epoch", disable=None) as progress:
        curve = train(
            model,
            sequences,
            validation,
            settings,
            filter_seen=filters_seen(arguments),
            seed=this.seed,
            device=place,
            report=partial(report, settings, progress, say),
            checkpoint=checkpoint,
        )
    description["best"] = best_of(curve)
    description["versions"] = {"lastitem": __version__, "torch": torch.__version__}
    lines = DataFrame(curve, columns=[column.name for column in fields(Round)])
    stamp = Stamp(arguments.study, [this.seed], [made_with("trained", description["versions"])])
    write_csv(lines, arguments.curve, stamp, digits=None)
    save(model, description, arguments.weights, arguments.description)
    checkpoint.remove()


def best_of(curve: Sequence[Round]) -> dict[str, Any] | None:
    """The best validation step for JSON, which has no NaN: what is fitted has no
    loss.
    """
    best = next((asdict(line) for line in reversed(curve) if line.best), None)
    return best and best | {"loss": None if math.isnan(best["loss"]) else best["loss"]}


def report(
    settings: TrainingSettings,
    progress: tqdm,
    say: Callable[[str], None],
    curve: Sequence[Round],
    seconds: float,
) -> None:
    """Say after a validation step what it found, and how long training still takes."""
    line = curve[-1]
    if not line.epoch:
        ndcg = f"validation NDCG@{settings.validation_cutoff} {line.validation_ndcg:.4f}"
        return say(f"fitted without gradients, {seconds:.0f} s: {ndcg}")
    progress.update(line.epoch - progress.n)
    soonest, latest = (
        tqdm.format_interval(seconds / line.epoch * epochs)
        for epochs in epochs_left(curve, settings)
    )
    say(
        f"epoch {line.epoch}, {line.updates} updates, {seconds:.0f} s: loss {line.loss:.4f}, "
        f"validation NDCG@{settings.validation_cutoff} {line.validation_ndcg:.4f}"
        f"{' (best)' if line.best else ''}; left {soonest} without a better round, {latest} at"
        " most"
    )
    if line.best and line.epoch == settings.maximum_epochs:
        say(
            "warning: validation was best in the last round, so training was cut short; raise"
            f" maximum_epochs (now {settings.maximum_epochs})"
        )


def take_chosen(arguments: argparse.Namespace, point: str) -> None:
    """Copy the model that was trained at the chosen point of the grid
    with this seed.
    """
    folder = Path(arguments.choice).parent / "grid" / point / f"seed={arguments.seed}"
    for name, path in (
        ("model.safetensors", arguments.weights),
        ("model.json", arguments.description),
        ("learning_curve.csv", arguments.curve),
    ):
        with write_aside(path) as aside:
            shutil.copyfile(folder / name, aside)


if __name__ == "__main__":
    run(main)
