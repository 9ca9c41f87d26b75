"""Logs whose truth is known: what the next item depends on is chosen, so a diagnostic
can be held against the answer.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lastitem.arrays import Ints
from lastitem.errors import InputError

#: What the next item depends on.
TRUTHS = ("last", "last_but_one", "set", "nothing", "last_and_set", "drift")
#: Chances of an item's successors, the likeliest first.
SUCCESSION = (0.5, 0.2, 0.15, 0.1, 0.05)
#: Tastes of ``set``, ``last_and_set`` and ``drift``: each user has one, and this share
#: of the events is of it.
TASTES, TASTE_SHARE = 10, 0.6
#: Successors of an item within each taste, for ``last_and_set``. With the ten tastes an
#: item has 30: too many for a list of ten, so that the taste is needed to choose.
TASTE_SUCCESSORS = 3


@dataclass(frozen=True)
class Tables:
    """What the events of a log are drawn from; items and users from 0.

    Parameters
    ----------
    successor : int64 [items, 5], the successors of an item, the likeliest first.
    by_taste : int64 [items], the items of a taste stand together: taste t has
        ``size[t]`` of them, from ``start[t]`` on.
    taste : int64 [users, events], of each user at each step.
    within : int64 [items, tastes, 3], the successors of an item within each taste;
        empty but for ``last_and_set``.
    length : int64 [users], how many events each user has; empty but for ``drift``,
        where the change depends on it. The others draw it after the events.
    """

    successor: Ints
    by_taste: Ints
    start: Ints
    size: Ints
    taste: Ints
    within: Ints
    length: Ints


def draw_tables(
    generator: np.random.Generator, truth: str, users: int, items: int, events: int
) -> Tables:
    """Draw what :func:`generate` then draws the events from.

    What ``last_and_set`` and ``drift`` need besides is drawn last, so that the logs of
    the other truths stay what they are.
    """
    successor = np.array(
        [generator.permutation(items - 1)[: len(SUCCESSION)] for _ in range(items)]
    )
    # Never the item itself.
    successor += successor >= np.arange(items)[:, None]
    by_taste = generator.permutation(items)
    size = np.bincount(np.arange(items) % TASTES)
    start = np.cumsum(size) - size
    of_user = generator.integers(TASTES, size=users)
    taste = np.repeat(of_user[:, None], events, axis=1)
    within, length = np.zeros((0, TASTES, TASTE_SUCCESSORS), dtype=np.int64), of_user[:0]
    if truth == "last_and_set":
        groups = np.split(by_taste, start[1:])
        within = np.array(
            [
                [generator.permutation(group[group != item])[:TASTE_SUCCESSORS] for group in groups]
                for item in range(items)
            ]
        )
    if truth == "drift":
        length = draw_lengths(generator, users, events)
        change = generator.integers(-(-length // 3), 2 * length // 3 + 1)
        after = (of_user + generator.integers(1, TASTES, size=users)) % TASTES
        taste = np.where(np.arange(events) < change[:, None], taste, after[:, None])
    return Tables(successor, by_taste, start, size, taste, within, length)


def draw_lengths(generator: np.random.Generator, users: int, events: int) -> Ints:
    """Draw how many events each user has."""
    return generator.integers(-(-events // 2), events + 1, size=users)


def generate(truth: str, users: int, items: int, events: int, seed: int) -> Ints:
    """Draw a log.

    ``last``: the next item is one of five successors of the last item (chances
    :data:`SUCCESSION`). ``last_but_one``: of the item before the last, so that two
    chains run through each other. ``set``: each user has one of :data:`TASTES` tastes,
    a tenth of the items, and the next item is of it with chance :data:`TASTE_SHARE`,
    else any; one item says little about the taste, the set of all says it, and their
    order nothing. ``nothing``: any item. ``last_and_set``: each item has
    :data:`TASTE_SUCCESSORS` successors of each taste, all equally likely; the next item
    is one of the last item's of the user's taste with chance :data:`TASTE_SHARE`, else
    one of its others. The successors of a taste are items of it. So the set of all
    items says the taste, as in ``set``, their order nothing more about it, and the last
    item which of the taste's items may come. ``drift``: as ``set``, but the user's
    taste changes once, to another, at a step between a third and two thirds of the
    user's events. So the latest items say more than the first. No item follows itself.

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
    # An item may be of the taste, and does not follow itself.
    least = TASTES * (1 + TASTE_SUCCESSORS if truth == "last_and_set" else 2)
    if items < least or events < 6 or users < 1:
        raise InputError(
            f"a generated log needs at least {least} items, 6 events and 1 user; found"
            f" {items}, {events} and {users}"
        )
    generator = np.random.default_rng(seed)
    tables = draw_tables(generator, truth, users, items, events)

    def draw(step: int, chosen: Ints) -> Ints:
        count = len(chosen)
        taste = tables.taste[chosen, step]
        back = {"last": 1, "last_but_one": 2}.get(truth)
        if back and step >= back:
            place = generator.choice(len(SUCCESSION), size=count, p=SUCCESSION)
            return tables.successor[sequence[chosen, step - back], place]
        if truth == "last_and_set" and step:
            another = (taste + generator.integers(1, TASTES, size=count)) % TASTES
            taste = np.where(generator.random(count) < TASTE_SHARE, taste, another)
            place = generator.integers(TASTE_SUCCESSORS, size=count)
            return tables.within[sequence[chosen, step - 1], taste, place]
        drawn = generator.integers(items, size=count)
        if truth in ("set", "last_and_set", "drift"):
            own = tables.by_taste[tables.start[taste] + generator.integers(tables.size[taste])]
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
    length = tables.length if truth == "drift" else draw_lengths(generator, users, events)
    user, at = np.nonzero(np.arange(events) < length[:, None])
    return np.column_stack([user + 1, sequence[user, at] + 1, begin[user] + 3600 * at])


def write_log(path: str | Path, truth: str, users: int, items: int, events: int, seed: int) -> None:
    """Write :func:`generate` as CSV with the columns ``user``, ``item`` and
    ``timestamp`` (seconds).
    """
    log = generate(truth, users, items, events, seed)
    np.savetxt(path, log, fmt="%d", delimiter=",", header="user,item,timestamp", comments="")
