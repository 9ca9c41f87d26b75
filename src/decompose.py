"""Decompose every attention block by norms: mixing ratios of Attn, AttnRes and
AttnResLN, and maps of the newest positions.
"""

import argparse
from collections.abc import Sequence

from lastitem import device
from lastitem.arguments import add_files, add_trained_model, run_of
from lastitem.data.sequences import read_held_out
from lastitem.errors import run
from lastitem.evaluation.decomposition import SINGLE_ITEMS, decompose
from lastitem.evaluation.probing import NO_ATTENTION, attention_blocks
from lastitem.models.registry import load
from lastitem.study.runs import stack, write_run_table


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, decompose, write mixing ratios and maps."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_trained_model(parser)
    parser.add_argument(
        "--map-positions", required=True, type=int, help="newest positions shown in the maps"
    )
    add_files(
        parser,
        mixing="output: mean, median, sd per layer, part and positions (Parquet)",
        mixing_users="output: the ratios of each user (Parquet)",
        maps="output: averages over users per cell (Parquet)",
    )
    arguments = parser.parse_args(argv)

    this = run_of(arguments)
    place = device.configure(arguments.device, arguments.threads)
    model = load(arguments.weights, arguments.description)[0].to(place)
    if not attention_blocks(model):
        for path in (arguments.mixing, arguments.mixing_users, arguments.maps):
            write_run_table(path, this, {}, note=NO_ATTENTION)
        return
    found = decompose(
        model,
        read_held_out(arguments.test),
        map_positions=arguments.map_positions,
        device=place,
    )
    print(
        f"parts + left-out terms = output to {found.additivity_error:.1e} at every position of"
        " every block (tolerance 1e-4)"
    )
    print(
        f"{found.single_item_inputs:,} inputs with one item are left out; {len(found.user):,}"
        " are in"
    )
    if not len(found.user):
        for path in (arguments.mixing, arguments.mixing_users, arguments.maps):
            write_run_table(path, this, {}, note=SINGLE_ITEMS)
        return
    write_run_table(
        arguments.mixing,
        this,
        stack([found.summary() | {"single_item_inputs": found.single_item_inputs}]),
    )
    write_run_table(arguments.mixing_users, this, found.by_user())
    write_run_table(arguments.maps, this, found.maps())


if __name__ == "__main__":
    run(main)
