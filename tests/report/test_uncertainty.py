"""Bootstrap intervals over users against a literal resampling loop; p-values against
every choice of signs, and by hand.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lastitem.report import uncertainty as statistics
from lastitem.report.uncertainty import (
    bootstrap_difference,
    bootstrap_ratio,
    holm,
    sign_flip_test,
    swap_test,
)
from tests import literal


def test_equals_the_literal_loop_over_the_same_draws():
    """The matrix product over counts is the sum over drawn users, column by column."""
    generator = np.random.default_rng(0)
    numerator, denominator = (
        generator.normal(size=(13, 4)),
        generator.integers(0, 5, (13, 4)).astype(float),
    )
    low, high = bootstrap_ratio(numerator, denominator, resamples=150, seed=6, level=0.9)
    counts = np.random.default_rng(6).multinomial(13, np.full(13, 1 / 13), size=150)
    drawn = [np.repeat(np.arange(13), count).tolist() for count in counts]
    for column in range(4):
        expected = literal.bootstrap(numerator[:, column], denominator[:, column], drawn, 0.9)
        assert (low[column], high[column]) == pytest.approx(expected)


def test_agrees_with_independent_draws_of_whole_users():
    """Another generator, users drawn one by one: the ends of the intervals agree within
    a tenth of their width.
    """
    generator = np.random.default_rng(1)
    cases = generator.integers(1, 6, 120).astype(float)
    values = np.column_stack(
        [generator.binomial(cases.astype(int), 0.3), generator.exponential(cases)]
    ).astype(float)
    low, high = bootstrap_ratio(values, np.column_stack([cases, cases]), resamples=4000, seed=2)
    drawn = generator.integers(0, 120, (4000, 120)).tolist()
    for column in range(2):
        expected = literal.bootstrap(values[:, column], cases, drawn, 0.95)
        assert (low[column], high[column]) == pytest.approx(
            expected, abs=0.1 * (expected[1] - expected[0])
        )


def test_of_a_mean_it_is_the_normal_interval():
    """400 users, denominator one: half width 1.96 · sd / √n."""
    values = np.random.default_rng(3).normal(5.0, 2.0, (400, 1))
    low, high = bootstrap_ratio(values, np.ones((400, 1)), resamples=5000, seed=0)
    half_width = 1.96 * values.std() / np.sqrt(400)
    assert low[0] == pytest.approx(values.mean() - half_width, abs=0.08 * half_width)
    assert high[0] == pytest.approx(values.mean() + half_width, abs=0.08 * half_width)


def test_pairing_takes_out_what_users_share():
    """A condition that is 10 % below the other for every user has no uncertainty,
    however different the users are.
    """
    ordered = np.random.default_rng(4).exponential(size=(50, 1))
    low, high = bootstrap_ratio(0.9 * ordered, ordered, resamples=300, seed=0)
    assert (low[0], high[0]) == pytest.approx((0.9, 0.9), abs=1e-12)


def test_one_user_has_no_spread():
    low, high = bootstrap_ratio(np.array([[3.0]]), np.array([[4.0]]), resamples=20, seed=0)
    assert (low.tolist(), high.tolist()) == ([0.75], [0.75])


def test_two_users_have_three_possible_ratios():
    """0, ½ and 1 with probabilities ¼, ½ and ¼: the wide interval is [0, 1], the 40 %
    one is [½, ½].
    """
    numerator, denominator = np.array([[0.0], [1.0]]), np.ones((2, 1))
    assert [
        float(end[0]) for end in bootstrap_ratio(numerator, denominator, resamples=2000, seed=5)
    ] == [0.0, 1.0]
    assert [
        float(end[0])
        for end in bootstrap_ratio(numerator, denominator, resamples=2000, seed=5, level=0.4)
    ] == [0.5, 0.5]


def test_an_empty_denominator_gives_nan_only_in_its_column():
    numerator, denominator = np.array([[0.0, 1.0], [0.0, 2.0]]), np.array([[0.0, 2.0], [0.0, 4.0]])
    low, high = bootstrap_ratio(numerator, denominator, resamples=50, seed=0)
    assert np.isnan([low[0], high[0]]).all()
    assert (low[1], high[1]) == (0.5, 0.5)
    low, high = bootstrap_ratio(np.zeros((30, 2)), np.zeros((30, 2)), resamples=100, seed=0)
    assert np.isnan([low, high]).all(), "nothing is hit at all"


def test_resamples_without_a_denominator_are_left_out():
    """Half the users are out of the measure: the ratio of the others is exact in every
    resample that has any of them.
    """
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
        np.testing.assert_allclose(
            bootstrap_ratio(numerator, denominator, resamples=101, seed=1), first, rtol=1e-12
        )


# Paired differences


def literal_sign_flip(differences):
    """Every choice of signs: the share of sums at least as far from zero as the
    observed one (two-sided, by symmetry).
    """
    sums = [
        sum(sign * value for sign, value in zip(signs, differences, strict=True))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return sum(abs(found) >= abs(sum(differences)) - 1e-12 for found in sums) / len(sums)


@pytest.mark.parametrize(
    "differences",
    [
        [0.5],
        [1.0, -0.25],
        [0.5, 0.3, 0.2],
        [1.0, 2.0, 3.0, -1.5],
        [0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7],
    ],
)
def test_few_users_every_choice_of_signs(differences):
    """Users without a difference change nothing."""
    padded = np.array([*differences, 0.0, 0.0, 0.0])[:, None]
    found = sign_flip_test(padded, permutations=9999, seed=0)
    assert found[0] == pytest.approx(literal_sign_flip(differences), abs=1e-12)


def test_equal_differences_are_the_exact_sign_test():
    """Hits won and lost: 8 against 2 of ten; p = 2 · (1 + 10 + 45) / 2¹⁰, and far below
    1 / permutations where the data say so.
    """
    won_and_lost = np.array([[1.0] * 8 + [-1.0] * 2]).T
    assert sign_flip_test(won_and_lost, permutations=99, seed=0)[0] == pytest.approx(2 * 56 / 1024)
    assert sign_flip_test(np.ones((100, 1)), permutations=99, seed=0)[0] == pytest.approx(2.0**-99)


def test_many_users_random_signs():
    """Against the normal limit: Σ d / √Σ d²; the same seed gives the same p, and it is
    never 0.
    """
    generator = np.random.default_rng(3)
    differences = generator.normal([0.05, 0.05, 1.05], 1.0, (2000, 3))
    found = sign_flip_test(differences, permutations=9999, seed=1)
    expected = [
        math.erfc(abs(column.sum()) / math.sqrt((column**2).sum()) / math.sqrt(2))
        for column in differences.T
    ]
    assert found[:2] == pytest.approx(expected[:2], abs=0.02)
    assert 0 < found[2] <= 2 / 10_000
    assert np.array_equal(found, sign_flip_test(differences, permutations=9999, seed=1))


def test_no_difference_no_evidence():
    assert sign_flip_test(np.zeros((5, 2)), permutations=99, seed=0).tolist() == [1.0, 1.0]
    assert sign_flip_test(np.zeros((0, 1)), permutations=99, seed=0).tolist() == [1.0]


def test_rounding_is_no_difference():
    """The mean of seven equal values may miss the value by its last bit; equal
    differences may, too, and are a sign test still.
    """
    noise = np.full((200, 1), np.spacing(1 / np.log2(11)))
    assert sign_flip_test(noise, permutations=99, seed=0).tolist() == [1.0]
    nearly = np.array([[0.3, 0.1 + 0.2] * 20]).T
    assert sign_flip_test(nearly, permutations=99, seed=0)[0] == pytest.approx(2.0**-39)


def test_without_an_effect_small_values_are_as_rare_as_they_say():
    """300 studies of 40 users with symmetric differences: about a tenth of the p-values
    lie below 0.1.
    """
    differences = np.random.default_rng(5).normal(size=(40, 300))
    found = sign_flip_test(differences, permutations=999, seed=0)
    assert 0.05 < (found < 0.1).mean() < 0.15


def test_holm_by_hand():
    """Sorted 0.01, 0.02, 0.03, 0.4 times 4, 3, 2, 1 is 0.04, 0.06, 0.06, 0.4: the third
    may not fall below the second.
    """
    assert holm(np.array([0.03, 0.01, 0.4, 0.02])) == pytest.approx([0.06, 0.04, 0.4, 0.06])
    assert holm(np.array([0.5, 0.9])).tolist() == [1.0, 1.0]
    assert holm(np.array([])).tolist() == []


# Differences of two ratios


def test_the_difference_is_that_of_both_ratios_over_the_same_users():
    """Against a loop over the same draws: user by user, both sides."""
    generator = np.random.default_rng(5)
    numerator, denominator = (
        generator.normal(size=(11, 3, 2)),
        generator.integers(0, 4, (11, 3, 2)).astype(float),
    )
    low, high = bootstrap_difference(numerator, denominator, resamples=200, seed=4, level=0.9)
    counts = np.random.default_rng(4).multinomial(11, np.full(11, 1 / 11), size=200)
    for column in range(3):
        found = []
        for count in counts:
            users = np.repeat(np.arange(11), count)
            one, other = (
                numerator[users, column, side].sum() / denominator[users, column, side].sum()
                for side in (0, 1)
            )
            found.append(one - other)
        assert (low[column], high[column]) == pytest.approx(np.quantile(found, [0.05, 0.95]))


def test_swapping_against_every_choice_of_users():
    """Eight users, all 256 choices: the random ones come close to the exact share."""
    generator = np.random.default_rng(6)
    numerator, denominator = (
        generator.normal(0.5, 1, (8, 2, 2)),
        generator.integers(1, 4, (8, 2, 2)).astype(float),
    )

    def difference(swapped, column):
        sides = [
            np.where(swapped, table[:, column, 1 - side], table[:, column, side]).sum()
            for side in (0, 1)
            for table in (numerator, denominator)
        ]
        return sides[0] / sides[1] - sides[2] / sides[3]

    found = swap_test(numerator, denominator, permutations=19_999, seed=0)
    for column in range(2):
        every = [
            abs(difference(np.array(choice), column))
            for choice in itertools.product([False, True], repeat=8)
        ]
        exact = np.mean(np.array(every) >= every[0] - 1e-12)
        assert found[column] == pytest.approx(exact, abs=0.015)
    assert np.array_equal(found, swap_test(numerator, denominator, permutations=19_999, seed=0))


def test_swapping_what_is_alike_or_empty():
    """Equal sides: p is 1. A side without a denominator has no ratio, so there is no p.
    A clear difference: the smallest p there is.
    """
    alike, empty, clear = (
        np.ones((30, 1, 2)),
        np.stack([np.ones((30, 1)), np.zeros((30, 1))], axis=2),
        np.ones((30, 1, 2)),
    )
    clear[:, :, 0] = 2
    found = swap_test(
        np.concatenate([alike, alike, clear], axis=1),
        np.concatenate([alike, empty, alike], axis=1),
        permutations=999,
        seed=0,
    )
    assert found[0] == 1 and np.isnan(found[1]) and found[2] == pytest.approx(1 / 1000)
