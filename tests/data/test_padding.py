"""Padded batches, and tiles of fixed shapes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lastitem.data.padding import pad, tiles
from lastitem.data.sequences import Sequences
from lastitem.models.registry import build
from tests import literal

MODELS = {
    "sasrec": {"hidden_size": 8, "heads": 2},
    "bert4rec": {"hidden_size": 8, "heads": 2},
    "gru4rec": {"hidden_size": 8},
    "bsarec": {"hidden_size": 8, "heads": 2},
    "duorec": {"hidden_size": 8, "heads": 2},
}


def width_by_hand(length: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, …"""
    return next(
        width for power in range(20) for width in (2**power, 3 * 2**power // 2) if width >= length
    )


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
