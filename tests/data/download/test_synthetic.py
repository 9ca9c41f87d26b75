"""Logs whose truth is known: they are what they say, and the diagnostics of models
trained on them tell them apart.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from lastitem.data.download.synthetic import (
    SUCCESSION,
    TASTE_SHARE,
    TASTE_SUCCESSORS,
    TASTES,
    TRUTHS,
    draw_tables,
    generate,
    write_log,
)
from lastitem.errors import InputError
from lastitem.evaluation.effects import effects, effects_table
from lastitem.evaluation.interventions import interventions
from lastitem.evaluation.metrics import per_user
from lastitem.models.registry import build
from lastitem.report.pooling import Bootstrap
from lastitem.report.worths import worths
from lastitem.study.interventions import INTERVENTIONS, ways
from lastitem.study.settings import TrainingSettings
from lastitem.training.loop import train
from tests.literal import held_out
from tests.training.test_loop import sequences_of

USERS, ITEMS, EVENTS = 1500, 60, 14


def chance_ndcg(items: int, cutoff: int) -> float:
    """Expected NDCG@cutoff of a target that may stand at each of ``items`` places with
    equal chance.
    """
    return float((1 / np.log2(np.arange(1, min(cutoff, items) + 1) + 1)).sum()) / items


def best_ndcg() -> float:
    """NDCG@K (K ≥ 5) of the list that knows the successors and their chances: the most
    that ``last`` allows (``last_but_one`` a little more, because the last item itself
    can be left out).
    """
    return float((np.array(SUCCESSION) / np.log2(np.arange(2, len(SUCCESSION) + 2))).sum())


def histories_of(truth, users=USERS, seed=1):
    """The items of each user, in order."""
    log = generate(truth, users, ITEMS, EVENTS, seed)
    return [part.tolist() for part in np.split(log[:, 1], np.flatnonzero(np.diff(log[:, 0])) + 1)]


def pairs(histories, back):
    """How often an item stands ``back`` places before another."""
    return Counter(
        (one, other)
        for history in histories
        for one, other in zip(history[:-back], history[back:], strict=True)
    )


@pytest.mark.parametrize("truth", TRUTHS)
def test_sizes_and_order(truth):
    log = generate(truth, 200, ITEMS, EVENTS, seed=3)
    assert set(log[:, 1]) == set(range(1, ITEMS + 1))
    users, lengths = np.unique(log[:, 0], return_counts=True)
    assert users.tolist() == list(range(1, 201)) and set(lengths) == set(
        range(EVENTS // 2, EVENTS + 1)
    )
    for user in users:
        _, item, time = log[log[:, 0] == user].T
        assert (np.diff(item) != 0).all(), (
            "no item follows itself, so the filter of repeats takes nothing away"
        )
        assert (np.diff(time) == 3600).all()
    assert np.array_equal(log, generate(truth, 200, ITEMS, EVENTS, seed=3))
    assert not np.array_equal(log, generate(truth, 200, ITEMS, EVENTS, seed=4))


@pytest.mark.parametrize(("truth", "back"), [("last", 1), ("last_but_one", 2)])
def test_successors(truth, back):
    """Counted over pairs: five successors for each item, with the chances that are said
    (up to what may not repeat).
    """
    histories = histories_of(truth, users=6000)
    for item in range(1, ITEMS + 1):
        found = sorted(
            (count for (one, _), count in pairs(histories, back).items() if one == item),
            reverse=True,
        )
        assert len(found) == len(SUCCESSION)
        assert np.array(found) / sum(found) == pytest.approx(SUCCESSION, abs=0.06)
    assert min(Counter(one for one, _ in pairs(histories, 3 - back)).values()) > 10, (
        "at the other distance many items follow"
    )


def test_a_taste_shows_in_the_set():
    """Of the items of a user most are of one tenth of the catalogue, and which tenth
    differs between users.
    """
    together = np.zeros((ITEMS, ITEMS))
    for history in histories_of("set", users=3000):
        row = np.array(history) - 1
        together[np.ix_(row, row)] += 1
    np.fill_diagonal(together, 0)
    partners = np.sort(together / together.sum(axis=1, keepdims=True), axis=1)[:, ::-1]
    assert (partners[:, : ITEMS // 10 - 1].sum(axis=1) > 0.2).all(), (
        "the five others of the taste: a twelfth if there were none"
    )
    even = np.bincount(generate("nothing", 3000, ITEMS, EVENTS, 1)[:, 1])[1:]
    assert even.min() / even.mean() > 0.8 and even.max() / even.mean() < 1.2


def test_what_cannot_be_generated():
    for arguments, told in (
        (
            ("order", 10, 60, 10, 0),
            "'order' is not known; allowed: last, last_but_one, set, nothing, last_and_set, drift",
        ),
        (("set", 10, 19, 10, 0), "at least 20 items"),
        (("last", 10, 60, 5, 0), "6 events"),
        (("last_and_set", 10, 39, 10, 0), "at least 40 items"),
    ):
        with pytest.raises(InputError, match=told):
            generate(*arguments)


def test_the_file(tmp_path):
    write_log(tmp_path / "log.csv", "last", 20, 60, 7, seed=2)
    assert (
        pd.read_csv(tmp_path / "log.csv").to_numpy().tolist()
        == generate("last", 20, 60, 7, 2).tolist()
    )
    assert (tmp_path / "log.csv").read_text().startswith("user,item,timestamp\n")


def test_bounds_by_hand():
    """Chance: each place of ten in 20 equally likely; best: half the targets first, a
    fifth second, …
    """
    assert chance_ndcg(20, 10) == pytest.approx(
        sum(1 / np.log2(place + 1) for place in range(1, 11)) / 20
    )
    assert best_ndcg() == pytest.approx(
        0.5 + 0.2 / np.log2(3) + 0.15 / 2 + 0.1 / np.log2(5) + 0.05 / np.log2(6)
    )


#: Items of two users, and when the first one begins. A change would make the numbers of
#: docs/truths.md those of another log.
DRAWN = {
    "last": ([[28, 13, 3, 8], [28, 13, 25]], 1025759704),
    "last_but_one": ([[28, 33, 13], [28, 21, 3, 36]], 1008792733),
    "set": ([[15, 10, 28, 15, 26, 15], [28, 33, 40, 4, 18, 37]], 1020050512),
    "nothing": ([[28, 33, 12], [28, 21, 23, 30, 39]], 1025968907),
    "last_and_set": ([[7, 26, 38, 15], [4, 13, 23, 33]], 1028269158),
    "drift": ([[26, 39, 15, 29, 5], [13, 23, 20, 21, 31]], 1030155903),
}


@pytest.mark.parametrize("truth", TRUTHS)
def test_a_log_stays_what_it_is(truth):
    log = generate(truth, 2, 40, 6, seed=1)
    assert ([log[log[:, 0] == user, 1].tolist() for user in (1, 2)], log[0, 2]) == DRAWN[truth]


def tables_of(truth, users=USERS, items=ITEMS, events=EVENTS, seed=1):
    """What a log is drawn from, and the taste of each item."""
    tables = draw_tables(np.random.default_rng(seed), truth, users, items, events)
    taste = np.empty(items, dtype=int)
    taste[tables.by_taste] = np.repeat(np.arange(TASTES), tables.size)
    return tables, taste


def test_successors_of_each_taste():
    """All of a pair are among the last item's successors; the share of those of the
    user's taste is what is said, and an item's successors of a taste are items of it,
    distinct, never the item itself, and equally likely.
    """
    tables, taste = tables_of("last_and_set", users=6000)
    for item, successors in enumerate(tables.within):
        assert (taste[successors] == np.arange(TASTES)[:, None]).all()
        assert len({item, *successors.ravel()}) == 1 + TASTES * TASTE_SUCCESSORS
    places, own, first = Counter(), [], []
    for user, history in enumerate(histories_of("last_and_set", users=6000)):
        row = np.array(history) - 1
        mine = tables.taste[user, 0]
        first.append(taste[row[0]] == mine)
        for one, other in pairwise(row):
            (place,) = np.flatnonzero(tables.within[one, taste[other]] == other)
            places[place] += 1
            own.append(taste[other] == mine)
    assert np.mean(own) == pytest.approx(TASTE_SHARE, abs=0.01)
    assert np.mean(first) == pytest.approx(TASTE_SHARE + (1 - TASTE_SHARE) / TASTES, abs=0.03)
    assert np.array(sorted(places.values())) / places.total() == pytest.approx(
        [1 / TASTE_SUCCESSORS] * TASTE_SUCCESSORS, abs=0.01
    )


def test_a_taste_that_changes_once():
    """To another one, between a third and two thirds of the user's events, at each step
    there equally often; before and after, most items are of the taste of the time.
    """
    tables, taste = tables_of("drift", users=6000)
    histories = histories_of("drift", users=6000)
    assert [len(history) for history in histories] == tables.length.tolist()
    changes, before, after, old = Counter(), [], [], []
    for history, mine in zip(histories, tables.taste, strict=True):
        (change,) = np.flatnonzero(np.diff(mine[: len(history)])) + 1
        assert len(history) / 3 <= change <= 2 * len(history) / 3
        assert (mine[change:] == mine[change]).all()
        if len(history) == 12:
            changes[int(change)] += 1
        of_item = taste[np.array(history) - 1]
        before += (of_item[:change] == mine[0]).tolist()
        after += (of_item[change:] == mine[-1]).tolist()
        old += (of_item[change:] == mine[0]).tolist()
    assert sorted(changes) == [4, 5, 6, 7, 8]
    assert np.array([*changes.values()]) / changes.total() == pytest.approx([0.2] * 5, abs=0.06)
    # Any item may be of the taste, too; a little less because none follows itself.
    share = TASTE_SHARE + (1 - TASTE_SHARE) / TASTES
    assert np.mean(before) == pytest.approx(share, abs=0.03)
    assert np.mean(after) == pytest.approx(share, abs=0.03)
    assert np.mean(old) == pytest.approx((1 - TASTE_SHARE) / TASTES, abs=0.02)


# What may be known of the last event of each user, on the sizes of config/truths.yaml


def transitions(truth, tables, taste):
    """[tastes, last, next]: the chance of the next item for a user of each taste."""
    items = len(taste)
    chance = np.zeros((TASTES, items, items))
    for mine in range(TASTES):
        for last in range(items):
            if truth == "last_and_set":
                for other in range(TASTES):
                    share = TASTE_SHARE if other == mine else (1 - TASTE_SHARE) / (TASTES - 1)
                    chance[mine, last, tables.within[last, other]] = share / TASTE_SUCCESSORS
            else:
                chance[mine, last] = (1 - TASTE_SHARE) / items
                chance[mine, last, taste == mine] += TASTE_SHARE / tables.size[mine]
                chance[mine, last, last] = 0
    return chance / chance.sum(axis=2, keepdims=True)


def tastes_told(truth, tastes):
    """How likely each taste is at the end, by the tastes of the items so far.

    That no item follows itself is left aside, and so is that the first one has no last
    item.
    """
    other = (1 - TASTE_SHARE) / (TASTES - 1 if truth == "last_and_set" else TASTES)
    own = TASTE_SHARE if truth == "last_and_set" else TASTE_SHARE + other

    def odds(part):
        return (own / other) ** np.bincount(part, minlength=TASTES)

    if truth != "drift":
        return odds(tastes)
    # The event to come counts as one of the user's.
    length = len(tastes) + 1
    told = np.zeros(TASTES)
    for change in range(-(-length // 3), 2 * length // 3 + 1):
        before = odds(tastes[:change])
        told += odds(tastes[change:]) * (before.sum() - before)
    return told


@cache
def bayes_ndcg(truth):
    """NDCG@10 of the last events for who knows the tables and: the last item alone; the
    history; the history with all but the last item shuffled; the last item and the
    user's taste.
    """
    tables, taste = tables_of(truth, 3000, 100, 16)
    log = generate(truth, 3000, 100, 16, 1)
    chance = transitions(truth, tables, taste)
    # How often a user of a taste comes by each item, in the long run.
    often = np.array([np.linalg.matrix_power(one, 50)[0] for one in chance])
    generator = np.random.default_rng(0)
    ranks = []
    for user in range(3000):
        *before, last, target = log[log[:, 0] == user + 1, 1] - 1
        shuffled = generator.permutation(before)
        for weight in (
            often[:, last],
            tastes_told(truth, taste[[*before, last]]),
            tastes_told(truth, taste[[*shuffled, last]]),
            np.arange(TASTES) == tables.taste[user, len(before) + 1],
        ):
            score = (weight[:, None] * chance[:, last]).sum(axis=0) / weight.sum()
            # Equal ones stand in the order of their numbers, which means nothing.
            order = np.argsort(-score.round(12), kind="stable")
            ranks.append(1 + np.flatnonzero(order == target)[0])
    return per_user("ndcg", np.array(ranks), 10).reshape(-1, 4).mean(axis=0)


def test_what_the_set_is_worth_beside_the_last_item():
    """The last item says much and the taste a third more. The history as good as says
    the taste, in any order.
    """
    last, history, shuffled, known = bayes_ndcg("last_and_set")
    assert last > 5 * chance_ndcg(100, 10)
    assert known > 1.3 * last
    assert history > 1.3 * last and history == shuffled


def test_what_order_is_worth_when_the_taste_changes():
    """Who cannot tell the old items from the new ones is not sure of the taste."""
    last, history, shuffled, known = bayes_ndcg("drift")
    assert last > 3 * chance_ndcg(100, 10)
    assert known > 1.3 * last
    assert 1.2 * last < history < known
    assert shuffled < 0.85 * history


# What the diagnostics say


@cache
def effects_of(truth, architecture):
    """Train on all but the last two events, and shuffle the histories of the last one:
    NDCG@10 and its changes with intervals.
    """
    histories = histories_of(truth)
    torch.manual_seed(0)
    heads = {} if architecture == "gru4rec" else {"heads": 1}
    model = build(
        architecture, ITEMS, {"hidden_size": 32, "maximum_length": EVENTS, "dropout": 0.1, **heads}
    )
    settings = TrainingSettings(
        batch_size=64,
        learning_rate=0.005,
        maximum_epochs=24,
        round_updates=24,
        patience=3,
        validation_users=256,
        length_groups=1,
    )
    validation = held_out(
        [history[:-2] for history in histories], [history[-2] for history in histories]
    )
    train(
        model,
        sequences_of([history[:-2] for history in histories]),
        validation,
        settings,
        filter_seen=False,
        seed=1,
    )
    test = held_out([history[:-1] for history in histories], [history[-1] for history in histories])
    chosen = ways([*INTERVENTIONS, "newest_2", "newest_4", "newest_6"], 2)
    found = effects(
        model,
        test,
        interventions(chosen, test, model.input_length, 0),
        filter_seen=False,
        list_length=10,
    )
    ids = pa.array(map(str, range(USERS)))
    table = pa.table(effects_table(found, test, model.input_length, ids, ids)).to_pandas()
    table = table.assign(dataset=truth, split="loo", model=architecture, seed=1)
    summary = worths([table], 10, Bootstrap(resamples=500, seed=0))
    summary = summary[summary["group"] == "all"]
    return summary.set_index(["reading", "part"])[["value", "ci_low", "ci_high"]]


def truth_told(found) -> str:
    """Which truth the account and the newest items alone tell, by their intervals."""
    order, items, last, rest = (
        found.loc[("account", part)]
        for part in (
            "order of the earlier items",
            "which items came before",
            "the last item",
            "needs no history",
        )
    )
    if rest["ci_high"] > 100:
        return "nothing"
    if order["ci_low"] > 50:
        return "last_but_one"
    if abs(order["value"]) < 3 and items["ci_high"] < 3:
        return "last"
    # Older items are of another taste: without them nothing is lost.
    if found.loc[("change", "newest_4"), "ci_low"] > -3:
        return "drift"
    return "last_and_set" if last["ci_low"] > 21 else "set"


@pytest.mark.parametrize("architecture", ["sasrec", "gru4rec"])
@pytest.mark.parametrize("truth", TRUTHS)
def test_account_and_newest_items_tell_the_truths_apart(truth, architecture):
    assert truth_told(effects_of(truth, architecture)) == truth


def test_shuffles_do_not_tell_the_last_item_from_the_last_and_the_set():
    """Both: nothing lost by the first shuffle, much by the second. What tells them
    apart is what the earlier items are replaced by. (On so small a log SASRec learns
    little but the set.)
    """
    alone, both = (effects_of(truth, "gru4rec") for truth in ("last", "last_and_set"))
    for found in (alone, both):
        assert abs(found.loc[("change", "partial"), "value"]) < 3
        assert found.loc[("change", "full"), "ci_high"] < -15
    assert alone.loc[("change", "strangers_context"), "ci_low"] > -3
    assert both.loc[("change", "strangers_context"), "ci_high"] < -30


@pytest.mark.parametrize("architecture", ["sasrec", "gru4rec"])
def test_what_is_learned_of_each_truth(architecture):
    """Near the best that can be had; where nothing can be learned, chance: that no item
    follows itself is all there is. Whoever does not learn that may waste the first
    place on the last item, as SASRec does.
    """
    for truth, share in (("last", 0.9), ("last_but_one", 0.7)):
        found = effects_of(truth, architecture).loc[("accuracy", "ordered")]
        assert found["value"] > share * best_ndcg()
    for truth in ("set", "last_and_set", "drift"):
        found = effects_of(truth, architecture).loc[("accuracy", "ordered")]
        assert found["ci_low"] > 1.8 * chance_ndcg(ITEMS, 10)
    found = effects_of("nothing", architecture).loc[("accuracy", "ordered")]
    first_place_wasted = chance_ndcg(ITEMS - 1, 10) - 1 / (ITEMS - 1)
    assert found["ci_low"] < chance_ndcg(ITEMS - 1, 10) and found["ci_high"] > first_place_wasted
    assert per_user("ndcg", np.arange(1, ITEMS + 1), 10).mean() == pytest.approx(
        chance_ndcg(ITEMS, 10)
    )
