"""Decompose every attention block by norms: mixing ratios of Attn, AttnRes and AttnResLN, and maps of the newest positions."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from lastitem import diagnosis
from lastitem.decomposition import PARTS, decompose
from lastitem.errors import run
from lastitem.runs import Run, write_run_table
from lastitem.sequences import read_held_out

NO_ATTENTION = "no attention block"


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, decompose, write mixing ratios and maps."""
    parser = argparse.ArgumentParser(description=__doc__)
    diagnosis.add_arguments(parser)
    parser.add_argument("--map-positions", required=True, type=int, help="newest positions shown in the maps")
    parser.add_argument("--mixing", required=True, help="output: mean, median, sd per layer, part and positions (Parquet)")
    parser.add_argument("--mixing-users", required=True, help="output: the ratios of each user (Parquet)")
    parser.add_argument("--maps", required=True, help="output: averages over users per cell (Parquet)")
    arguments = parser.parse_args(argv)

    this = Run.from_arguments(arguments)
    model = diagnosis.prepare(arguments)
    if not model.has_attention:
        for path in (arguments.mixing, arguments.mixing_users, arguments.maps):
            write_run_table(path, this, {}, note=NO_ATTENTION)
        return
    found = decompose(model, read_held_out(arguments.test), map_positions=arguments.map_positions, device=arguments.device)
    print(f"parts + left-out terms = output to {found.additivity_error:.1e} on the first batch (tolerance 1e-4)")
    print(f"{found.single_item_inputs:,} inputs with one item are left out; {len(found.user):,} are in")
    if not len(found.user):
        for path in (arguments.mixing, arguments.mixing_users, arguments.maps):
            write_run_table(path, this, {}, note="every input has one item")
        return
    layers = found.latest.shape[1]

    rows = []
    for layer in range(layers):
        for number, part in enumerate(PARTS):
            for positions, ratio in (("latest", found.latest), ("all", found.every)):
                value = ratio[:, layer, number].astype(np.float64)
                value = value[~np.isnan(value)]
                rows.append((layer + 1, part, positions, value.mean(), np.median(value), value.std(), len(value)))
    names = ("layer", "part", "positions", "mean", "median", "sd", "n")
    columns = {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    write_run_table(arguments.mixing, this, {**columns, "single_item_inputs": [found.single_item_inputs] * len(rows)})

    shape = found.latest.shape
    columns_by_user = {
        "user": np.repeat(found.user, layers * len(PARTS)),
        "layer": np.broadcast_to(np.arange(1, layers + 1)[None, :, None], shape).ravel(),
        "part": np.broadcast_to(np.array(PARTS)[None, None, :], shape).ravel(),
        "latest": found.latest.ravel(),
        "position_sum": found.position_sum.ravel(),
        "position_count": np.repeat(found.position_count, layers * len(PARTS)),
    }
    write_run_table(arguments.mixing_users, this, columns_by_user)

    size = arguments.map_positions
    layer, query, source = (axis.ravel() for axis in np.indices((layers, size, size)))
    maps = {
        "layer": layer + 1,
        "query": query - size + 1,
        "source": source - size + 1,
        "attention": found.attention_map.ravel(),
        "norm": found.norm_map.ravel(),
        "n": np.broadcast_to(found.map_count, (layers, size, size)).ravel(),
    }
    write_run_table(arguments.maps, this, maps)


if __name__ == "__main__":
    run(main)
