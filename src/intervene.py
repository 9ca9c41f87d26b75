"""Rank the catalogue for every test case under each intervention: its items in another
order, fewer of them, or items of another user in their place.
"""

from collections.abc import Mapping, Sequence

from lastitem import device
from lastitem.arguments import (
    add_seen_filter,
    add_shuffles,
    add_trained_model,
    filters_seen,
    parser_of,
    run_of,
)
from lastitem.data.sequences import read_held_out
from lastitem.errors import run
from lastitem.evaluation.effects import Effect, effects, effects_table
from lastitem.evaluation.interventions import interventions
from lastitem.files import read_column
from lastitem.models.registry import load
from lastitem.study.interventions import ORDERED, known, ways
from lastitem.study.runs import write_run_table


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, rank under each intervention, write one row per case,
    intervention and repeat.
    """
    parser = parser_of(
        __doc__,
        add_trained_model,
        add_seen_filter,
        add_shuffles,
        users="user map (Parquet): code → original id",
        items="item map (Parquet): code → original id",
        out="output (Parquet)",
    )
    parser.add_argument(
        "--interventions", required=True, nargs="*", help="their names (docs/interventions.md)"
    )
    parser.add_argument("--cutoff", required=True, type=int, help="length of the lists compared")
    arguments = parser.parse_args(argv)

    place = device.configure(arguments.device, arguments.threads)
    model = load(arguments.weights, arguments.description)[0].to(place)
    cases = read_held_out(arguments.test)
    chosen = ways(arguments.interventions, arguments.repeats)
    found = effects(
        model,
        cases,
        interventions(chosen, cases, model.input_length, arguments.shuffle_seed),
        filter_seen=filters_seen(arguments),
        list_length=arguments.cutoff,
        device=place,
    )
    table = effects_table(
        found,
        cases,
        model.input_length,
        read_column(arguments.users, "user_id"),
        read_column(arguments.items, "item_id"),
    )
    say_what_is_left_out(found)
    write_run_table(arguments.out, run_of(arguments), table)


def say_what_is_left_out(found: Mapping[tuple[str, int], Effect]) -> None:
    """Count the cases that an intervention leaves out, and those whose input it makes
    shorter than it should.
    """
    whole = found[ORDERED, 0].length
    for (name, repeat), effect in found.items():
        out = int((effect.length == 0).sum())
        if out:
            print(f"{name}, repeat {repeat}: {out:,} of {len(whole):,} cases are out of it")
        short = int(((effect.length < whole) & (effect.length > 0)).sum())
        if short and known(name).fills:
            print(
                f"{name}, repeat {repeat}: {short:,} of {len(whole):,} inputs are shorter than the"
                " user's own, since all test users together have no more to give"
            )


if __name__ == "__main__":
    run(main)
