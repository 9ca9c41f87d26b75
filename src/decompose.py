"""Decompose every attention block by norms: mixing ratios of Attn, AttnRes and
AttnResLN, and maps of the newest positions.
"""

from collections.abc import Sequence
from typing import Any

from lastitem import device
from lastitem.arguments import add_trained_model, parser_of, run_of
from lastitem.data.sequences import read_held_out
from lastitem.errors import run
from lastitem.evaluation.decomposition import SINGLE_ITEMS, decompose
from lastitem.evaluation.probing import NO_ATTENTION, attention_blocks
from lastitem.models.registry import load
from lastitem.study.runs import stack, write_run_table


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, decompose, write mixing ratios and maps."""
    parser = parser_of(
        __doc__,
        add_trained_model,
        mixing="output: mean, median, sd per layer, part and positions (Parquet)",
        mixing_users="output: the ratios of each user (Parquet)",
        maps="output: averages over users per cell (Parquet)",
    )
    parser.add_argument(
        "--map-positions", required=True, type=int, help="newest positions shown in the maps"
    )
    arguments = parser.parse_args(argv)

    this = run_of(arguments)
    place = device.configure(arguments.device, arguments.threads)
    model = load(arguments.weights, arguments.description)[0].to(place)
    tables: list[dict[str, Any]] = [{}, {}, {}]
    note = NO_ATTENTION
    if attention_blocks(model):
        cases = read_held_out(arguments.test)
        found = decompose(model, cases, map_positions=arguments.map_positions, device=place)
        single = {"single_item_inputs": found.single_item_inputs}
        print(
            f"parts + left-out terms = output to {found.additivity_error:.1e} at every position of"
            " every block (tolerance 1e-4)"
        )
        print(
            f"{found.single_item_inputs:,} inputs with one item are left out; {len(found.user):,}"
            " are in"
        )
        note = SINGLE_ITEMS
        if len(found.user):
            note, tables = "", [stack([found.summary() | single]), found.by_user(), found.maps()]
    paths = (arguments.mixing, arguments.mixing_users, arguments.maps)
    for path, table in zip(paths, tables, strict=True):
        write_run_table(path, this, table, note)


if __name__ == "__main__":
    run(main)
