"""Scale the attention residual at inference, λ = 0 … 1: ranks, last-item ranks,
shuffles, recovery and mixing for each λ.
"""

from collections.abc import Sequence

from tqdm import tqdm

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
from lastitem.errors import InputError, run
from lastitem.evaluation.decomposition import SINGLE_ITEMS
from lastitem.evaluation.probing import NO_ATTENTION, attention_blocks
from lastitem.evaluation.rescaling import rank_scaled
from lastitem.models.registry import load
from lastitem.study.interventions import ORDERED, ways
from lastitem.study.runs import stack, write_run_table


def main(argv: Sequence[str] | None = None) -> None:
    """Parse arguments, sweep λ over validation and test, write ranks and
    mixing ratios.
    """
    parser = parser_of(
        __doc__,
        add_trained_model,
        add_seen_filter,
        add_shuffles,
        validation="validation part (Parquet): λ is chosen on it",
        ranks="output: a row per part, λ, order, repeat and case (Parquet)",
        mixing="output: mixing ratios of each user by λ (Parquet)",
    )
    parser.add_argument("--scales", required=True, nargs="+", help="the grid of λ; holds 1")
    arguments = parser.parse_args(argv)

    this = run_of(arguments)
    place = device.configure(arguments.device, arguments.threads)
    model = load(arguments.weights, arguments.description)[0].to(place)
    if not attention_blocks(model):
        for path in (arguments.ranks, arguments.mixing):
            write_run_table(path, this, {}, note=NO_ATTENTION)
        return

    cases = {part: read_held_out(getattr(arguments, part)) for part in ("validation", "test")}
    scales = [float(scale) for scale in arguments.scales]
    if 1.0 not in scales:
        raise InputError(
            f"--scales {' '.join(arguments.scales)}: must hold 1, the model as trained, against"
            " which the others are compared"
        )
    rankings = [("validation", scale, ORDERED, 0) for scale in scales]
    of_test = ways(["partial", "full"], arguments.repeats)
    rankings += [("test", scale, *way) for scale in scales for way in of_test]
    ranks, mixing = [], []
    for part, scale, order, repeat in tqdm(rankings, desc="rank", unit="ranking", disable=None):
        ranked, ratios = rank_scaled(
            model,
            cases[part],
            residual_scale=scale,
            order=order,
            repeat=repeat,
            shuffle_seed=arguments.shuffle_seed,
            filter_seen=filters_seen(arguments),
            mixing=(part, order) == ("test", ORDERED),
            device=place,
        )
        ranks.append({"part": part} | ranked)
        if ratios:
            mixing.append(ratios)
    write_run_table(arguments.ranks, this, stack(ranks))
    print(
        "parts + left-out terms = output at the read-out of every block, for each λ (tolerance"
        " 1e-4)"
    )
    write_run_table(
        arguments.mixing, this, stack(mixing), note="" if len(mixing[0]["user"]) else SINGLE_ITEMS
    )


if __name__ == "__main__":
    run(main)
