"""Recoverable users, recovery, and the choice of λ.

That an input is not longer than the offset is said by a rank of 0, an integer, so no
column has a NaN.
"""

import numpy as np
import pytest
import torch

import rescale as script
from lastitem.data.sequences import HeldOut, read_held_out
from lastitem.errors import InputError
from lastitem.evaluation.interventions import intervention
from lastitem.evaluation.ranking import rank
from lastitem.evaluation.recovery import (
    READOUT_OFFSETS,
    best_scale,
    choose_scale,
    hits,
    recoverable,
    recovery,
)
from lastitem.models.registry import build, save
from lastitem.report.summaries import recovery_curves
from lastitem.study.runs import read_run_tables
from tests import literal

ITEMS = 30


def ranks(*rows):
    return np.array(rows, dtype=np.int32)


def test_hits():
    """Rank 0 is "not in the list" and never a hit, however large K."""
    assert hits(ranks(0, 1, 10, 11, 100), 10).tolist() == [False, True, True, False, False]
    assert hits(ranks(0, 1, 10, 11, 100), 1000).tolist() == [False, True, True, True, True]


def test_recoverable_by_hand():
    """Missed at L and hit at one of L−1, L−2, L−3."""
    found = recoverable(
        ranks(
            [11, 10, 50, 50],  # hit one back
            [11, 50, 50, 3],  # hit three back
            [10, 1, 1, 1],  # not missed
            [11, 11, 12, 13],  # hit nowhere
            [0, 5, 0, 0],  # the seen filter took the target at L: a miss, hit one back
            [0, 0, 0, 0],
        ),
        10,
    )
    assert found.tolist() == [True, True, False, False, True, False]


def test_offsets_that_do_not_exist_are_misses():
    """Inputs of 1, 2, 3 and 4 items: a rank of 0 stands where the input is not longer
    than the offset.
    """
    assert recoverable(
        ranks([20, 0, 0, 0], [20, 2, 0, 0], [20, 20, 2, 0], [20, 20, 20, 2]), 10
    ).tolist() == [False, True, True, True]
    assert (
        recoverable(ranks([20, 0, 0, 0], [20, 20, 0, 0], [20, 20, 20, 0]), 10).tolist()
        == [False] * 3
    )


def model_of(architecture="sasrec", **settings):
    torch.manual_seed(0)
    settings = {"hidden_size": 8, "maximum_length": 20, **settings}
    model = build(architecture, ITEMS, settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return model.eval(), {"architecture": architecture, "items": ITEMS, "settings": settings}


def cases_of(lengths, seed=0):
    generator = np.random.default_rng(seed)
    lengths = np.array(lengths)
    ends = np.cumsum(lengths)
    return HeldOut(
        generator.integers(1, ITEMS + 1, size=ends[-1]).astype(np.int32),
        ends - lengths,
        ends,
        np.arange(len(lengths), dtype=np.int32),
        generator.integers(1, ITEMS + 1, size=len(lengths)).astype(np.int32),
        np.zeros(len(lengths), dtype=bool),
    )


@pytest.mark.parametrize("architecture", ["sasrec", "gru4rec", "duorec"])
def test_moving_the_readout_back_reads_the_positions_before(architecture):
    """One forward pass gives them all; nothing where nothing is left."""
    model, _ = model_of(architecture)
    lengths = [1, 2, 3, 4, 5, 12, 20] * 4
    cases = cases_of(lengths)
    found = rank(model, cases, filter_seen=False, offsets=READOUT_OFFSETS).target
    for offset in READOUT_OFFSETS:
        for number, length in enumerate(lengths):
            if length <= offset:
                assert found[number, offset] == 0
                continue
            history = cases.items[cases.start[number] : cases.end[number]].tolist()
            assert found[number, offset] == literal.rank_in(
                literal.ranking(literal.scores(model, history, offset)), cases.target[number]
            )
    assert READOUT_OFFSETS == (0, 1, 2, 3)


def test_recovery_by_hand():
    """Four of R, two of them hit under λ; hits outside R do not count."""
    member = np.array([True, True, True, True, False, False])
    assert recovery(member, ranks(1, 10, 11, 0, 1, 1), 10) == 0.5
    assert recovery(member, ranks(11, 11, 11, 11, 1, 1), 10) == 0.0
    assert recovery(np.zeros(6, dtype=bool), ranks(1, 1, 1, 1, 1, 1), 10) == 0.0


def test_choice_takes_the_largest_recovery_that_keeps_the_hit_rate():
    """HR(1) 0.5 and ε 0.1 leave those of at least 0.45; the best recovery, at λ 0.2,
    costs too much.
    """
    hit_rate = {0.2: 0.40, 0.5: 0.45, 0.8: 0.48, 1.0: 0.50}
    recovered = {0.2: 0.9, 0.5: 0.6, 0.8: 0.3, 1.0: 0.0}
    choice = choose_scale(hit_rate, recovered, 0.1, members=10)
    assert (choice.scale, choice.feasible) == (0.5, [0.5, 0.8, 1.0])
    assert choose_scale(hit_rate, recovered, 0.05, members=10).scale == 0.8
    assert choose_scale(hit_rate, recovered, 0.0, members=10).scale == 1.0
    assert choose_scale(hit_rate, recovered, 0.2, members=10).scale == 0.2


def test_a_hit_rate_exactly_at_the_floor_is_feasible():
    """9 of 10 hits at ε = 0.1, 95 of 100 at 0.05 and so on: rounding in (1 − ε)·HR(1)
    must rule out none, λ = 1 itself least.
    """
    below_in_floating_point = 0
    for users in (10, 100, 193, 943):
        for tolerance, numerator, denominator in (
            (0.0, 1, 1),
            (0.005, 199, 200),
            (0.01, 99, 100),
            (0.05, 19, 20),
            (0.1, 9, 10),
        ):
            for hit in range(denominator, users + 1, denominator):
                kept = hit * numerator // denominator
                hit_rate = {
                    0.5: hit / users,
                    0.7: kept / users,
                    0.9: (kept - 1) / users,
                    1.0: hit / users,
                }
                feasible = choose_scale(
                    hit_rate, dict.fromkeys(hit_rate, 0.1), tolerance, members=3
                ).feasible
                assert feasible == [0.5, 0.7, 1.0]
                below_in_floating_point += kept / users < (1 - tolerance) * (hit / users)
    assert below_in_floating_point > 10, "the cases must hold some that plain arithmetic gets wrong"


def test_ties_go_to_the_scale_nearest_one():
    """Whatever the order of the grid; of two equally near the smaller."""
    for scales in ([0.0, 0.4, 0.7, 1.0], [1.0, 0.7, 0.4, 0.0]):
        flat = dict.fromkeys(scales, 0.5)
        assert (
            choose_scale(flat, {0.0: 0.2, 0.4: 0.8, 0.7: 0.8, 1.0: 0.1}, 0.01, members=5).scale
            == 0.7
        )
        assert choose_scale(flat, dict.fromkeys(scales, 0.4), 0.01, members=5).scale == 1.0
    around = {0.9: 0.8, 1.1: 0.8, 1.0: 0.0}
    assert choose_scale(dict.fromkeys(around, 0.5), around, 0.01, members=5).scale == 0.9


def test_nothing_recoverable_leaves_the_model_as_it_is():
    """An empty R: every recovery is 0, and the choice is 1, not the smallest feasible λ
    — even if the values say otherwise.
    """
    scales = [round(0.1 * step, 1) for step in range(11)]
    flat = dict.fromkeys(scales, 0.5)
    assert choose_scale(flat, dict.fromkeys(scales, 0.0), 0.01, members=0).scale == 1.0
    assert choose_scale(flat, {scale: 1 - scale for scale in scales}, 0.01, members=0).scale == 1.0


def test_a_model_that_hits_nothing_is_no_obstacle():
    """HR(1) = 0 makes every λ feasible."""
    assert (
        choose_scale(
            {0.0: 0.0, 0.5: 0.1, 1.0: 0.0}, {0.0: 0.0, 0.5: 0.4, 1.0: 0.0}, 0.01, members=5
        ).scale
        == 0.5
    )


def test_best_scale():
    assert best_scale({0.0: 0.3, 0.5: 0.3, 0.9: 0.1}) == 0.5
    assert best_scale({0.5: 0.2, 0.9: 0.1}) == 0.5
    assert best_scale({0.6: 0.5, 1.4: 0.5}) == 0.6, "as near 1, though not in binary"


# The script


SCALES = ["0.0", "0.5", "1.0"]


def run_script(
    folder,
    architecture="sasrec",
    filter_seen="false",
    scales=SCALES,
    events=(3, 4, 5, 6, 9, 14, 25, 32),
):
    """By default eight users, inputs of 1 to 31 items: validation asks for the last but
    one event, where it has one before it, test for the last.
    """
    model, description = model_of(architecture)
    save(model, description, folder / "model.safetensors", folder / "model.json")
    events = np.array(events)
    offsets = np.concatenate(([0], np.cumsum(events)))
    items = np.random.default_rng(5).integers(1, ITEMS + 1, size=offsets[-1]).astype(np.int32)
    times, users = np.arange(len(items), dtype=np.int64), np.arange(len(events))
    literal.write_part(
        folder / "validation.parquet",
        items,
        times,
        offsets,
        np.maximum(events - 1, 2),
        (users, np.maximum(events - 2, 1)),
    )
    literal.write_part(folder / "test.parquet", items, times, offsets, events, (users, events - 1))
    values = {
        "dataset": "d",
        "split": "loo",
        "model": "m",
        "seed": 1,
        "weights": folder / "model.safetensors",
        "description": folder / "model.json",
        "validation": folder / "validation.parquet",
        "test": folder / "test.parquet",
        "device": "cpu",
        "threads": 1,
        "filter-seen": filter_seen,
        "repeats": 2,
        "shuffle-seed": 7,
        "ranks": folder / "rescale.parquet",
        "mixing": folder / "rescale_mixing.parquet",
    }
    arguments = [str(part) for name, value in values.items() for part in (f"--{name}", value)]
    script.main([*arguments, "--scales", *scales])
    return (
        model,
        read_run_tables([folder / "rescale.parquet"]).rows,
        read_run_tables([folder / "rescale_mixing.parquet"]).rows,
    )


def test_a_grid_without_the_model_as_trained_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"--scales 0\.0 0\.5: must hold 1"):
        run_script(tmp_path, scales=("0.0", "0.5"))


@pytest.mark.parametrize("filter_seen", ["true", "false"])
def test_scale_one_in_the_table_is_the_plain_model(tmp_path, filter_seen):
    """Every rank of the λ = 1 rows equals that of a call without any scale."""
    model, table, _ = run_script(tmp_path, filter_seen=filter_seen)
    for part in ("validation", "test"):
        plain = rank(
            model,
            read_held_out(tmp_path / f"{part}.parquet"),
            filter_seen=filter_seen == "true",
            offsets=READOUT_OFFSETS,
        )
        rows = table[
            (table["part"] == part)
            & (table["residual_scale"] == 1.0)
            & (table["order"] == "ordered")
        ].sort_values("case")
        assert rows["target_rank"].tolist() == plain.target[:, 0].tolist()
        assert rows["last_rank"].tolist() == plain.last.tolist()
        assert rows["last_but_one_rank"].tolist() == plain.last_but_one.tolist()
        for offset in (1, 2, 3):
            assert rows[f"target_rank_back_{offset}"].tolist() == plain.target[:, offset].tolist()


def test_the_table_holds_every_condition_once(tmp_path):
    """Validation only in order; test in order, and each kind of shuffle as often as
    asked.
    """
    _, table, _ = run_script(tmp_path)
    count = table.groupby(["part", "residual_scale", "order", "repeat"]).size()
    expected = {("validation", float(scale), "ordered", 0): 8 for scale in SCALES}
    for scale in map(float, SCALES):
        expected |= {("test", scale, "ordered", 0): 8}
        expected |= {
            ("test", scale, order, repeat): 8 for order in ("partial", "full") for repeat in (0, 1)
        }
    assert count.to_dict() == expected


def test_other_scales_and_shuffles_are_what_they_say(tmp_path):
    model, table, _ = run_script(tmp_path)
    cases = read_held_out(tmp_path / "test.parquet")
    for scale in (0.0, 0.5):
        for order, repeat in (("ordered", 0), ("partial", 1), ("full", 0)):
            expected = rank(
                model,
                cases,
                filter_seen=False,
                residual_scale=scale,
                change=intervention(order, cases, 99, seed=7, repeat=repeat),
            ).target[:, 0]
            chosen = (
                (table["residual_scale"] == scale)
                & (table["order"] == order)
                & (table["repeat"] == repeat)
            )
            rows = table[chosen & (table["part"] == "test")].sort_values("case")
            assert rows["target_rank"].tolist() == expected.tolist()


def test_the_recoverable_set_is_fixed_at_one(tmp_path):
    """Moved-back ranks stand in the ordered λ = 1 rows only; elsewhere −1 says that
    they were not computed.
    """
    _, table, _ = run_script(tmp_path)
    computed = (table["residual_scale"] == 1.0) & (table["order"] == "ordered")
    back = table[["target_rank_back_1", "target_rank_back_2", "target_rank_back_3"]]
    assert bool((back[computed] >= 0).all().all())
    assert bool((back[~computed] == -1).all().all())
    curves = recovery_curves(table, 10)
    assert (curves.groupby("part")["recoverable"].nunique() == 1).all()
    assert curves.loc[curves["residual_scale"] == 1.0, "recovery"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("architecture", ["bert4rec", "bsarec"])
def test_a_model_without_earlier_predictions_has_none_to_go_back_to(tmp_path, architecture):
    """Recovery is empty for it, not zero; everything else is there."""
    _, table, mixing = run_script(tmp_path, architecture=architecture)
    assert bool((table["target_rank_back_1"] == -1).all())
    curves = recovery_curves(table, 10)
    assert curves[["recoverable", "recovered", "recovery"]].isna().all().all()
    assert curves["hit_rate"].notna().all()
    assert not mixing.empty


def test_mixing_of_each_scale(tmp_path):
    """Users with one input item are out; λ = 0 takes the residual away, so Attn and
    AttnRes agree there and only there.
    """
    _, _, mixing = run_script(tmp_path)
    assert sorted(mixing["residual_scale"].unique()) == [0.0, 0.5, 1.0]
    assert len(mixing) == 3 * 8 * 2 * 3
    wide = mixing.pivot(index=["residual_scale", "user", "layer"], columns="part", values="latest")
    assert (wide.loc[0.0, "Attn"] == wide.loc[0.0, "AttnRes"]).all()
    first = wide.xs(1, level="layer")
    assert (first.loc[1.0, "AttnRes"] < first.loc[0.5, "AttnRes"]).mean() > 0.5


def test_a_model_without_attention_gets_a_note(tmp_path):
    _, table, mixing = run_script(tmp_path, architecture="gru4rec")
    for each, name in ((table, "rescale"), (mixing, "rescale_mixing")):
        assert each.empty
        missing = read_run_tables([tmp_path / f"{name}.parquet"]).missing
        assert missing == [("d", "loo", "m", 1, "no attention block")]


def test_inputs_of_one_item_have_nothing_to_mix_in(tmp_path):
    """Every rank is there; the file of the ratios has no row and says why."""
    _, table, mixing = run_script(tmp_path, events=(2, 2, 2))
    assert len(table[(table["part"] == "test") & (table["order"] == "ordered")]) == 3 * len(SCALES)
    assert mixing.empty
    missing = read_run_tables([tmp_path / "rescale_mixing.parquet"]).missing
    assert [entry[4] for entry in missing] == ["every input has one item"]
