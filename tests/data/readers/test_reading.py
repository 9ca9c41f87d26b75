"""The same events are the same log, whatever they are written in."""

from __future__ import annotations

import numpy as np

from tests import literal
from tests.data.readers.logs import (
    FORMATS,
    START,
    written,
)
from tests.literal import events, read_bytes


def test_the_same_events_are_the_same_log_in_every_format(tmp_path):
    """Random small logs with awkward ids and sub-second times, equal array by array."""
    generator = np.random.default_rng(9)
    letters = list("ab1 ,;\t'\"\\é😀{}:")
    for _ in range(40):
        ids = ["".join(generator.choice(letters, generator.integers(1, 6))) + "." for _ in range(8)]
        ids = (
            [str(number) for number in generator.integers(0, 10**12, 8)]
            if generator.integers(3) == 0
            else ids
        )
        factor = int(generator.choice([1, 10**3, 10**6]))
        rows = [
            (ids[user], ids[item], (START + second) * factor)
            for user, item, second in generator.integers(
                (0, 0, 0), (8, 8, 99), (int(generator.integers(1, 60)), 3)
            ).tolist()
        ]
        logs = [read_bytes(tmp_path, written(kind, rows)) for kind in FORMATS]
        assert events(logs[0]) == [(user, item, time // factor) for user, item, time in rows]
        assert all(literal.is_same(logs[0], log) for log in logs)
