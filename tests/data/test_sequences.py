"""Parts of a split on disk and in memory, padding, and batches.

Cases of the fault catalogue: B13, D7 (inputs only; how training cuts sequences is
tested with the training), F17 (nothing depends on the order of the file).
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from lastitem.data.padding import pad, tiles
from lastitem.data.sequences import Sequences, read_held_out, read_training
from lastitem.errors import InputError
from lastitem.models.registry import build
from tests import literal

MODELS = {
    "sasrec": {"hidden_size": 8, "heads": 2},
    "bert4rec": {"hidden_size": 8, "heads": 2},
    "gru4rec": {"hidden_size": 8},
    "bsarec": {"hidden_size": 8, "heads": 2},
    "duorec": {"hidden_size": 8, "heads": 2},
}


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


class TestPad:
    def test_hand_worked(self):
        """Right-padded with 0, oldest first, cut to the newest three."""
        cases = literal.held_out([[1, 2], [3, 4, 5, 6], [7]], [1, 1, 1])
        items, length = pad(cases, np.array([2, 1, 0]), 3)
        assert items.tolist() == [[7, 0, 0], [4, 5, 6], [1, 2, 0]]
        assert length.tolist() == [1, 3, 2]
        assert items.dtype == length.dtype == torch.int64

    def test_a_batch_is_as_wide_as_its_longest_input(self):
        cases = literal.held_out([[1, 2], [3, 4, 5, 6], [7]], [1, 1, 1])
        assert pad(cases, np.array([0, 2]), 50)[0].tolist() == [[1, 2], [7, 0]]

    @pytest.mark.parametrize("architecture", sorted(MODELS))
    def test_histories_of_one_less_one_more_and_exactly_the_maximum(self, architecture):
        """No position runs out, the newest items are kept, and the oldest beyond the
        maximum does not count.
        """
        torch.manual_seed(0)
        model = build(architecture, 20, {**MODELS[architecture], "maximum_length": 6}).eval()
        longest = model.input_length
        assert longest == (5 if architecture == "bert4rec" else 6)
        history = list(range(1, longest + 2))
        cases = literal.held_out(
            [history[:-2], history[:-1], history, [19, *history[1:]]], [20] * 4
        )
        items, length = pad(cases, np.arange(4), longest)
        assert length.tolist() == [longest - 1, longest, longest, longest]
        assert items.shape == (4, longest)
        assert items[1].tolist() == history[:-1]
        assert items[2].tolist() == items[3].tolist() == history[1:]
        with torch.inference_mode():
            hidden = model.encode(items, length)
            read = hidden[torch.arange(4), model.readout(length)]
            alone = [
                model.encode(items[k : k + 1, : length[k]], length[k : k + 1])[
                    0, model.readout(length)[k]
                ]
                for k in range(4)
            ]
        torch.testing.assert_close(read, torch.stack(alone), atol=1e-5, rtol=1e-5)
        assert torch.equal(read[2], read[3])
        assert not torch.allclose(read[1], read[2], atol=1e-4)


class TestTiles:
    def test_every_sequence_once_in_tiles_of_fixed_shapes(self):
        """The shape of a tile follows from the length of its sequences alone; only the
        filling repeats one.
        """
        generator = np.random.default_rng(3)
        rows_of = {}
        for _ in range(200):
            length = generator.integers(1, 40, generator.integers(1, 300))
            end = np.cumsum(length)
            sequences = Sequences(
                np.ones(end[-1], dtype=np.int32),
                end - length,
                end,
                np.arange(len(length), dtype=np.int32),
            )
            maximum = int(generator.integers(1, 50))
            kept = np.minimum(length, maximum)
            found = list(tiles(sequences, maximum, "test"))
            assert sorted(
                np.concatenate([tile.cases[: tile.real] for tile in found]).tolist()
            ) == list(range(len(length)))
            for tile in found:
                assert kept[tile.cases].max() <= tile.width <= maximum
                assert (tile.cases[tile.real :] == tile.cases[tile.real - 1]).all()
                assert {min(maximum, width_by_hand(int(n))) for n in kept[tile.cases]} == {
                    tile.width
                }
                assert rows_of.setdefault(tile.width, len(tile.cases)) == len(tile.cases)
            assert (
                np.diff(np.concatenate([kept[tile.cases[: tile.real]] for tile in found])) >= 0
            ).all()

    def test_long_inputs_come_in_fewer_rows(self):
        for length, rows in ((1, 64), (256, 64), (257, 42), (1024, 16), (100_000, 8)):
            sequences = Sequences(
                np.ones(length, dtype=np.int32),
                np.array([0]),
                np.array([length]),
                np.array([0], dtype=np.int32),
            )
            (tile,) = tiles(sequences, 200_000, "test")
            assert (len(tile.cases), tile.real) == (rows, 1)

    def test_tiles_hold_the_same_users_whatever_the_order_of_the_file(self):
        generator = np.random.default_rng(4)
        length = generator.integers(1, 9, 500)
        end = np.cumsum(length)
        sequences = Sequences(
            np.ones(end[-1], dtype=np.int32), end - length, end, np.arange(500, dtype=np.int32)
        )
        shuffled = sequences.select(generator.permutation(500))
        for maximum in (3, 100):
            first, second = (
                [source.user[tile.cases].tolist() for tile in tiles(source, maximum, "test")]
                for source in (sequences, shuffled)
            )
            assert first == second

    def test_no_sequences_no_tiles(self):
        assert list(tiles(literal.held_out([], []), 10, "test")) == []


def width_by_hand(length: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, …"""
    return next(
        width for power in range(20) for width in (2**power, 3 * 2**power // 2) if width >= length
    )
