"""What a model is given in place of its input: shuffles, cuts, other users' items."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch

import intervene
from lastitem.data.sequences import HeldOut
from lastitem.errors import InputError
from lastitem.evaluation.effects import brought_in, effects, length_groups, overlap
from lastitem.evaluation.interventions import FUNCTIONS, intervention, interventions
from lastitem.evaluation.metrics import per_user
from lastitem.evaluation.ranking import rank
from lastitem.models.registry import build
from lastitem.randomness import STREAM_DONORS, STREAM_POOL, hash_keys
from lastitem.study.interventions import INTERVENTIONS, TESTED, known, ways
from tests import literal
from tests.evaluation.test_ranking import MODELS, files, random_cases, untrained


def batch(histories: list[list[int]], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded items and lengths."""
    items = torch.tensor([history + [0] * (width - len(history)) for history in histories])
    return items, torch.tensor([len(history) for history in histories])


def permute(
    items: torch.Tensor,
    length: torch.Tensor,
    users: np.ndarray,
    *,
    keep_last: bool,
    seed: int,
    repeat: int,
) -> tuple[torch.Tensor, np.ndarray]:
    """The shuffle of a batch of these users, and which rows came out as they were."""
    cases = literal.held_out([[1]] * len(users), [1] * len(users), users.tolist())
    name = "partial" if keep_last else "full"
    change = intervention(name, cases, items.shape[1], seed=seed, repeat=repeat)
    shuffled, kept = change(items, length, np.arange(len(users)))
    assert torch.equal(kept, length)
    return shuffled, (shuffled == items).all(dim=1).numpy()


def inputs_of(model) -> list[torch.Tensor]:
    """A list that fills with what the model's embedding is asked for."""
    seen: list[torch.Tensor] = []
    model.embedding.register_forward_hook(
        lambda _, arguments, __: seen.append(arguments[0].clone())
    )
    return seen


class TestPermute:
    def test_full_keeps_the_items_and_the_padding(self):
        generator = np.random.default_rng(0)
        histories = [
            generator.integers(1, 50, generator.integers(1, 12)).tolist() for _ in range(200)
        ]
        items, length = batch(histories, 13)
        shuffled, unchanged = permute(
            items, length, np.arange(200), keep_last=False, seed=1, repeat=0
        )
        for row, history in enumerate(histories):
            out = shuffled[row].tolist()
            assert sorted(out[: len(history)]) == sorted(history)
            assert out[len(history) :] == [0] * (13 - len(history))
            assert unchanged[row] == (out[: len(history)] == history)
        moved = [
            shuffled[row, len(h) - 1] != h[-1] for row, h in enumerate(histories) if len(h) > 5
        ]
        assert np.mean(moved) > 0.6

    def test_partial_keeps_the_last_item_in_its_place(self):
        generator = np.random.default_rng(1)
        histories = [
            generator.integers(1, 50, generator.integers(1, 12)).tolist() for _ in range(200)
        ]
        items, length = batch(histories, 13)
        shuffled, unchanged = permute(
            items, length, np.arange(200), keep_last=True, seed=1, repeat=0
        )
        for row, history in enumerate(histories):
            out = shuffled[row].tolist()
            assert out[len(history) - 1] == history[-1]
            assert sorted(out[: len(history) - 1]) == sorted(history[:-1])
            assert out[len(history) :] == [0] * (13 - len(history))
            if len(history) <= 2:
                assert unchanged[row]

    def test_depends_on_seed_user_and_repeat_only(self):
        """Not on the other rows, their order, or the width of the padding."""
        generator = np.random.default_rng(2)
        histories = [
            generator.permutation(50)[: generator.integers(1, 12)].tolist() for _ in range(100)
        ]
        users = generator.permutation(1000)[:100].astype(np.int32)
        for keep_last in (False, True):
            keywords = {"keep_last": keep_last, "seed": 5, "repeat": 2}
            wide, unchanged = permute(*batch(histories, 30), users, **keywords)
            order = generator.permutation(100)
            mixed, mixed_unchanged = permute(
                *batch([histories[row] for row in order], 12), users[order], **keywords
            )
            assert torch.equal(mixed, wide[order][:, :12])
            assert np.array_equal(mixed_unchanged, unchanged[order])
            for row in range(0, 100, 9):
                alone, _ = permute(
                    *batch([histories[row]], len(histories[row])), users[[row]], **keywords
                )
                assert alone[0].tolist() == wide[row, : len(histories[row])].tolist()

    def test_another_seed_user_or_repeat_gives_another_permutation(self):
        items, length = batch([list(range(1, 31))], 30)

        def out(user: int, seed: int, repeat: int) -> tuple[int, ...]:
            return tuple(
                permute(items, length, np.array([user]), keep_last=False, seed=seed, repeat=repeat)[
                    0
                ][0].tolist()
            )

        keys = [
            (user, seed, repeat) for user in range(4) for seed in range(4) for repeat in range(4)
        ]
        assert len({out(*key) for key in keys}) == len(keys)
        assert out(1, 2, 3) == out(1, 2, 3)

    @pytest.mark.parametrize(("keep_last", "count"), [(False, 24), (True, 6)])
    def test_every_permutation_is_equally_likely(self, keep_last, count):
        """24,000 users with four items: χ² below its mean + 5 standard deviations, over
        users and over repeats.
        """
        items, length = batch([[1, 2, 3, 4]] * 12_000, 6)
        drawn = Counter()
        for repeat in (0, 1):
            shuffled, _ = permute(
                items, length, np.arange(12_000), keep_last=keep_last, seed=0, repeat=repeat
            )
            drawn.update(map(tuple, shuffled[:, :4].tolist()))
        assert len(drawn) == count
        expected, freedom = 24_000 / count, count - 1
        assert (
            sum((seen - expected) ** 2 / expected for seen in drawn.values())
            < freedom + 5 * (2 * freedom) ** 0.5
        )

    def test_unchanged_share(self):
        """One item never changes, two change half the time, equal items cannot change,
        partial needs three to change any.
        """
        users = np.arange(4000)
        for history, keep_last, expected in (
            ([1], False, 1.0),
            ([1, 2], False, 0.5),
            ([1, 2, 3], False, 1 / 6),
            ([7, 7, 7], False, 1.0),
            ([1, 2], True, 1.0),
            ([1, 2, 3], True, 0.5),
        ):
            items, length = batch([history] * 4000, 5)
            shuffled, unchanged = permute(
                items, length, users, keep_last=keep_last, seed=0, repeat=0
            )
            assert unchanged.mean() == pytest.approx(expected, abs=0.04)
            assert np.array_equal(unchanged, (shuffled == items).all(dim=1).numpy())

    def test_the_input_itself_is_left_alone(self):
        items, length = batch([[1, 2, 3, 4, 5]] * 3, 5)
        before = items.clone()
        permute(items, length, np.arange(3), keep_last=False, seed=0, repeat=0)
        assert torch.equal(items, before)

    def test_unknown_order(self):
        with pytest.raises(InputError, match=r"'reversed' is not known; allowed: ordered, partial"):
            intervention("reversed", literal.held_out([[1]], [2]), 9)


class TestRankingShuffled:
    @pytest.mark.parametrize("order", ["partial", "full"])
    @pytest.mark.parametrize("name", sorted(MODELS))
    def test_other_users_do_not_change_anything(self, name, order):
        model = untrained(name, items=60)
        generator = np.random.default_rng(3)
        cases, _, _ = random_cases(generator, 60, count=60, longest=14)
        whole = rank(
            model, cases, filter_seen=True, change=intervention(order, cases, 99, seed=1, repeat=0)
        )
        mixed = generator.permutation(60)
        for selection in (mixed, mixed[:1], np.sort(mixed[:30])):
            fewer = cases.select(selection)
            change = intervention(order, fewer, 99, seed=1, repeat=0)
            found = rank(model, fewer, filter_seen=True, change=change)
            for part in ("target", "last", "last_but_one", "unchanged"):
                assert np.array_equal(getattr(found, part), getattr(whole, part)[selection]), part
        assert 0.05 < whole.unchanged.mean() < 0.6

    @pytest.mark.parametrize("name", sorted(MODELS))
    def test_ranks_are_those_of_the_shuffled_history(self, name):
        """The literal way: permute each truncated history alone, then rank it as an
        ordinary one.
        """
        model = untrained(name, items=40)
        cases, histories, targets = random_cases(np.random.default_rng(4), 40, count=40, longest=14)
        for order in ("partial", "full"):
            found = rank(
                model,
                cases,
                filter_seen=True,
                change=intervention(order, cases, 99, seed=7, repeat=3),
            )
            for case, (history, target) in enumerate(zip(histories, targets, strict=True)):
                kept = history[-model.input_length :]
                items, length = batch([kept], len(kept))
                shuffled, unchanged = permute(
                    items, length, np.array([case]), keep_last=order == "partial", seed=7, repeat=3
                )
                scores = literal.scores(model, shuffled[0].tolist())
                assert found.target[case, 0] == literal.rank_in(
                    literal.ranking(scores, set(history)), target
                )
                assert found.unchanged[case] == unchanged[0]

    def test_last_means_the_last_item_in_true_order(self):
        """History 1 … 5 fully shuffled before a model that copies its last input: 5 is
        first only where it came out last.
        """
        count = 200
        cases = literal.held_out([[1, 2, 3, 4, 5]] * count, [6] * count)
        found = rank(
            literal.TableModel(literal.copying_table(9)),
            cases,
            filter_seen=False,
            change=intervention("full", cases, 99, seed=0, repeat=0),
        )
        items, length = batch([[1, 2, 3, 4, 5]] * count, 5)
        came_last = permute(items, length, np.arange(count), keep_last=False, seed=0, repeat=0)[0][
            :, -1
        ].tolist()
        assert set(came_last) == {1, 2, 3, 4, 5}
        # The copying model ranks i, i − 1, …, 1, 9, 8, … after item i.
        assert found.last.tolist() == [(item - 5) % 9 + 1 for item in came_last]
        assert found.last_but_one.tolist() == [(item - 4) % 9 + 1 for item in came_last]
        partial = rank(
            literal.TableModel(literal.copying_table(9)),
            cases,
            filter_seen=False,
            change=intervention("partial", cases, 99, seed=0, repeat=0),
        )
        assert partial.last.tolist() == [1] * count
        assert partial.last_but_one.tolist() == [2] * count

    @pytest.mark.parametrize("order", ["partial", "full"])
    def test_the_mask_stays_behind_the_history(self, order):
        """What BERT4Rec's embedding is asked for: the newest items in some order, then
        the mask, then padding.
        """
        model = untrained("bert4rec", items=40, maximum_length=7)
        seen = inputs_of(model)
        cases, histories, _ = random_cases(np.random.default_rng(5), 40, count=30, longest=11)
        rank(
            model, cases, filter_seen=False, change=intervention(order, cases, 99, seed=0, repeat=0)
        )
        kept = [history[-6:] for history in histories]
        found = []
        # The rows that fill a tile repeat a case, so rows and histories are compared as
        # sets.
        for row in (row.tolist() for items in seen for row in items):
            at = row.index(model.mask)
            assert row.count(model.mask) == 1
            assert row[at + 1 :] == [0] * (len(row) - at - 1)
            found.append(row[:at])
        assert {tuple(sorted(row)) for row in found} == {tuple(sorted(history)) for history in kept}
        if order == "partial":
            assert {(*sorted(row), row[-1]) for row in found} == {
                (*sorted(history), history[-1]) for history in kept
            }

    def test_only_what_the_model_sees_is_shuffled(self):
        """Of ten items a model reads four: after truncation no older item comes in."""
        model = untrained("sasrec post", items=40, maximum_length=4)
        seen = inputs_of(model)
        cases = literal.held_out([list(range(1, 11))] * 50, [20] * 50)
        rank(
            model,
            cases,
            filter_seen=False,
            change=intervention("full", cases, 99, seed=0, repeat=0),
        )
        rows = [row for items in seen for row in items.tolist()][:50]
        assert {tuple(sorted(row)) for row in rows} == {(7, 8, 9, 10)}
        assert len(set(map(tuple, rows))) > 10

    def test_targets_and_histories_are_the_same_under_every_order(self):
        """The cases' arrays hash to the same before and after, and the filter removes
        the same items whatever the order.
        """
        model = untrained("sasrec post", items=40)
        cases, histories, _ = random_cases(np.random.default_rng(6), 40, count=50, longest=9)

        def digest() -> str:
            return hashlib.sha256(
                b"".join(
                    a.tobytes()
                    for a in (cases.items, cases.start, cases.end, cases.target, cases.user)
                )
            ).hexdigest()

        before, lost = digest(), []
        for order in ("ordered", "partial", "full"):
            found = rank(
                model,
                cases,
                filter_seen=True,
                change=intervention(order, cases, 99, seed=0, repeat=0),
                list_length=5,
            )
            assert digest() == before
            lost.append((found.target == 0).tolist())
            assert not any(
                set(history) & set(row)
                for history, row in zip(histories, found.lists.tolist(), strict=True)
            )
        assert lost[0] == lost[1] == lost[2]


def literal_input(
    name: str, case: int, log: list[tuple[int, list[int], int]], window: int, seed: int, repeat: int
) -> list[int] | None:
    """What a model is given of a case, word by word from the definitions; None where
    the intervention has no meaning.

    Parameters
    ----------
    log : user, history and target of each case.
    """
    inputs = [history[-window:] for _, history, _ in log]
    user, own, target = log[case][0], inputs[case], log[case][2]
    unwanted = {target, own[-1]}
    if name.startswith("newest_") or name == "last_only":
        return own[-(1 if name == "last_only" else int(name.split("_")[1])) :]
    if name == "without_last":
        return own[:-1] or None
    if name == "ordered":
        return own
    # The latest case of each user is the one with most history.
    latest: dict[int, list[int]] = {}
    for number, (other, history, _) in enumerate(log):
        before = [len(log[place][1]) for place in range(number) if log[place][0] == other]
        if all(length <= len(history) for length in before):
            latest[other] = inputs[number]
    ring = sorted(latest, key=lambda one: int(hash_keys(STREAM_DONORS, seed, repeat, one)))
    at = ring.index(user)
    donors = [latest[other] for other in ring[at + 1 :] + ring[:at]]
    if name == "pooled_context":
        pool = sorted(item for history in latest.values() for item in history[:-1])
        drawn = []
        for place in range(len(own) - 1):
            for attempt in range(64):
                key = int(hash_keys(STREAM_POOL, seed, repeat, user, place, attempt))
                if pool and pool[key % len(pool)] not in unwanted:
                    drawn.append(pool[key % len(pool)])
                    break
        return [*drawn, own[-1]]
    context: list[int] = []
    for donor in donors:
        earlier = [item for item in donor[:-1] if item not in unwanted]
        missing = len(own) - 1 - len(context)
        context = (earlier[-missing:] if missing else []) + context
    last = next((donor[-1] for donor in donors if donor[-1] not in unwanted), None)
    if name == "strangers_context":
        return [*context, own[-1]]
    if last is None:
        return None
    return [*(own[:-1] if name == "strangers_last" else context), last]


EVERY = [*INTERVENTIONS, "newest_2", "newest_3", "newest_50"]
NOT_SHUFFLES = [name for name in EVERY if name not in ("partial", "full")]


def random_log(seed: int, items: int, users: int, longest: int, several: bool = False):
    """User, history and target of each case, in mixed order; with ``several`` a user
    has up to three targets, each with the history up to it.
    """
    generator = np.random.default_rng(seed)
    log = []
    for user in generator.permutation(users).tolist():
        whole = generator.integers(1, items + 1, generator.integers(4, longest + 3)).tolist()
        for target in range(1, generator.integers(2, 4) if several else 2):
            log.append((user, whole[:-target], whole[-target]))
    log = [log[place] for place in generator.permutation(len(log))]
    users_of, histories, targets = ([row[part] for row in log] for part in range(3))
    return log, literal.held_out(histories, targets, users_of)


def read_as(change, cases: HeldOut, window: int) -> list[list[int] | None]:
    """What a change makes of each case, one batch of all."""
    kept = [
        cases.items[a:b].tolist()[-window:] for a, b in zip(cases.start, cases.end, strict=True)
    ]
    items, length = batch(kept, max(map(len, kept)))
    new, new_length = change(items, length, np.arange(len(cases)))
    assert not any(row[count:].any() for row, count in zip(new, new_length, strict=True) if count)
    return [
        row[:count].tolist() if count else None for row, count in zip(new, new_length, strict=True)
    ]


class TestInterventions:
    def test_names_and_functions_are_the_same(self):
        assert set(FUNCTIONS) == set(INTERVENTIONS)
        assert set(TESTED) < set(INTERVENTIONS)

    @pytest.mark.parametrize("name", NOT_SHUFFLES)
    @pytest.mark.parametrize(
        ("items", "users", "longest", "window", "several"),
        [
            (60, 25, 12, 9, False),
            (60, 25, 12, 9, True),
            # Few items: donors are often left out, and the ring may not suffice.
            (4, 6, 12, 10, True),
            (3, 3, 5, 99, False),
            (9, 2, 30, 7, True),
        ],
    )
    def test_as_defined(self, name, items, users, longest, window, several):
        for seed in range(3):
            log, cases = random_log(seed, items, users, longest, several)
            for repeat in (0, 3):
                change = intervention(name, cases, window, seed=seed, repeat=repeat)
                assert read_as(change, cases, window) == [
                    literal_input(name, case, log, window, seed, repeat) for case in range(len(log))
                ], (seed, repeat)

    @pytest.mark.parametrize("name", EVERY)
    def test_independent_of_the_order_of_the_file_and_of_the_batch(self, name):
        log, cases = random_log(5, 40, 30, 14, several=True)
        change = intervention(name, cases, 9, seed=2, repeat=1)
        whole = read_as(change, cases, 9)
        generator = np.random.default_rng(0)
        order = generator.permutation(len(log))
        mixed = cases.select(order)
        found = read_as(intervention(name, mixed, 9, seed=2, repeat=1), mixed, 9)
        assert found == [whole[place] for place in order]
        kept = [history[-9:] for _, history, _ in log]
        for case in range(0, len(log), 5):
            items, length = batch([kept[case]], 9)
            new, new_length = change(items, length, np.array([case]))
            assert (new[0, : new_length[0]].tolist() or None) == whole[case]

    @pytest.mark.parametrize("name", [name for name in INTERVENTIONS if known(name).draws])
    def test_another_seed_or_repeat_draws_otherwise(self, name):
        _, cases = random_log(6, 200, 40, 14)
        drawn = {
            str(read_as(intervention(name, cases, 12, seed=seed, repeat=repeat), cases, 12))
            for seed in range(3)
            for repeat in range(3)
        }
        assert len(drawn) == 9

    def test_nobody_gets_own_items_back_from_the_ring(self):
        """A user alone has no donor: no context, and no stranger's last item."""
        cases = literal.held_out([[1, 2, 3]], [4])
        assert read_as(intervention("strangers_context", cases, 9), cases, 9) == [[3]]
        assert read_as(intervention("strangers_last", cases, 9), cases, 9) == [None]
        assert read_as(intervention("stranger", cases, 9), cases, 9) == [None]

    def test_a_pooled_item_is_drawn_as_often_as_it_occurs(self):
        """Item 1 is three quarters of all earlier items, 2 a quarter."""
        histories = [[1, 1, 1, 2, 9]] * 2_000
        cases = literal.held_out(histories, [8] * len(histories))
        drawn = read_as(intervention("pooled_context", cases, 9), cases, 9)
        counted = Counter(item for row in drawn for item in row[:-1])
        assert set(counted) == {1, 2}
        assert counted[1] / sum(counted.values()) == pytest.approx(0.75, abs=0.02)

    def test_ways(self):
        assert ways(["last_only", "full", "newest_3", "last_only"], 2) == [
            *(("ordered", 0), ("last_only", 0), ("full", 0), ("full", 1), ("newest_3", 0)),
        ]
        for wrong in ("newest_0", "newest_", "Full", ""):
            with pytest.raises(InputError, match="is not known; allowed: ordered, partial"):
                known(wrong)


class TestEffects:
    @pytest.mark.parametrize("filter_seen", [True, False])
    @pytest.mark.parametrize("model_name", ["sasrec post", "bert4rec", "gru4rec"])
    def test_against_the_literal_way(self, model_name, filter_seen):
        """Each case alone: score the changed input by itself, sort the catalogue, and
        take what is not a candidate out of it.
        """
        model = untrained(model_name, items=30)
        log, cases = random_log(3, 30, 18, 12, several=True)
        window, chosen = model.input_length, ways(EVERY, 2)
        changes = interventions(chosen, cases, window, 4)
        found = effects(model, cases, changes, filter_seen=filter_seen, list_length=5)
        assert list(found) == chosen
        for case, (_, history, target) in enumerate(log):
            seen = set(history) if filter_seen else set()
            own = history[-window:]
            whole = literal.scores(model, own)
            for name, repeat in chosen:
                effect = found[name, repeat]
                if name in ("partial", "full"):
                    change = intervention(name, cases, window, seed=4, repeat=repeat)
                    new = read_as(change, cases, window)[case]
                else:
                    new = literal_input(name, case, log, window, 4, repeat)
                if new is None:
                    assert effect.length[case] == 0
                    continue
                assert effect.length[case] == len(new)
                assert effect.unchanged[case] == (new == own)
                scores = literal.scores(model, new)
                everything = literal.ranking(scores, seen)
                assert effect.target[case] == literal.rank_in(everything, target)
                assert effect.last[case] == literal.rank_in(literal.ranking(scores), history[-1])
                left_out = seen | (set(new) - set(own) - ({target} - seen))
                assert effect.common_target[case] == literal.rank_in(
                    literal.ranking(scores, left_out), target
                )
                assert effect.ordered_target[case] == literal.rank_in(
                    literal.ranking(whole, left_out), target
                )
                if name in ("last_only", "without_last", "stranger"):
                    lists = (literal.ranking(whole, seen)[:5], everything[:5])
                    shorter = min(map(len, lists))
                    shared = len(set(lists[0]) & set(lists[1]))
                    assert effect.overlap[case] == pytest.approx(shared / shorter)
                else:
                    assert np.isnan(effect.overlap[case])

    def test_what_is_brought_in(self):
        items = torch.tensor([[1, 2, 3, 0], [4, 4, 5, 6]])
        new = torch.tensor([[7, 2, 7, 8], [5, 4, 0, 0]])
        held = torch.zeros(2, 9, dtype=torch.bool).scatter_(1, items, True)
        assert brought_in(held, new).tolist() == [[7, 8], [0, 0]]
        assert brought_in(held, items).shape == (2, 0)

    def test_overlap_is_of_the_shorter_list(self):
        one, other = np.array([[1, 2, 3], [1, 0, 0], [0, 0, 0]]), np.array([[3, 9, 0]] * 3)
        assert overlap(one, other).tolist()[:2] == [0.5, 0.0]
        assert np.isnan(overlap(one, other)[2])

    def test_other_cases_do_not_change_ranks(self):
        """Which batch a case is in, and the order of the file."""
        model = untrained("sasrec post", items=60)
        log, cases = random_log(8, 60, 80, 14)
        chosen = ways(EVERY, 2)
        order = np.random.default_rng(1).permutation(len(log))
        found = []
        for own in (cases, cases.select(order)):
            changes = interventions(chosen, own, model.input_length, 0)
            found.append(effects(model, own, changes, filter_seen=True, list_length=5))
        for key in chosen:
            for part, values in vars(found[0][key]).items():
                other = getattr(found[1][key], part)
                assert np.array_equal(values[order], other, equal_nan=part == "overlap"), (
                    key,
                    part,
                )

    def test_groups_of_lengths(self):
        """Cut at the quartiles; what equals a cut is below it; equal cuts are one."""
        assert length_groups(np.arange(1, 9)).tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
        assert length_groups(np.array([5, 5, 5, 5])).tolist() == [1, 1, 1, 1]
        assert length_groups(np.array([1, 1, 1, 1, 9])).tolist() == [1, 1, 1, 1, 2]
        assert length_groups(np.array([2, 3, 3, 3, 9])).tolist() == [1, 1, 1, 1, 2]
        assert length_groups(np.array([], dtype=np.int64)).tolist() == []


def test_the_script_writes_every_intervention_of_every_case(tmp_path, capsys):
    """intervene.py: a row per case, intervention and repeat, with original ids; those
    for which an intervention has no meaning are counted and left out.
    """
    torch.manual_seed(0)
    settings = {"hidden_size": 8, "maximum_length": 6}
    model = build("sasrec", 30, settings)
    cases, histories, targets = random_cases(np.random.default_rng(7), 30, count=25, longest=9)
    arguments = files(tmp_path, model, "sasrec", settings, histories, targets)
    for name in ("train", "ranks", "summary", "recommendation-length", "recommendations"):
        at = arguments.index(f"--{name}")
        del arguments[at : at + 2]
    out = tmp_path / "interventions.parquet"
    chosen = ["partial", "without_last", "stranger"]
    arguments += ["--repeats", "3", "--shuffle-seed", "11", "--cutoff", "5", "--out", str(out)]
    intervene.main([*arguments, "--interventions", *chosen])
    table = pd.read_parquet(out)
    single = sum(len(history) == 1 for history in histories)
    assert single
    assert table.groupby(["intervention", "repeat"], observed=True).size().to_dict() == {
        ("ordered", 0): 25,
        ("without_last", 0): 25 - single,
        **{(name, repeat): 25 for name in ("partial", "stranger") for repeat in range(3)},
    }
    assert (
        f"without_last, repeat 0: {single:,} of 25 cases are out of it" in capsys.readouterr().out
    )
    found = effects(
        model,
        cases,
        interventions(ways(chosen, 3), cases, 6, 11),
        filter_seen=True,
        list_length=5,
    )
    for (name, repeat), rows in table.groupby(["intervention", "repeat"], observed=True):
        effect, kept = found[name, repeat], rows["case"].to_numpy()
        for column, values in (
            ("target_rank", effect.target),
            ("common_target_rank", effect.common_target),
            ("common_ordered_rank", effect.ordered_target),
            ("last_rank", effect.last),
            ("given_length", effect.length),
            ("unchanged", effect.unchanged),
        ):
            assert rows[column].tolist() == values[kept].tolist(), (name, column)
        assert rows["user_id"].tolist() == [f"user {user}" for user in kept]
        assert rows["target_id"].tolist() == [f"item {targets[case]}" for case in kept]
        assert rows["input_length"].tolist() == [min(6, len(histories[case])) for case in kept]


def test_ndcg_of_ordered_is_the_accuracy():
    """The ordered input under the interventions has the ranks of a plain ranking."""
    model = untrained("gru4rec", items=40)
    _, cases = random_log(9, 40, 30, 12)
    changes = interventions(ways([], 1), cases, model.input_length, 0)
    found = effects(model, cases, changes, filter_seen=True, list_length=5)["ordered", 0]
    plain = rank(model, cases, filter_seen=True)
    assert found.target.tolist() == plain.target[:, 0].tolist()
    assert found.common_target.tolist() == found.ordered_target.tolist() == found.target.tolist()
    assert found.last.tolist() == plain.last.tolist()
    assert per_user("ndcg", found.target, 10).sum() > 0
