"""Keys that depend on what they are for, and neither on a state nor on an order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lastitem import randomness
from lastitem.randomness import hash_keys


def literal_hash(*parts: int) -> int:
    """The same chain in Python's unbounded integers."""
    state = 0
    for part in parts:
        value = (state + part + 0x9E3779B97F4A7C15) % 2**64
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
        state = value ^ (value >> 31)
    return state


@pytest.mark.parametrize(
    ("seed", "first"), [(0, 0xE220A8397B1DCDAF), (1234567, 6457827717110365317)]
)
def test_one_part_gives_the_first_number_of_splitmix64(seed, first):
    """Published test vectors of the generator."""
    assert int(hash_keys(seed)) == first


def test_equals_integer_arithmetic():
    generator = np.random.default_rng(0)
    for _ in range(200):
        parts = generator.integers(
            0, 2 ** int(generator.integers(1, 62)), generator.integers(1, 6)
        ).tolist()
        assert int(hash_keys(*parts)) == literal_hash(*parts)
    assert int(hash_keys(2**64 - 1, 2**63)) == literal_hash(2**64 - 1, 2**63)


def test_broadcasts_and_keeps_64_bits():
    users, positions = np.arange(5, dtype=np.int32), np.arange(7)
    keys = hash_keys(3, users[:, None], positions)
    assert keys.shape == (5, 7)
    assert keys.dtype == np.uint64
    for user, position in itertools.product(range(5), range(7)):
        assert int(keys[user, position]) == literal_hash(3, user, position)


def test_a_key_does_not_depend_on_its_neighbours_or_their_type():
    users = np.array([9, 4, 100_000, 4])
    keys = hash_keys(1, users)
    assert keys[1] == keys[3]
    assert (hash_keys(1, users[::-1]) == keys[::-1]).all()
    assert (hash_keys(1, users.astype(np.int32)) == keys).all()
    assert hash_keys(1, 100_000) == keys[2]


def test_order_of_parts_seed_and_stream_all_matter():
    assert hash_keys(1, 2) != hash_keys(2, 1)
    assert hash_keys(0, 0) != hash_keys(0)
    streams = [
        randomness.STREAM_TIES,
        randomness.STREAM_SHUFFLE,
        randomness.STREAM_TARGET,
        randomness.STREAM_USERS,
    ]
    assert len(set(streams)) == 4
    grid = hash_keys(np.array(streams)[:, None, None], np.arange(20)[:, None], np.arange(500))
    assert len(np.unique(grid)) == 4 * 20 * 500


def test_negative_numbers_are_parts_too():
    assert int(hash_keys(-1)) == literal_hash(2**64 - 1)


def test_every_bit_is_even_and_independent_of_the_next_key():
    """Consecutive users under consecutive seeds: each bit is one half the time, and
    neighbours agree in half their bits.
    """
    keys = hash_keys(np.arange(20)[:, None], np.arange(2000))
    bits = (keys[..., None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    bound = 5 * 0.5 / np.sqrt(40_000)
    assert np.abs(bits.mean(axis=(0, 1)) - 0.5).max() < bound
    for axis in (0, 1):
        agreement = (np.diff(bits.astype(np.int8), axis=axis) == 0).mean(axis=(0, 1))
        assert np.abs(agreement - 0.5).max() < bound * 1.1
