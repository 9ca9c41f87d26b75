"""The p-core: filter, order, ties, codes, statistics, and the script that writes it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import core_filter as core_filter_script
from lastitem.data import core as core_module
from lastitem.data.core import core_filter, statistics, write_core
from lastitem.data.interactions import read_interactions
from lastitem.errors import InputError
from lastitem.evaluation.ranking import rank
from lastitem.models.registry import build
from tests import literal

SOURCE = Path(__file__).resolve().parents[2] / "src"

START = 1_000_000_000


def sequences(core) -> dict[str, list[tuple[str, int]]]:
    """A core with original ids: user → [(item, time), …]."""
    users, items = core.user_ids.to_pylist(), core.item_ids.to_pylist()
    found: dict[str, list[tuple[str, int]]] = {}
    for user, item, time in zip(core.user, core.item, core.timestamp.tolist(), strict=True):
        found.setdefault(users[user], []).append((items[item - 1], time))
    return found


def core_of(
    tmp_path: Path, rows: list[tuple], minimum_events: int, ties: str = "file", seed: int = 0
):
    """The core of rows, by way of a real file."""
    log = read_interactions(literal.write_log(tmp_path / "log.csv", rows), literal.FORM)
    return core_filter(log, minimum_events=minimum_events, ties=ties, seed=seed)


def random_rows(generator: np.random.Generator) -> list[tuple[str, str, int]]:
    """A small random log with many ties and repeats; ids are whole numbers, or text."""
    users, items, count = (
        generator.integers(2, 30),
        generator.integers(2, 30),
        int(generator.integers(40, 160)),
    )
    user_prefix, item_prefix = generator.choice(["", "u", "é"]), generator.choice(["", "Z", "0"])
    # Squares make few users and items frequent and many rare, so that the filter has
    # work to do.
    drawn_users, drawn_items = (
        (users * generator.random(count) ** 2).astype(int),
        (items * generator.random(count) ** 2).astype(int),
    )
    days = generator.integers(0, generator.integers(1, 30), count)
    return [
        (f"{user_prefix}{user}", f"{item_prefix}{item}", START + 86_400 * int(day))
        for user, item, day in zip(drawn_users, drawn_items, days, strict=True)
    ]


def script_arguments(folder: Path, log: Path, minimum_events: int = 5, **more: str) -> list[str]:
    """Arguments of core_filter.py, outputs into ``folder``."""
    provenance = folder / "provenance.json"
    provenance.write_text(json.dumps({"source": "own", "address": "toy.csv"}), encoding="utf-8")
    named = {
        "dataset": "toy",
        "log": log,
        "provenance": provenance,
        "sources": json.dumps({"own": {"form": literal.FORM}}),
        "minimum-events": minimum_events,
        "ties": "file",
        "interactions": folder / "interactions.parquet",
        "users": folder / "users.parquet",
        "items": folder / "items.parquet",
        "statistics": folder / "statistics.json",
        **more,
    }
    return [str(part) for name, value in named.items() for part in (f"--{name}", value)]


class TestCore:
    @pytest.mark.parametrize("ties", ["file", "item"])
    def test_equals_the_literal_filter_on_random_logs(self, tmp_path, ties):
        generator = np.random.default_rng(11)
        survived, several_rounds = 0, 0
        for _ in range(150):
            rows, minimum = random_rows(generator), int(generator.integers(1, 6))
            expected = literal.core(rows, minimum, ties)
            if not expected:
                with pytest.raises(InputError, match=f"{minimum}-core is empty"):
                    core_of(tmp_path, rows, minimum, ties)
                continue
            core = core_of(tmp_path, rows, minimum, ties)
            assert sequences(core) == expected
            assert core.user_ids.to_pylist() == [
                user
                for user in literal.sorted_by_id(user for user, _, _ in rows)
                if user in expected
            ]
            kept = {item for events in expected.values() for item, _ in events}
            assert core.item_ids.to_pylist() == [
                item for item in literal.sorted_by_id(item for _, item, _ in rows) if item in kept
            ]
            assert len(rows) - sum(sum(removed.values()) for removed in core.rounds) == len(
                core.user
            )
            survived, several_rounds = survived + 1, several_rounds + (len(core.rounds) > 2)
        assert survived > 60
        assert several_rounds > 15

    def test_fixed_point_five_core_of_a_larger_log(self, tmp_path):
        """No user and no item with fewer than five events is left, and no consecutive
        repeat.
        """
        generator = np.random.default_rng(5)
        users, items = (
            (generator.zipf(1.4, 4000) % 400).tolist(),
            (generator.zipf(1.3, 4000) % 300).tolist(),
        )
        rows = [
            (str(user), str(item), START + k // 3)
            for k, (user, item) in enumerate(zip(users, items, strict=True))
        ]
        core = core_of(tmp_path, rows, 5)
        assert np.bincount(core.user).min() >= 5
        assert np.bincount(core.item)[1:].min() >= 5
        assert not ((core.user[1:] == core.user[:-1]) & (core.item[1:] == core.item[:-1])).any()
        assert (np.diff(core.timestamp)[core.user[1:] == core.user[:-1]] >= 0).all()
        assert len(core.rounds) > 2

    def test_a_chain_falls_link_by_link(self, tmp_path):
        """c4 has one event; dropping it drops u3, then c3, then u2, …; one pass would
        keep most of the chain.
        """
        square = [
            (user, item, START + k) for user in ("A", "B") for k, item in enumerate(("x", "y"))
        ]
        chain = [(f"u{k}", f"c{k + step}", START + step) for k in range(4) for step in range(2)]
        chain.append(("A", "c0", START + 9))
        core = core_of(tmp_path, square + chain, 2)
        assert sequences(core) == {
            "A": [("x", START), ("y", START + 1)],
            "B": [("x", START), ("y", START + 1)],
        }
        assert len(core.rounds) >= 5

    def test_dropping_an_item_makes_a_repeat_that_must_go_too(self, tmp_path):
        """A: a, rare, a becomes a, a; without the second removal of repeats A would
        keep two events.
        """
        rows = [
            ("A", "a", 1),
            ("A", "rare", 2),
            ("A", "a", 3),
            ("B", "a", 1),
            ("B", "b", 2),
            ("C", "a", 1),
            ("C", "b", 2),
        ]
        core = core_of(tmp_path, [(user, item, START + time) for user, item, time in rows], 2)
        assert sequences(core) == {
            user: [("a", START + 1), ("b", START + 2)] for user in ("B", "C")
        }

    def test_an_empty_core_ends_the_script_with_one_line_and_no_output(self, tmp_path):
        rows = [(user, item, START + item) for user in range(10) for item in range(3)]
        log = literal.write_log(tmp_path / "log.csv", rows)
        done = subprocess.run(
            [sys.executable, str(SOURCE / "core_filter.py"), *script_arguments(tmp_path, log)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert (
            "toy, source 'own' (toy.csv): the 5-core is empty: of 10 users and 3 items in 30"
            " interactions" in done.stderr
        )
        assert "Traceback" not in done.stderr
        assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv", "provenance.json"]

    def test_a_repeat_across_two_users_is_none(self, tmp_path):
        rows = [
            ("1", "a", START),
            ("1", "b", START + 1),
            ("2", "b", START + 2),
            ("2", "a", START + 3),
        ]
        core = core_of(tmp_path, rows, 2)
        assert sequences(core) == {
            "1": [("a", START), ("b", START + 1)],
            "2": [("b", START + 2), ("a", START + 3)],
        }
        assert core.rounds == [{"repeats": 0, "events_of_rare_users": 0, "events_of_rare_items": 0}]

    def test_duplicate_rows_go_only_where_they_are_adjacent(self, tmp_path):
        rows = [
            ("1", "a", START),
            ("1", "a", START),
            ("1", "b", START),
            ("1", "a", START),
            ("1", "a", START + 1),
        ]
        assert sequences(core_of(tmp_path, rows, 1)) == {
            "1": [("a", START), ("b", START), ("a", START)]
        }
        # By item id the three equal rows come together.
        assert sequences(core_of(tmp_path, rows, 1, ties="item")) == {
            "1": [("a", START), ("b", START), ("a", START + 1)]
        }

    def test_the_first_of_a_repeat_is_kept(self, tmp_path):
        rows = [
            ("1", "a", START + 5),
            ("1", "a", START),
            ("1", "a", START + 9),
            ("1", "b", START + 10),
        ]
        assert sequences(core_of(tmp_path, rows, 1)) == {"1": [("a", START), ("b", START + 10)]}

    def test_the_file_may_be_in_any_order_of_users(self, tmp_path):
        """Users' rows interleaved in other ways, each user's own order kept: the same
        core under every tie order.
        """
        generator = np.random.default_rng(3)
        rows = random_rows(generator)
        for ties in ("file", "item", "random"):
            first = core_of(tmp_path, rows, 1, ties, seed=4)
            by_user = sorted(rows, key=lambda row: row[0], reverse=True)
            assert sequences(core_of(tmp_path, by_user, 1, ties, seed=4)) == sequences(first)

    @pytest.mark.parametrize("ties", ["item", "random"])
    def test_without_ties_by_file_the_rows_may_be_in_any_order(self, tmp_path, ties):
        """Shuffled completely, also among equal times and exact duplicates: the same
        core, array by array.
        """
        generator = np.random.default_rng(12)
        for minimum in (1, 1, 2):
            rows = random_rows(generator)
            first = core_of(tmp_path, rows, minimum, ties, seed=4)
            assert first.tied.any()
            for _ in range(5):
                other = core_of(
                    tmp_path,
                    [rows[place] for place in generator.permutation(len(rows))],
                    minimum,
                    ties,
                    seed=4,
                )
                for name in ("user", "item", "timestamp", "tied"):
                    assert getattr(first, name).tolist() == getattr(other, name).tolist()
                assert first.user_ids.equals(other.user_ids) and first.item_ids.equals(
                    other.item_ids
                )

    def test_unknown_ties_are_refused(self, tmp_path):
        with pytest.raises(InputError, match=r"ties: 'day'.*file, item, random"):
            core_of(tmp_path, [("1", "a", START)], 1, ties="day")


class TestSorting:
    @pytest.mark.parametrize(
        ("count", "user_bits", "time_bits"),
        [
            *(
                (1, 0, 0),
                (2, 1, 1),
                (200, 8, 20),
                (150_000, 16, 30),
            ),  # user, time and position in one integer
            *(
                (256, 16, 40),
                (256, 16, 41),
                (1, 1, 63),
            ),  # exactly 64 bits, one more, and no bits of position
            *(
                (200, 31, 40),
                (150_000, 20, 40),
                (256, 31, 56),
            ),  # some bits of the time are left out at first
            *((256, 8, 57), (200, 31, 62), (200, 1, 64)),  # many
        ],
    )
    def test_equals_a_literal_sort_whatever_the_keys_hold(self, count, user_bits, time_bits):
        """By user, then time, equal ones in their order; with and without bits left
        out, over several blocks.
        """
        generator = np.random.default_rng(count)
        user = generator.integers(0, 1 << user_bits, count, dtype=np.int64).astype(np.int32)
        time = generator.integers(0, 1 << min(time_bits, 62), count)
        user[-1], time[-1] = (1 << user_bits) - 1, (1 << min(time_bits, 62)) - 1
        if time_bits > 62:
            time[0], time[-1] = -(1 << (time_bits - 1)), (1 << (time_bits - 1)) - 1
        # Many ties, times that differ in their last bits only, and times from below
        # zero.
        time[1::3] = time[: len(time[1::3])]
        user[1::3] = user[: len(user[1::3])]
        time[1::6] ^= 1
        time -= 1000 * (time_bits < 60)
        item = np.arange(count, dtype=np.int32)
        found = core_module._sorted_by_user_and_time(user.copy(), item.copy(), time.copy())
        expected = sorted(zip(user.tolist(), time.tolist(), item.tolist(), strict=True))
        assert list(zip(*(found[column].tolist() for column in (0, 2, 1)), strict=True)) == expected
        assert [column.dtype for column in found] == [np.int32, np.int32, np.int64]

    @pytest.mark.parametrize(("unit", "factor"), [("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
    def test_times_finer_than_a_second_order_events(self, tmp_path, unit, factor):
        """Events that whole seconds, or doubles above 2^53, would tie; only exactly
        equal times are tied.
        """
        times = [START * factor + step for step in (4, 1, 1, 3)] + [
            START * factor - 1,
            (START + 1) * factor,
        ]
        log = read_interactions(
            literal.write_log(
                tmp_path / "log.csv", [("u", f"i{k}", time) for k, time in enumerate(times)]
            ),
            literal.FORM,
        )
        assert log.unit == unit
        for ties, equal in (("file", ["i1", "i2"]), ("item", ["i1", "i2"])):
            core = core_filter(log, minimum_events=1, ties=ties)
            assert [item for item, _ in sequences(core)["u"]] == ["i4", *equal, "i3", "i0", "i5"]
            assert core.timestamp.tolist() == [START - 1, *[START] * 4, START + 1]
            assert core.tied.tolist() == [False, False, True, False, False, False]
            paths = [tmp_path / name for name in ("interactions", "users", "items")]
            write_core(core, *paths)
            assert pyarrow.parquet.read_table(paths[0])["tied"].to_pylist() == core.tied.tolist()

    def test_whole_logs_are_sorted_and_tied_as_their_fractions_say(self, tmp_path):
        """Random times a few nanoseconds apart, against literal sequences in
        nanoseconds.
        """
        generator = np.random.default_rng(19)
        rows = [
            (f"u{user}", f"i{item}", START * 10**9 + step)
            for user, item, step in generator.integers(0, (5, 6, 30), (200, 3)).tolist()
        ]
        core = core_of(tmp_path, rows, 2)
        expected = literal.core(rows, 2, "file")
        assert sequences(core) == {
            user: [(item, time // 10**9) for item, time in kept] for user, kept in expected.items()
        }
        tied = [
            pair[0][1] == pair[1][1]
            for user in sorted(expected)
            for pair in itertools.pairwise([("", -1), *expected[user]])
        ]
        assert core.tied.tolist() == tied
        assert any(tied) and statistics(core)["tied_transitions_percent"] < 100


class TestTies:
    ROWS = (("u", "9", START), ("u", "10", START), ("u", "2", START), ("u", "30", START - 1))

    def test_file_and_item_order(self, tmp_path):
        assert [item for item, _ in sequences(core_of(tmp_path, self.ROWS, 1, "file"))["u"]] == [
            "30",
            "9",
            "10",
            "2",
        ]
        assert [item for item, _ in sequences(core_of(tmp_path, self.ROWS, 1, "item"))["u"]] == [
            "30",
            "2",
            "9",
            "10",
        ]

    def test_random_order_is_chronological_and_reproducible(self, tmp_path):
        generator = np.random.default_rng(8)
        orders = Counter()
        for seed in range(40):
            rows = [
                (str(user), str(item), START + day)
                for user, item, day in generator.integers(0, 6, (60, 3)).tolist()
            ]
            once, again, other = (
                sequences(core_of(tmp_path, rows, 1, "random", seed=s))
                for s in (seed, seed, seed + 1)
            )
            assert once == again
            orders["same" if once == other else "different"] += 1
            for events_of_user in once.values():
                times = [time for _, time in events_of_user]
                assert times == sorted(times)
        assert orders["different"] == 40

    def test_random_order_is_uniform_over_users_and_differs_between_them(self, tmp_path):
        """Three tied events of 6,000 users: each of the six orders about 1,000 times
        (χ² with 5 degrees of freedom).
        """
        rows = [(str(user), item, START) for user in range(6000) for item in ("a", "b", "c")]
        count = Counter(
            tuple(item for item, _ in order)
            for order in sequences(core_of(tmp_path, rows, 1, "random", seed=1)).values()
        )
        assert len(count) == 6
        assert sum((seen - 1000) ** 2 / 1000 for seen in count.values()) < 25

    def test_random_order_of_a_user_does_not_depend_on_the_events_of_others(self, tmp_path):
        tied = [("b", str(item), START) for item in range(12)]
        orders = [
            sequences(
                core_of(
                    tmp_path,
                    [*(("a", str(item), START) for item in range(count)), *tied],
                    1,
                    "random",
                    seed=3,
                )
            )["b"]
            for count in (1, 2, 7)
        ]
        assert orders[0] == orders[1] == orders[2]

    def test_random_order_moves_only_ties(self, tmp_path):
        rows = [("u", str(item), START + item) for item in range(20)]
        assert sequences(core_of(tmp_path, rows, 1, "random", seed=2)) == sequences(
            core_of(tmp_path, rows, 1, "file")
        )


class TestEncoding:
    def test_whole_numbers_sort_by_value_and_text_by_code_point(self, tmp_path):
        core = core_of(
            tmp_path,
            [
                (user, item, START)
                for user, item in (("10", "b"), ("9", "é"), ("100", "B"), ("9", "Z10"))
            ],
            1,
        )
        assert core.user_ids.to_pylist() == ["9", "10", "100"]
        assert core.item_ids.to_pylist() == ["B", "Z10", "b", "é"]

    def test_leading_zeros_make_text(self, tmp_path):
        core = core_of(tmp_path, [("1", item, START) for item in ("10", "9", "007")], 1)
        assert core.item_ids.to_pylist() == ["007", "10", "9"]

    def test_whole_numbers_beyond_64_bits_sort_by_value(self, tmp_path):
        core = core_of(
            tmp_path, [("1", item, START) for item in ("9" * 25, "1" + "0" * 25, "5")], 1
        )
        assert core.item_ids.to_pylist() == ["5", "9" * 25, "1" + "0" * 25]

    def test_codes_are_dense_after_the_filter(self, tmp_path):
        rows = [
            (user, item, START + k)
            for k, (user, item) in enumerate(
                [("3", "5"), ("3", "7"), ("5", "7"), ("5", "5"), ("4", "6")]
            )
        ]
        core = core_of(tmp_path, rows, 2)
        assert core.user.tolist() == [0, 0, 1, 1]
        assert core.item.tolist() == [1, 2, 2, 1]
        assert core.offsets.tolist() == [0, 2, 4]

    def test_the_item_sorted_first_has_code_1_and_can_be_recommended(self, tmp_path):
        core = core_of(
            tmp_path, [("u", item, START + k) for k, item in enumerate(("0", "5", "3"))], 1
        )
        assert core.item.tolist() == [1, 3, 2]
        table = np.zeros((4, 3))
        table[:, 0] = 1
        found = rank(
            literal.TableModel(table),
            literal.held_out([[3, 2]], [1]),
            filter_seen=True,
            list_length=3,
        )
        assert found.target.tolist() == [[1]]
        assert found.lists.tolist() == [[1, 0, 0]]

    @pytest.mark.parametrize("count", [126, 127, 128, 129, 32766, 32767, 32768, 32769])
    def test_codes_do_not_overflow_at_the_edges_of_narrow_integers(self, tmp_path, count):
        """Through the files and BERT4Rec, whose mask has a code of its own: all codes
        positive, the last item can win.
        """
        rows = [(k % 3, k, START + k) for k in range(count)]
        paths = [tmp_path / name for name in ("interactions", "users", "items")]
        write_core(core_of(tmp_path, rows, 1), *paths)
        item = pyarrow.parquet.read_table(paths[0])["item"].to_numpy()
        assert sorted(item.tolist()) == list(range(1, count + 1))
        assert pyarrow.parquet.read_table(paths[2])["item"].to_pylist() == list(range(1, count + 1))
        torch.manual_seed(0)
        model = build(
            "bert4rec", count, {"hidden_size": 8, "blocks": 1, "heads": 1, "maximum_length": 8}
        ).eval()
        history = item[[0, count // 2, count - 3]].tolist()
        assert model.mask == count + 1
        assert model.mask not in history
        with torch.no_grad():
            hidden = model.encode(torch.tensor([history]), torch.tensor([3]))[0, 3]
            model.embedding.weight[count] = 10 * hidden
        found = rank(model, literal.held_out([history], [count]), filter_seen=False, list_length=10)
        assert found.target.tolist() == [[1]]
        assert found.lists[0, 0] == count
        assert (found.lists >= 1).all() and (found.lists <= count).all()

    def test_files_hold_plain_integers_for_both_readers(self, tmp_path):
        core = core_of(tmp_path, [("u", "a", START), ("u", "b", START + 1), ("v", "a", START)], 1)
        paths = [tmp_path / f"{name}.parquet" for name in ("interactions", "users", "items")]
        write_core(core, *paths)
        expected = [
            {"user": "int32", "item": "int32", "timestamp": "int64", "tied": "bool"},
            {"user": "int32", "user_id": "large_string"},
            {"item": "int32", "item_id": "large_string"},
        ]
        for path, types in zip(paths, expected, strict=True):
            schema = pyarrow.parquet.read_table(path).schema
            assert {field.name: str(field.type) for field in schema} == types
            frame = pd.read_parquet(path)
            for column, kind in types.items():
                assert not isinstance(frame[column].dtype, pd.CategoricalDtype)
                if "string" not in kind:
                    assert frame[column].dtype == np.dtype(kind)
        assert pd.read_parquet(paths[2])["item_id"].tolist() == ["a", "b"]

    def test_maps_lead_from_codes_back_to_the_log(self, tmp_path):
        generator = np.random.default_rng(21)
        rows = random_rows(generator)
        paths = [tmp_path / f"{name}.parquet" for name in ("interactions", "users", "items")]
        write_core(core_of(tmp_path, rows, 2, "item"), *paths)
        table = (
            pd.read_parquet(paths[0])
            .merge(pd.read_parquet(paths[1]), on="user")
            .merge(pd.read_parquet(paths[2]), on="item")
        )
        found = sorted(zip(table["user_id"], table["item_id"], table["timestamp"], strict=True))
        expected = literal.core(rows, 2, "item")
        assert found == sorted(
            (user, item, time) for user, events in expected.items() for item, time in events
        )


class TestStatistics:
    def test_hand_worked(self, tmp_path):
        day = 86_400
        rows = [
            *(("A", "a", START), ("A", "b", START), ("A", "c", START + day)),
            *(
                ("B", "a", START + day),
                ("B", "b", START + 4 * day - 1),
                ("B", "a", START + 4 * day - 1),
            ),
            ("C", "c", START + 2 * day),
        ]
        found = statistics(core_of(tmp_path, rows, 1))
        assert found == pytest.approx(
            {
                "users": 3,
                "items": 3,
                "interactions": 7,
                "avg_length": 7 / 3,
                "density_percent": 100 * 7 / 9,
                "days": 3,
                "tied_transitions_percent": 100 * 2 / 4,
                "tied_targets_percent": 100 * 1 / 3,
            }
        )

    def test_equal_the_literal_counts_on_random_logs(self, tmp_path):
        generator = np.random.default_rng(7)
        for _ in range(20):
            rows = random_rows(generator)
            kept = literal.core(rows, 1, "file")
            times = [[time for _, time in events_of_user] for events_of_user in kept.values()]
            pairs = [
                (earlier, later) for user in times for earlier, later in itertools.pairwise(user)
            ]
            items = {item for events_of_user in kept.values() for item, _ in events_of_user}
            flat = [time for user in times for time in user]
            found = statistics(core_of(tmp_path, rows, 1))
            assert (found["users"], found["items"]) == (len(kept), len(items))
            assert found["interactions"] == len(flat)
            assert found["avg_length"] == pytest.approx(len(flat) / len(kept))
            assert found["density_percent"] == pytest.approx(
                100 * len(flat) / len(kept) / len(items)
            )
            assert found["days"] == (max(flat) - min(flat)) // 86_400
            assert found["tied_transitions_percent"] == pytest.approx(
                100 * sum(a == b for a, b in pairs) / max(1, len(pairs))
            )
            tied = sum(len(user) > 1 and user[-1] == user[-2] for user in times)
            assert found["tied_targets_percent"] == pytest.approx(100 * tied / len(kept))

    def test_the_script_writes_counts_beside_the_core(self, tmp_path):
        rows = [(user, item, START + item) for user in range(6) for item in range(6)]
        rows += [("rare", 0, START), ("rare", "", START)]
        rows += [(user, 0, START + 90) for user in range(6) for _ in range(30)]
        core_filter_script.main(
            script_arguments(tmp_path, literal.write_log(tmp_path / "log.csv", rows))
        )
        found = json.loads((tmp_path / "statistics.json").read_text(encoding="utf-8"))
        assert found["raw"]["interactions"] == 6 * 6 + 1 + 180
        assert found["raw"]["bad_rows"]["empty user or item"] == 1
        assert found["rounds"] == [
            {"repeats": 6 * 29, "events_of_rare_users": 0, "events_of_rare_items": 0},
            {"repeats": 0, "events_of_rare_users": 1, "events_of_rare_items": 0},
        ]
        assert (
            found["core"]["users"] == 6
            and found["core"]["items"] == 6
            and found["core"]["interactions"] == 42
        )
        assert pa.parquet.read_table(tmp_path / "interactions.parquet").num_rows == 42

    def test_an_id_that_says_there_is_none_is_warned_of(self, tmp_path, capsys):
        rows = [(user, item, START + item) for user in ("NULL", *"abcde") for item in range(6)]
        core_filter_script.main(
            script_arguments(tmp_path, literal.write_log(tmp_path / "log.csv", rows))
        )
        assert (
            "warning: 6 interactions have 'NULL' for an id and are taken for those of one of the"
            " users" in capsys.readouterr().out
        )

    def test_a_source_that_the_config_no_longer_has_is_named(self, tmp_path):
        arguments = script_arguments(
            tmp_path, literal.write_log(tmp_path / "log.csv", [(1, 1, START)])
        )
        place = arguments.index("--sources") + 1
        arguments[place] = json.dumps({"other": json.loads(arguments[place]).popitem()[1]})
        with pytest.raises(
            InputError,
            match=(
                r"the config has no such source any more; found: other. Delete .*log.csv to have it"
                r" fetched anew"
            ),
        ):
            core_filter_script.main(arguments)


class TestPortability:
    def test_scripts_do_not_depend_on_the_locale(self, tmp_path):
        """core_filter.py and split.py under LC_ALL=C, ``é`` in the path and in the ids:
        the same outputs as under UTF-8.
        """
        rows = [
            (f"usér{user}", f"itém{(user + step) % 7}", START + 600 * step + user)
            for user in range(10)
            for step in range(7)
        ]
        outputs = []
        for environment in ({"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONUTF8": "1"}):
            folder = tmp_path / f"é {environment['PYTHONUTF8']}"
            folder.mkdir()
            log = literal.write_log(folder / "lög.csv", rows)
            split = [
                *("--interactions", folder / "interactions.parquet", "--kind", "gts"),
                *(
                    "--train",
                    folder / "train.parquet",
                    "--validation",
                    folder / "validation.parquet",
                ),
                *("--test", folder / "test.parquet", "--counts", folder / "counts.json"),
            ]
            for script, arguments in (
                ("core_filter.py", script_arguments(folder, log)),
                ("split.py", [str(part) for part in split]),
            ):
                done = subprocess.run(
                    [sys.executable, str(SOURCE / script), *arguments],
                    env={**os.environ, **environment},
                    capture_output=True,
                    check=False,
                )
                assert done.returncode == 0, done.stderr.decode(errors="replace")[-600:]
            outputs.append({path.name: path.read_bytes() for path in folder.glob("*.parquet")})
            outputs[-1]["counts"] = (folder / "counts.json").read_bytes()
        assert outputs[0] == outputs[1] and len(outputs[0]) == 7
        assert (
            pyarrow.parquet.read_table(tmp_path / "é 0" / "users.parquet")["user_id"].to_pylist()[0]
            == "usér0"
        )

    def test_crlf_makes_the_same_core_byte_for_byte(self, tmp_path):
        text = b"user,time,item\n" + b"".join(
            b"u%d,%d,i%d\n" % (k % 3, START + k, k % 4) for k in range(60)
        )
        outputs = []
        for content in (text, text.replace(b"\n", b"\r\n")):
            core = core_filter(literal.read_bytes(tmp_path, content), minimum_events=5)
            paths = [tmp_path / name for name in ("interactions", "users", "items")]
            write_core(core, *paths)
            outputs.append([path.read_bytes() for path in paths])
            assert core.item_ids.to_pylist() == ["i0", "i1", "i2", "i3"]
        assert outputs[0] == outputs[1]
