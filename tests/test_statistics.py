"""Bootstrap intervals over users, against a literal resampling loop."""

from __future__ import annotations

import numpy as np
import pytest

from lastitem import statistics
from lastitem.statistics import bootstrap_ratio
from tests import literal


def test_equals_the_literal_loop_over_the_same_draws():
    """The matrix product over counts is the sum over drawn users, column by column."""
    generator = np.random.default_rng(0)
    numerator, denominator = generator.normal(size=(13, 4)), generator.integers(0, 5, (13, 4)).astype(float)
    low, high = bootstrap_ratio(numerator, denominator, resamples=150, seed=6, level=0.9)
    counts = np.random.default_rng(6).multinomial(13, np.full(13, 1 / 13), size=150)
    drawn = [np.repeat(np.arange(13), count).tolist() for count in counts]
    for column in range(4):
        expected = literal.bootstrap(numerator[:, column], denominator[:, column], drawn, 0.9)
        assert (low[column], high[column]) == pytest.approx(expected)


def test_agrees_with_independent_draws_of_whole_users():
    """Another generator, users drawn one by one: the ends of the intervals agree within a tenth of their width."""
    generator = np.random.default_rng(1)
    cases = generator.integers(1, 6, 120).astype(float)
    values = np.column_stack([generator.binomial(cases.astype(int), 0.3), generator.exponential(cases)]).astype(float)
    low, high = bootstrap_ratio(values, np.column_stack([cases, cases]), resamples=4000, seed=2)
    drawn = generator.integers(0, 120, (4000, 120)).tolist()
    for column in range(2):
        expected = literal.bootstrap(values[:, column], cases, drawn, 0.95)
        assert (low[column], high[column]) == pytest.approx(expected, abs=0.1 * (expected[1] - expected[0]))


def test_of_a_mean_it_is_the_normal_interval():
    """400 users, denominator one: half width 1.96 · sd / √n."""
    values = np.random.default_rng(3).normal(5.0, 2.0, (400, 1))
    low, high = bootstrap_ratio(values, np.ones((400, 1)), resamples=5000, seed=0)
    half_width = 1.96 * values.std() / np.sqrt(400)
    assert low[0] == pytest.approx(values.mean() - half_width, abs=0.08 * half_width)
    assert high[0] == pytest.approx(values.mean() + half_width, abs=0.08 * half_width)


def test_pairing_takes_out_what_users_share():
    """A condition that is 10 % below the other for every user has no uncertainty, however different the users are."""
    ordered = np.random.default_rng(4).exponential(size=(50, 1))
    low, high = bootstrap_ratio(0.9 * ordered, ordered, resamples=300, seed=0)
    assert (low[0], high[0]) == pytest.approx((0.9, 0.9), abs=1e-12)


def test_one_user_has_no_spread():
    low, high = bootstrap_ratio(np.array([[3.0]]), np.array([[4.0]]), resamples=20, seed=0)
    assert (low.tolist(), high.tolist()) == ([0.75], [0.75])


def test_two_users_have_three_possible_ratios():
    """0, ½ and 1 with probabilities ¼, ½ and ¼: the wide interval is [0, 1], the 40 % one is [½, ½]."""
    numerator, denominator = np.array([[0.0], [1.0]]), np.ones((2, 1))
    assert [float(end[0]) for end in bootstrap_ratio(numerator, denominator, resamples=2000, seed=5)] == [0.0, 1.0]
    assert [float(end[0]) for end in bootstrap_ratio(numerator, denominator, resamples=2000, seed=5, level=0.4)] == [0.5, 0.5]


def test_an_empty_denominator_gives_nan_only_in_its_column():
    numerator, denominator = np.array([[0.0, 1.0], [0.0, 2.0]]), np.array([[0.0, 2.0], [0.0, 4.0]])
    low, high = bootstrap_ratio(numerator, denominator, resamples=50, seed=0)
    assert np.isnan([low[0], high[0]]).all()
    assert (low[1], high[1]) == (0.5, 0.5)


def test_resamples_without_a_denominator_are_left_out():
    """Half the users are out of the measure: the ratio of the others is exact in every resample that has any of them."""
    numerator, denominator = np.array([[0.0], [0.5]]), np.array([[0.0], [1.0]])
    low, high = bootstrap_ratio(numerator, denominator, resamples=100, seed=0)
    assert (low[0], high[0]) == (0.5, 0.5)


def test_depends_on_the_seed_and_not_on_the_bound_of_memory(monkeypatch):
    generator = np.random.default_rng(7)
    numerator, denominator = generator.random((30, 2)), generator.random((30, 2)) + 0.1
    first = bootstrap_ratio(numerator, denominator, resamples=101, seed=1)
    other = bootstrap_ratio(numerator, denominator, resamples=101, seed=2)
    assert not np.allclose(first, other)
    for bound in (1, 70, 30 * 50):
        monkeypatch.setattr(statistics, "_MAXIMUM_WEIGHTS", bound)
        np.testing.assert_allclose(bootstrap_ratio(numerator, denominator, resamples=101, seed=1), first, rtol=1e-12)
