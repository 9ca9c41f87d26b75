"""Train one recommender on one split with one seed; early stopping on validation, the
best state kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import torch
from tqdm import tqdm

from lastitem import __version__, device
from lastitem.arguments import add_device, add_run, run_of
from lastitem.data.sequences import read_held_out, read_training
from lastitem.errors import run
from lastitem.files import read_json, read_parquet, write_aside
from lastitem.models.registry import ARCHITECTURES, build, save
from lastitem.study.dependencies import imported_modules
from lastitem.training.checkpoints import Checkpoint, key_of
from lastitem.training.loop import Round, TrainingSettings, epochs_left, train


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, train, write the model and its learning curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_run(parser)
    parser.add_argument("--train", required=True, help="training part (Parquet)")
    parser.add_argument("--validation", required=True, help="validation part (Parquet)")
    parser.add_argument(
        "--items", required=True, help="item map (Parquet); its length is the size of the catalogue"
    )
    parser.add_argument("--architecture", required=True, choices=list(ARCHITECTURES))
    parser.add_argument(
        "--settings", type=json.loads, default={}, help="JSON: settings of the architecture"
    )
    parser.add_argument(
        "--choice",
        help=(
            "JSON written by choose.py: settings that override --settings; its own seed is not"
            " trained again"
        ),
    )
    parser.add_argument(
        "--training", type=json.loads, default={}, help="JSON: settings of the training"
    )
    parser.add_argument(
        "--filter-seen", required=True, choices=("true", "false"), help="in the validation ranking"
    )
    add_device(parser)
    parser.add_argument(
        "--state",
        help="state of an unfinished training, from which a killed one goes on; removed at the end",
    )
    parser.add_argument("--weights", required=True, help="output (safetensors)")
    parser.add_argument(
        "--description", required=True, help="output: architecture, settings, best round (JSON)"
    )
    parser.add_argument(
        "--curve", required=True, help="output: loss and validation NDCG per round (CSV)"
    )
    arguments = parser.parse_args(argv)

    this = run_of(arguments)
    if arguments.choice:
        choice = read_json(arguments.choice)
        if choice["seed"] == this.seed:
            return take_chosen(arguments, choice["point"])
        arguments.settings |= choice["settings"]
    place = device.configure(arguments.device, arguments.threads)
    torch.manual_seed(this.seed)
    settings = TrainingSettings.from_mapping(arguments.training)
    sequences, validation = read_training(arguments.train), read_held_out(arguments.validation)
    items = read_parquet(arguments.items).num_rows
    model = build(arguments.architecture, items, arguments.settings)
    code = [__file__, *imported_modules(__file__)]
    data = [arguments.train, arguments.validation, arguments.items]
    facts = {
        "architecture": arguments.architecture,
        "settings": arguments.settings,
        "training": asdict(settings),
        "run": asdict(this),
        "filter_seen": arguments.filter_seen,
        # Not which of several GPUs: a training may go on on another one.
        "device": place.split(":")[0],
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    name = f"{this.dataset} {this.split} {this.model} seed={this.seed}"

    def say(text: str) -> None:
        tqdm.write(f"[{name}] {text}")
        # Into a pipe, as to the log, a line would otherwise wait until many are there.
        sys.stdout.flush()

    checkpoint = Checkpoint(arguments.state, key_of([*data, *code], facts), say)
    with tqdm(total=settings.maximum_epochs, desc=name, unit="epoch", disable=None) as progress:

        def report(curve: Sequence[Round], seconds: float) -> None:
            line = curve[-1]
            progress.update(line.epoch - progress.n)
            soonest, latest = (
                tqdm.format_interval(seconds / line.epoch * epochs)
                for epochs in epochs_left(curve, settings)
            )
            say(
                f"epoch {line.epoch}, {line.updates} updates, {seconds:.0f} s: loss"
                f" {line.loss:.4f}, validation NDCG@{settings.validation_cutoff}"
                f" {line.validation_ndcg:.4f}{' (best)' if line.best else ''}; left {soonest}"
                f" without a better round, {latest} at most"
            )

        curve = train(
            model,
            sequences,
            validation,
            settings,
            filter_seen=arguments.filter_seen == "true",
            seed=this.seed,
            device=place,
            report=report,
            checkpoint=checkpoint,
        )
    description = {
        "architecture": arguments.architecture,
        "items": items,
        "settings": arguments.settings,
        "training": asdict(settings),
        "run": asdict(this),
        "best": next((asdict(line) for line in reversed(curve) if line.best), None),
        "versions": {"lastitem": __version__, "torch": torch.__version__},
    }
    with write_aside(arguments.curve) as aside:
        columns = ["epoch", "updates", "loss", "validation_ndcg", "best"]
        pd.DataFrame([asdict(line) for line in curve], columns=columns).to_csv(aside, index=False)
    save(model, description, arguments.weights, arguments.description)
    checkpoint.remove()


def take_chosen(arguments: argparse.Namespace, point: str) -> None:
    """Copy the model that was trained at the chosen point of the grid
    with this seed.
    """
    folder = Path(arguments.choice).parent / "grid" / point / f"seed={arguments.seed}"
    for name, path in (
        ("model.safetensors", "weights"),
        ("model.json", "description"),
        ("learning_curve.csv", "curve"),
    ):
        with write_aside(vars(arguments)[path]) as aside:
            shutil.copyfile(folder / name, aside)
    print(
        f"[{arguments.dataset} {arguments.split} {arguments.model} seed={arguments.seed}] taken"
        f" from the grid: {point}"
    )


if __name__ == "__main__":
    run(main)
