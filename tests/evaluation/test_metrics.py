"""Metrics as readings of ranks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lastitem.evaluation.metrics import RANK_METRICS, coverage, per_user
from lastitem.evaluation.ranking import rank
from tests import literal


def test_ndcg_of_ranks_1_2_3_10_11():
    values = per_user("ndcg", np.array([1, 2, 3, 10, 11]), 10)
    assert values.round(4).tolist() == [1.0, 0.6309, 0.5, 0.2891, 0.0]


def test_hit_rate_and_reciprocal_rank_of_ranks_1_2_3_10_11():
    assert per_user("hr", np.array([1, 2, 3, 10, 11]), 10).tolist() == [1, 1, 1, 1, 0]
    assert per_user("mrr", np.array([1, 2, 3, 10, 11]), 10) == pytest.approx(
        [1, 1 / 2, 1 / 3, 1 / 10, 0]
    )


@pytest.mark.parametrize("metric", RANK_METRICS)
def test_rank_0_means_not_listed_and_is_a_miss_at_every_cutoff(metric):
    assert per_user(metric, np.array([0, 0], dtype=np.int32), 10**6).tolist() == [0, 0]


def test_equal_their_definitions_at_every_rank_and_cutoff():
    definitions = {
        "ndcg": lambda rank: 1 / math.log2(rank + 1),
        "hr": lambda rank: 1.0,
        "mrr": lambda rank: 1 / rank,
    }
    ranks = np.arange(0, 130, dtype=np.int32)
    for metric, definition in definitions.items():
        for cutoff in (1, 5, 10, 20, 50, 100):
            expected = [definition(rank) if 1 <= rank <= cutoff else 0.0 for rank in ranks.tolist()]
            found = per_user(metric, ranks, cutoff)
            assert found.dtype == np.float64
            assert found.tolist() == pytest.approx(expected, abs=1e-15)


def test_ndcg_is_dcg_over_ideal_dcg_with_one_relevant_item():
    """The textbook sum over a list of gains, the ideal list having the
    gain in front.
    """
    for rank_of_target in range(1, 13):
        gains = [1.0 if place == rank_of_target else 0.0 for place in range(1, 11)]
        found = sum(gain / math.log2(place + 1) for place, gain in enumerate(gains, 1)) / (
            1 / math.log2(2)
        )
        assert per_user("ndcg", np.array([rank_of_target]), 10)[0] == pytest.approx(
            found, abs=1e-15
        )


def test_shape_is_kept():
    assert per_user("hr", np.array([[1, 20], [0, 3]]), 10).tolist() == [[1, 0], [0, 1]]


def test_unknown_metric():
    with pytest.raises(ValueError, match="'recall' is not one of"):
        per_user("recall", np.array([1]), 10)


def test_mean_is_over_users_not_over_batches():
    """1,025 users in chunks of 1,024; only the last user is a hit. The mean of chunk
    means would be one half.
    """
    items = 8
    histories, targets = [[1]] * 1024 + [[2]], [3] * 1024 + [2]
    cases = literal.held_out(histories, targets)
    found = rank(literal.TableModel(literal.copying_table(items)), cases, filter_seen=False)
    hits = per_user("hr", found.target[:, 0], 1)
    assert hits.tolist() == [0] * 1024 + [1]
    assert hits.mean() == pytest.approx(1 / 1025)


def test_coverage_hand_worked():
    lists = np.array([[3, 1, 5], [3, 2, 0], [1, 0, 0]], dtype=np.int32)
    assert coverage(lists, items=10, cutoff=1) == pytest.approx(2 / 10)
    assert coverage(lists, items=10, cutoff=2) == pytest.approx(3 / 10)
    assert coverage(lists, items=10, cutoff=3) == pytest.approx(4 / 10)


def test_coverage_of_lists_with_every_item_is_one_and_padding_is_no_item():
    assert coverage(np.array([[1, 2], [3, 4], [0, 0]], dtype=np.int32), items=4, cutoff=2) == 1.0
    assert coverage(np.zeros((3, 5), dtype=np.int32), items=4, cutoff=5) == 0.0
