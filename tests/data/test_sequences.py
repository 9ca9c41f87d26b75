"""Parts of a split on disk and in memory; nothing depends on the order of the file."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from lastitem.data.sequences import read_held_out, read_training
from lastitem.errors import InputError
from tests import literal


def random_log(generator: np.random.Generator) -> tuple[list[list[int]], list[list[int]]]:
    """Items and ascending times of a few users, with ties."""
    lengths = generator.integers(1, 9, generator.integers(1, 9))
    return [generator.integers(1, 30, n).tolist() for n in lengths], [
        sorted(generator.integers(0, 9, n).tolist()) for n in lengths
    ]


def write(path, items, times, length, targets=None) -> None:
    """Write a part from lists."""
    offsets = np.concatenate(([0], np.cumsum([len(sequence) for sequence in items])))
    flat_items = np.array([item for sequence in items for item in sequence], dtype=np.int32)
    flat_times = np.array([time for sequence in times for time in sequence], dtype=np.int64)
    literal.write_part(path, flat_items, flat_times, offsets, np.array(length), targets)


class TestFiles:
    def test_training_comes_back_as_written(self, tmp_path):
        generator = np.random.default_rng(1)
        for _ in range(30):
            items, times = random_log(generator)
            length = [int(generator.integers(0, len(sequence) + 1)) for sequence in items]
            write(tmp_path / "train.parquet", items, times, length)
            found = read_training(tmp_path / "train.parquet")
            kept = [user for user, count in enumerate(length) if count]
            assert found.user.tolist() == kept
            assert len(found) == len(kept)
            assert found.length.tolist() == [length[user] for user in kept]
            assert [
                found.items[a:b].tolist() for a, b in zip(found.start, found.end, strict=True)
            ] == [items[user][: length[user]] for user in kept]

    def test_held_out_cases_come_back_as_written(self, tmp_path):
        """One case per target: its whole earlier history, the target, and whether both
        have one time.
        """
        generator = np.random.default_rng(2)
        tied = Counter()
        for _ in range(60):
            items, times = random_log(generator)
            chosen = [
                (user, at)
                for user, sequence in enumerate(items)
                for at in sorted(generator.permutation(np.arange(1, len(sequence)))[:3].tolist())
            ]
            length = [
                len(sequence) if any(user == owner for owner, _ in chosen) else 0
                for user, sequence in enumerate(items)
            ]
            users, positions = (
                np.array([pair[k] for pair in chosen], dtype=np.int64) for k in (0, 1)
            )
            write(tmp_path / "test.parquet", items, times, length, (users, positions))
            if not chosen:
                assert len(read_held_out(tmp_path / "test.parquet")) == 0
                continue
            found = read_held_out(tmp_path / "test.parquet")
            assert found.user.tolist() == [user for user, _ in chosen]
            assert found.target.tolist() == [items[user][at] for user, at in chosen]
            assert found.tied.tolist() == [
                times[user][at] == times[user][at - 1] for user, at in chosen
            ]
            assert [
                found.items[a:b].tolist() for a, b in zip(found.start, found.end, strict=True)
            ] == [items[u][:at] for u, at in chosen]
            tied.update(found.tied.tolist())
        assert min(tied.values()) > 50

    def test_files_hold_plain_integers_for_both_readers(self, tmp_path):
        write(
            tmp_path / "a.parquet",
            [[3, 1], [2]],
            [[5, 6], [7]],
            [2, 1],
            (np.array([0]), np.array([1])),
        )
        types = {
            "user": "int32",
            "items": "list<item: int32>",
            "timestamps": "list<item: int64>",
            "targets": "list<item: int32>",
            "target_tied": "list<item: bool>",
        }
        schema = pyarrow.parquet.read_table(tmp_path / "a.parquet").schema
        assert {field.name: str(field.type).replace("element", "item") for field in schema} == types
        frame = pd.read_parquet(tmp_path / "a.parquet")
        assert frame["user"].dtype == np.int32
        assert [frame[column][0].dtype for column in ("items", "timestamps", "targets")] == [
            np.int32,
            np.int64,
            np.int32,
        ]
        assert frame["targets"].map(list).tolist() == [[1], []]
        training = read_training(tmp_path / "a.parquet")
        assert (training.items.dtype, training.user.dtype, training.start.dtype) == (
            np.int32,
            np.int32,
            np.int64,
        )

    def test_a_file_that_is_no_part_is_named(self, tmp_path):
        pyarrow.parquet.write_table(
            pa.table({"user": [1], "items": [[1]]}), tmp_path / "train.parquet"
        )
        assert len(read_training(tmp_path / "train.parquet")) == 1
        with pytest.raises(
            InputError, match=r"train\.parquet: no column targets, target_tied; found: user, items"
        ):
            read_held_out(tmp_path / "train.parquet")
        (tmp_path / "half.parquet").write_bytes((tmp_path / "train.parquet").read_bytes()[:-9])
        with pytest.raises(InputError, match=r"half\.parquet: not a readable Parquet file"):
            read_training(tmp_path / "half.parquet")
        with pytest.raises(InputError, match=r"absent\.parquet: no such file"):
            read_training(tmp_path / "absent.parquet")


class TestSelection:
    def test_select_keeps_cases_whole(self):
        cases = literal.held_out([[1], [2, 3], [4, 5, 6]], [7, 8, 9], users=[10, 20, 30])
        cases.tied[2] = True
        chosen = cases.select(np.array([2, 0]))
        assert [
            chosen.items[a:b].tolist() for a, b in zip(chosen.start, chosen.end, strict=True)
        ] == [[4, 5, 6], [1]]
        assert (chosen.target.tolist(), chosen.user.tolist(), chosen.tied.tolist()) == (
            [9, 7],
            [30, 10],
            [True, False],
        )

    def test_sample_users_takes_all_cases_of_a_user_whatever_the_order(self):
        """Early stopping looks at the same users in every run of a seed, also with
        several cases a user.
        """
        users = np.repeat(np.arange(100), 3)
        cases = literal.held_out([[1]] * 300, [2] * 300, users=users.tolist())
        sampled = cases.sample_users(10, seed=4)
        assert set(Counter(sampled.user.tolist()).values()) == {3}
        assert len(set(sampled.user.tolist())) == 10
        shuffled = cases.select(np.random.default_rng(0).permutation(300)).sample_users(10, seed=4)
        assert set(shuffled.user.tolist()) == set(sampled.user.tolist())
        assert set(cases.sample_users(10, seed=5).user.tolist()) != set(sampled.user.tolist())
        assert len(cases.sample_users(1000, seed=4)) == 300
