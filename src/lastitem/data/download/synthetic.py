"""Logs whose truth is known: what the next item depends on is chosen, so a diagnostic
can be held against the answer.
"""

from pathlib import Path

import numpy as np

from lastitem.arrays import Ints
from lastitem.errors import InputError

#: What the next item depends on.
TRUTHS = ("last", "last_but_one", "set", "nothing")
#: Chances of an item's successors, the likeliest first.
SUCCESSION = (0.5, 0.2, 0.15, 0.1, 0.05)
#: Tastes of ``set``: each user has one, and this share of the events is of it.
TASTES, TASTE_SHARE = 10, 0.6


def generate(truth: str, users: int, items: int, events: int, seed: int) -> Ints:
    """Draw a log.

    ``last``: the next item is one of five successors of the last item (chances
    :data:`SUCCESSION`). ``last_but_one``: of the item before the last, so that two
    chains run through each other. ``set``: each user has one of :data:`TASTES` tastes,
    a tenth of the items, and the next item is of it with chance :data:`TASTE_SHARE`,
    else any; one item says little about the taste, the set of all says it, and their
    order nothing. ``nothing``: any item. No item follows itself.

    Parameters
    ----------
    events : most events of a user; how many a user has is drawn between half of it and
        all, because a model of absolute positions learns nothing about one that no
        training sequence reaches. They lie an hour apart, so that no two have the same
        time.

    Returns
    -------
    int64 [n, 3]: user, item, seconds; users and items from 1.

    Raises
    ------
    InputError for an unknown truth, or sizes with which it cannot be told.
    """
    if truth not in TRUTHS:
        raise InputError(f"truth: {truth!r} is not known; allowed: {', '.join(TRUTHS)}")
    if items < 2 * TASTES or events < 6 or users < 1:
        raise InputError(
            f"a generated log needs at least {2 * TASTES} items, 6 events and 1 user; found"
            f" {items}, {events} and {users}"
        )
    generator = np.random.default_rng(seed)
    # Each row: the successors of an item, distinct and never the item itself.
    successor = np.array(
        [generator.permutation(items - 1)[: len(SUCCESSION)] for _ in range(items)]
    )
    successor += successor >= np.arange(items)[:, None]
    # The items of a taste stand together: taste t has size[t] of them, from start[t]
    # on.
    by_taste = generator.permutation(items)
    size = np.bincount(np.arange(items) % TASTES)
    start = np.cumsum(size) - size
    of_user = generator.integers(TASTES, size=users)

    def draw(step: int, chosen: Ints) -> Ints:
        count = len(chosen)
        back = {"last": 1, "last_but_one": 2}.get(truth)
        if back and step >= back:
            place = generator.choice(len(SUCCESSION), size=count, p=SUCCESSION)
            return successor[sequence[chosen, step - back], place]
        drawn = generator.integers(items, size=count)
        if truth == "set":
            own = by_taste[start[of_user[chosen]] + generator.integers(size[of_user[chosen]])]
            drawn = np.where(generator.random(count) < TASTE_SHARE, own, drawn)
        return drawn

    # No item equals what stands before the first one, the last column.
    sequence = np.full((users, events), -1)
    for step in range(events):
        waiting = np.arange(users)
        while len(waiting):
            sequence[waiting, step] = draw(step, waiting)
            waiting = waiting[sequence[waiting, step] == sequence[waiting, step - 1]]
    begin = 1_000_000_000 + generator.integers(365 * 86_400, size=users)
    length = generator.integers(-(-events // 2), events + 1, size=users)
    user, at = np.nonzero(np.arange(events) < length[:, None])
    return np.column_stack([user + 1, sequence[user, at] + 1, begin[user] + 3600 * at])


def write_log(path: str | Path, truth: str, users: int, items: int, events: int, seed: int) -> None:
    """Write :func:`generate` as CSV with the columns ``user``, ``item`` and
    ``timestamp`` (seconds).
    """
    log = generate(truth, users, items, events, seed)
    np.savetxt(path, log, fmt="%d", delimiter=",", header="user,item,timestamp", comments="")
