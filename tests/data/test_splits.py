"""Global temporal split, leave-one-out, and the targets of held-out sequences."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

import split as split_script
from lastitem.data.core import core_filter, write_core
from lastitem.data.interactions import read_interactions
from lastitem.data.splits import (
    TARGETS,
    Part,
    draw_users,
    global_temporal_split,
    leave_one_out,
    target_positions,
)
from lastitem.errors import InputError
from tests import literal

START = 1_000_000_000


def flat(times: dict[int, list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and times as the splits take them, users 0, 1, 2, …"""
    lengths = [len(times[user]) for user in range(len(times))]
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64), np.array(
        [t for u in range(len(times)) for t in times[u]], dtype=np.int64
    )


def lengths_of(part: Part) -> dict[int, int]:
    """User → number of events, users with none left out."""
    return {user: length for user, length in enumerate(part.length.tolist()) if length}


def held_out_of(part: Part) -> dict[int, tuple[int, int]]:
    """User → (length, held out from), users with nothing left out."""
    return {
        user: pair
        for user, pair in enumerate(
            zip(part.length.tolist(), part.held_out_from.tolist(), strict=True)
        )
        if pair[0]
    }


def random_times(generator: np.random.Generator) -> dict[int, list[int]]:
    """Ascending times of a few users, with ties within and between them."""
    span = int(generator.integers(2, 400))
    return {
        user: sorted((START + generator.integers(0, span, generator.integers(1, 12))).tolist())
        for user in range(generator.integers(2, 12))
    }


def run_script(folder: Path, rows: list[tuple], **options: object) -> tuple[dict, dict]:
    """split.py on the 1-core of rows: the three parts with original user ids, and the
    counts.
    """
    log = read_interactions(literal.write_log(folder / "log.csv", rows), literal.FORM)
    core = core_filter(log, minimum_events=1)
    write_core(
        core, folder / "interactions.parquet", folder / "users.parquet", folder / "items.parquet"
    )
    named = {
        "interactions": folder / "interactions.parquet",
        **{part: folder / f"{part}.parquet" for part in ("train", "validation", "test")},
        "counts": folder / "counts.json",
        **{name.replace("_", "-"): value for name, value in options.items()},
    }
    split_script.main([str(part) for name, value in named.items() for part in (f"--{name}", value)])
    ids = core.user_ids.to_pylist()
    parts = {
        part: {
            ids[row["user"]]: row
            for row in pyarrow.parquet.read_table(folder / f"{part}.parquet").to_pylist()
        }
        for part in ("train", "validation", "test")
    }
    return parts, json.loads((folder / "counts.json").read_text(encoding="utf-8"))


class TestGlobalTemporalSplit:
    @pytest.mark.parametrize("validation", ["by_time", "last_item"])
    def test_equals_the_literal_split_on_random_logs(self, validation):
        generator = np.random.default_rng(2)
        compared = 0
        for _ in range(300):
            times, tenths = random_times(generator), int(generator.integers(3, 10))
            try:
                train, held, test = literal.global_temporal_split(
                    times, Fraction(tenths, 10), validation
                )
            except IndexError:  # the train part is empty
                train = None
            offsets, timestamp = flat(times)
            if train is None:
                with pytest.raises(InputError, match="nothing is left to train on"):
                    global_temporal_split(
                        offsets, timestamp, quantile=tenths / 10, validation=validation
                    )
                continue
            found = global_temporal_split(
                offsets, timestamp, quantile=tenths / 10, validation=validation
            )
            assert lengths_of(found.train) == {
                user: length for user, length in train.items() if length
            }
            assert held_out_of(found.validation) == held
            assert held_out_of(found.test) == test
            compared += bool(train and held and test)
        assert compared > 150

    def test_by_user_holds_out_whole_users(self):
        generator = np.random.default_rng(4)
        for seed in range(30):
            times = random_times(generator)
            offsets, timestamp = flat(times)
            trainable, test = literal.temporal_cut(times, Fraction(9, 10))
            if len(trainable) <= 2:
                with pytest.raises(
                    InputError,
                    match=r"hold out 2 users, but the train part has only|no user has two events",
                ):
                    global_temporal_split(
                        offsets, timestamp, validation="by_user", validation_users=2, seed=seed
                    )
                continue
            found = global_temporal_split(
                offsets, timestamp, validation="by_user", validation_users=2, seed=seed
            )
            held = held_out_of(found.validation)
            assert len(held) == 2
            assert held == {user: (trainable[user], trainable[user] - 1) for user in held}
            assert lengths_of(found.train) == {
                user: length for user, length in trainable.items() if user not in held
            }
            assert held_out_of(found.test) == test

    def test_by_user_draws_others_under_another_seed(self):
        offsets, timestamp = flat(
            {user: [START + user, START + user + 1, START + user + 2] for user in range(200)}
        )
        drawn = [
            frozenset(
                held_out_of(
                    global_temporal_split(
                        offsets, timestamp, validation="by_user", validation_users=20, seed=seed
                    ).validation
                )
            )
            for seed in (0, 0, 1)
        ]
        assert drawn[0] == drawn[1] != drawn[2]

    def test_hand_worked(self):
        """T_test = 0.9 quantile of 1 … 10 = 9.1; of the nine events before it T_val =
        8.2.
        """
        times = {0: [1, 2, 10], 1: [3, 4, 5], 2: [6, 7], 3: [8, 9]}
        found = global_temporal_split(*flat(times))
        assert found.thresholds == pytest.approx({"test": 9.1, "validation": 8.2})
        assert lengths_of(found.train) == {0: 2, 1: 3, 2: 2}
        assert held_out_of(found.validation) == {3: (2, 1)}
        assert held_out_of(found.test) == {0: (3, 2)}

    def test_second_event_decides_who_is_trained_on(self):
        """User 0 has one event before the threshold: tested, with its history, but not
        trained on.
        """
        times = {0: [1, 100, 101], 1: [2, 3, 4], 2: [5, 6, 7, 8, 9, 10]}
        found = global_temporal_split(*flat(times), validation="last_item")
        assert held_out_of(found.test) == {0: (3, 1)}
        assert lengths_of(found.train) == {1: 2, 2: 5}

    def test_users_numbered_from_1000_in_a_ten_row_file(self, tmp_path):
        """Parts hold the right users, not row labels; the hand-worked split above, by
        way of the files.
        """
        owner = {
            1: 1001,
            2: 1001,
            10: 1001,
            3: 1002,
            4: 1002,
            5: 1002,
            6: 1003,
            7: 1003,
            8: 1004,
            9: 1004,
        }
        rows = [(user, f"i{step}", START + 86_400 * step) for step, user in owner.items()]
        parts, counts = run_script(tmp_path, rows, kind="gts")
        assert {user: len(row["items"]) for user, row in parts["train"].items()} == {
            "1001": 2,
            "1002": 3,
            "1003": 2,
        }
        assert {
            user: (len(row["items"]), row["targets"]) for user, row in parts["validation"].items()
        } == {"1004": (2, [1])}
        assert {
            user: (len(row["items"]), row["targets"]) for user, row in parts["test"].items()
        } == {"1001": (3, [2])}
        assert [counts[part]["users"] for part in ("train", "validation", "test")] == [3, 1, 1]

    def test_an_event_at_the_threshold_belongs_to_training(self):
        """Eleven events: the 0.9 quantile is the tenth exactly; only the eleventh is
        after it.
        """
        times = {0: [1, 2, 10], 1: [3, 4, 11], 2: [5, 6, 7, 8, 9]}
        found = global_temporal_split(*flat(times), validation="last_item")
        assert found.thresholds["test"] == 10.0
        assert held_out_of(found.test) == {1: (3, 2)}
        assert lengths_of(found.train) == {0: 2, 1: 1, 2: 4}  # each less its validation event

    def test_events_tied_at_the_threshold_stay_together(self):
        times = {0: [1, 2, 9], 1: [3, 9, 9], 2: [9, 10, 10]}
        found = global_temporal_split(*flat(times), quantile=0.5, validation="last_item")
        assert found.thresholds["test"] == 9.0
        assert held_out_of(found.test) == {2: (3, 1)}
        assert lengths_of(found.train) == {0: 2, 1: 2}

    def test_validation_is_a_tenth_of_the_nine_tenths(self):
        """20,000 distinct times: 81 % of the events to learn from, 9 % held out for
        validation, 10 % for test.
        """
        generator = np.random.default_rng(0)
        owner = generator.permutation(np.repeat(np.arange(200), 100))
        times = {user: (START + np.flatnonzero(owner == user)).tolist() for user in range(200)}
        found = global_temporal_split(*flat(times))
        held = [
            int((part.length - part.held_out_from).sum()) for part in (found.validation, found.test)
        ]
        assert [int(found.train.length.sum()), *held] == [16_200, 1_800, 2_000]

    def test_the_parts_do_not_overlap_in_time(self):
        """Nothing learned from is later than a validation target, and no validation
        event later than a test target.
        """
        generator = np.random.default_rng(6)
        for _ in range(50):
            times = {
                user: sorted((START + generator.integers(0, 10**6, 20)).tolist())
                for user in range(20)
            }
            found = global_temporal_split(*flat(times))
            learned = max(
                times[user][length - 1] for user, length in lengths_of(found.train).items()
            )
            held = [
                [
                    times[user][at]
                    for user, (length, start) in held_out_of(part).items()
                    for at in range(start, length)
                ]
                for part in (found.validation, found.test)
            ]
            assert learned < min(held[0]) <= max(held[0]) < min(held[1])

    def test_unknown_validation_is_refused(self):
        with pytest.raises(InputError, match=r"validation: 'by_item'.*by_time, by_user, last_item"):
            global_temporal_split(*flat({0: [1, 2, 3]}), validation="by_item")


class TestLeaveOneOut:
    def test_users_with_one_to_four_events(self):
        """Fewer than three events: training only, with all of them. Three or more: two
        are held out.
        """
        found = leave_one_out(np.array([0, 1, 3, 6, 10]))
        assert lengths_of(found.train) == {0: 1, 1: 2, 2: 1, 3: 2}
        assert held_out_of(found.validation) == {2: (2, 1), 3: (3, 2)}
        assert held_out_of(found.test) == {2: (3, 2), 3: (4, 3)}
        assert found.thresholds == {}

    def test_and_c11_through_the_script(self, tmp_path, capsys):
        """Lists in the files, counts, and the note that leave-one-out lets the future
        of others into training.
        """
        rows = [
            (f"u{length}", f"i{step}", START + step)
            for length in (1, 2, 3, 4)
            for step in range(length)
        ]
        parts, counts = run_script(tmp_path, rows, kind="loo")
        expected = {
            f"u{length}": [f"i{step}" for step in range(size)]
            for length, size in ((1, 1), (2, 2), (3, 1), (4, 2))
        }
        names = dict(pd.read_parquet(tmp_path / "items.parquet").itertuples(index=False))
        assert {
            user: [names[item] for item in row["items"]] for user, row in parts["train"].items()
        } == expected
        assert {
            user: (len(row["items"]), row["targets"]) for user, row in parts["validation"].items()
        } == {"u3": (2, [1]), "u4": (3, [2])}
        assert {
            user: (len(row["items"]), row["targets"]) for user, row in parts["test"].items()
        } == {"u3": (3, [2]), "u4": (4, [3])}
        assert counts["train"] == {"users": 4, "events": 6}
        assert counts["test"] == {
            "users": 2,
            "targets": 2,
            "targets_without_history": 0,
            "events": 7,
        }
        assert (
            "training see events that happened after other users' targets"
            in capsys.readouterr().out
        )


class TestTargets:
    @pytest.mark.parametrize("target", ["last", "first", "successive"])
    def test_equal_the_literal_choice(self, target):
        generator = np.random.default_rng(9)
        for _ in range(100):
            length = generator.integers(0, 8, 12)
            start = np.minimum(generator.integers(0, 8, 12), length)
            held = {
                user: (int(length[user]), int(start[user]))
                for user in range(12)
                if start[user] < length[user]
            }
            expected, without_history = literal.targets(held, target)
            users, positions, missing = target_positions(Part(length, start), target, seed=0)
            assert list(zip(users.tolist(), positions.tolist(), strict=True)) == expected
            assert missing == without_history

    def test_random_draws_every_held_out_event_equally_often(self):
        """3,000 users with events 4, 5 and 6 held out, and 3,000 new users with events
        0, 1 and 2: 0 has no history.
        """
        part = Part(np.repeat([7, 3], 3000), np.repeat([4, 0], 3000))
        users, positions, missing = target_positions(part, "random", seed=3)
        assert missing == 0
        assert users.tolist() == list(range(6000))
        old, new = Counter(positions[:3000].tolist()), Counter(positions[3000:].tolist())
        assert set(old) == {4, 5, 6} and set(new) == {1, 2}
        assert max(abs(count - 1000) for count in old.values()) < 110
        assert max(abs(count - 1500) for count in new.values()) < 110

    def test_random_depends_on_seed_and_user_only(self):
        length = np.full(50, 20)
        _, everyone, _ = target_positions(Part(length, np.full(50, 5)), "random", seed=1)
        assert (
            target_positions(Part(length, np.full(50, 5)), "random", seed=1)[1].tolist()
            == everyone.tolist()
        )
        assert (
            target_positions(Part(length, np.full(50, 5)), "random", seed=2)[1].tolist()
            != everyone.tolist()
        )
        some = np.where(np.arange(50) % 3 == 0, 20, 0)
        _, chosen, _ = target_positions(Part(some, np.minimum(some, 5)), "random", seed=1)
        assert chosen.tolist() == everyone[::3].tolist()

    def test_random_with_one_held_out_event_is_the_last(self):
        part = Part(np.array([4, 9, 2]), np.array([3, 8, 1]))
        assert target_positions(part, "random", seed=5)[1].tolist() == [3, 8, 1]

    def test_unknown_target_is_refused(self):
        with pytest.raises(InputError, match=r"target: 'middle'.*last, first, random, successive"):
            target_positions(Part(np.array([3]), np.array([2])), "middle", seed=0)

    @pytest.mark.parametrize("target", TARGETS)
    def test_targets_without_history_are_counted_not_ranked(self, tmp_path, target):
        """Ten test users, three of them with a single event: seven are ranked, and the
        counts say so.
        """
        rows = [(f"a{user}", f"i{step}", START + step) for user in range(7) for step in range(4)]
        rows += [
            (f"a{user}", f"i{step}", START + 100 + step) for user in range(7) for step in (5, 6)
        ]
        rows += [(f"b{user}", "i1", START + 200) for user in range(3)]
        parts, counts = run_script(
            tmp_path, rows, kind="gts", quantile=0.5, target=target, validation_kind="last_item"
        )
        assert sorted(parts["test"]) == [f"a{user}" for user in range(7)]
        assert counts["test"]["users"] == 7
        assert counts["test"]["targets"] == (14 if target == "successive" else 7)
        assert counts["test"]["targets_without_history"] == 3
        positions = {tuple(row["targets"]) for row in parts["test"].values()}
        assert (
            positions
            <= {"last": {(5,)}, "first": {(4,)}, "random": {(4,), (5,)}, "successive": {(4, 5)}}[
                target
            ]
        )

    def test_successive_counts_the_first_event_of_a_new_user_only(self):
        users, positions, missing = target_positions(
            Part(np.array([3, 1]), np.array([0, 0])), "successive", seed=0
        )
        assert (users.tolist(), positions.tolist(), missing) == ([0, 0], [1, 2], 2)

    def test_draw_users_does_not_depend_on_their_order(self):
        users = np.arange(100, 400)
        drawn = draw_users(users, 30, seed=7)
        assert len(set(drawn.tolist())) == 30
        assert set(drawn.tolist()) <= set(users.tolist())
        assert (
            draw_users(users[::-1], 30, seed=7).tolist() == drawn.tolist() == sorted(drawn.tolist())
        )
        assert draw_users(users, 30, seed=8).tolist() != drawn.tolist()
        # A user's key is its own: without some that were not drawn the same are drawn.
        fewer = np.setdiff1d(users, np.setdiff1d(users, drawn)[::2])
        assert draw_users(fewer, 30, seed=7).tolist() == drawn.tolist()
        assert draw_users(users[:5], 30, seed=7).tolist() == users[:5].tolist()


class TestScript:
    @pytest.mark.parametrize(
        ("kind", "target"), [("gts", "last"), ("gts", "successive"), ("loo", "last")]
    )
    def test_files_hold_what_the_literal_split_says(self, tmp_path, kind, target):
        """Items, times and targets of every part, from a log in random order; a test
        list holds the whole history.
        """
        generator = np.random.default_rng(13)
        owner, item = generator.integers(0, 25, 600), generator.integers(0, 40, 600)
        rows = [
            (f"u{a}", f"i{b}", START + t)
            for a, b, t in zip(owner, item, generator.permutation(600).tolist(), strict=True)
        ]
        kept = literal.core(rows, 1, "file")
        users = sorted(kept)
        times = {code: [time for _, time in kept[user]] for code, user in enumerate(users)}
        if kind == "gts":
            train, held, test = literal.global_temporal_split(times, Fraction(9, 10), "by_time")
        else:
            train = {code: len(t) - 2 for code, t in times.items()}
            held = {code: (len(t) - 1, len(t) - 2) for code, t in times.items()}
            test = {code: (len(t), len(t) - 1) for code, t in times.items()}
        parts, counts = run_script(tmp_path, rows, kind=kind, target=target)
        codes = {
            name: code
            for code, name in pd.read_parquet(tmp_path / "items.parquet").itertuples(index=False)
        }
        assert {user: row["items"] for user, row in parts["train"].items()} == {
            users[code]: [codes[item] for item, _ in kept[users[code]][:length]]
            for code, length in train.items()
        }
        for name, part in (("validation", held), ("test", test)):
            chosen, missing = literal.targets(part, target)
            expected = {}
            for code in {code for code, _ in chosen}:
                whole = kept[users[code]][: part[code][0]]
                expected[users[code]] = {
                    "user": code,
                    "items": [codes[item] for item, _ in whole],
                    "timestamps": [time for _, time in whole],
                    "targets": [position for user, position in chosen if user == code],
                    "target_tied": [
                        whole[position][1] == whole[position - 1][1]
                        for user, position in chosen
                        if user == code
                    ],
                }
            assert parts[name] == expected
            assert counts[name]["targets"] == len(chosen)
            assert counts[name]["targets_without_history"] == missing
        assert (
            parts["test"]["u3"]["items"][: len(parts["train"]["u3"]["items"])]
            == parts["train"]["u3"]["items"]
        )

    def test_the_same_files_again_byte_for_byte(self, tmp_path):
        rows = [(user, step, START + 7 * step + user) for user in range(9) for step in range(8)]
        contents = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            run_script(
                tmp_path / name,
                rows,
                kind="gts",
                target="random",
                validation_kind="by_user",
                validation_users=3,
                seed=5,
            )
            contents.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
        assert contents[0] == contents[1]

    @pytest.mark.parametrize(
        ("rows", "options", "message"),
        [
            (
                [("u", k, START) for k in range(5)],
                {"kind": "gts"},
                "the validation part holds no target",
            ),
            (
                [("u", k, START + k // 5) for k in range(7)],
                {"kind": "gts", "validation_kind": "last_item"},
                "the test part holds no target",
            ),
            (
                [("u", 1, START), ("u", 2, START), ("v", 1, START)],
                {"kind": "loo"},
                "the validation part holds no target",
            ),
            (
                [("u", 1, START), ("v", 2, START)],
                {"kind": "loo"},
                "no user has two training events",
            ),
            (
                [("u", 1, START), ("v", 2, START + 9)],
                {"kind": "gts"},
                "nothing is left to train on",
            ),
        ],
    )
    def test_a_log_that_cannot_be_split_says_which_part_is_empty(
        self, tmp_path, rows, options, message
    ):
        with pytest.raises(InputError, match=message):
            run_script(tmp_path, rows, **options)
        assert not (tmp_path / "counts.json").exists()
