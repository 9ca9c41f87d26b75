"""The cheap dropout: share, scale, gradient, evaluation, repeatability."""

import math

import pytest
import torch

from lastitem.models.dropout import Dropout, dropout, dropped_attention


@pytest.mark.parametrize("probability", [0.1, 0.2, 0.5, 0.9])
def test_share_and_scale(probability):
    """The kept share is 1 − p within five standard deviations, and what is kept is
    scaled by 1/(1 − p).
    """
    torch.manual_seed(0)
    count = 400_001  # no multiple of four: the last draw is used in part
    out = dropout(torch.ones(count), probability, True)
    kept = out != 0
    spread = math.sqrt(probability * (1 - probability) / count)
    assert abs(float(kept.double().mean()) - (1 - probability)) < 5 * spread
    torch.testing.assert_close(
        out[kept], torch.full_like(out[kept], 1 / (1 - probability)), rtol=1e-4, atol=0
    )


def test_elements_of_one_draw_are_independent():
    """Four elements share 64 random bits; each pair of neighbours must still be dropped
    together a share p² of the time.
    """
    torch.manual_seed(0)
    dropped = dropout(torch.ones(400_000), 0.5, True).view(-1, 4) == 0
    for a in range(4):
        assert abs(float(dropped[:, a].double().mean()) - 0.5) < 0.01
        for b in range(a):
            assert abs(float((dropped[:, a] & dropped[:, b]).double().mean()) - 0.25) < 0.01
    assert abs(float((dropped[1:, 0] & dropped[:-1, 3]).double().mean()) - 0.25) < 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_type_and_values(dtype):
    torch.manual_seed(0)
    x = torch.randn(3, 5, 7, dtype=dtype).transpose(0, 2)
    out = dropout(x, 0.25, True)
    assert out.shape == x.shape
    assert out.dtype == dtype
    kept = out != 0
    torch.testing.assert_close(out[kept], x[kept] / 0.75)
    assert 0 < int(kept.sum()) < x.numel()


def test_gradient_is_zero_where_dropped_and_scaled_elsewhere():
    torch.manual_seed(0)
    x = torch.randn(50, 20, dtype=torch.float64, requires_grad=True)
    outer = torch.randn(50, 20, dtype=torch.float64)
    out = dropout(x, 0.4, True)
    out.backward(outer)
    dropped = out == 0
    assert 0 < int(dropped.sum()) < x.numel()
    assert bool((x.grad[dropped] == 0).all())
    torch.testing.assert_close(x.grad[~dropped], outer[~dropped] / 0.6, rtol=1e-4, atol=0)
    torch.testing.assert_close(x.grad, outer * out.detach() / x.detach())


def test_evaluation_and_zero_change_nothing():
    """The input itself comes back, and no random number is drawn."""
    x = torch.randn(10)
    module = Dropout(0.5).eval()
    state = torch.get_rng_state()
    assert module(x) is x
    assert dropout(x, 0.0, True) is x
    assert torch.equal(torch.get_rng_state(), state)


def test_same_seed_same_pattern():
    """And another seed, another pattern."""
    x = torch.ones(1000)
    patterns = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        patterns.append(dropout(x, 0.5, True))
    assert torch.equal(patterns[0], patterns[1])
    assert not torch.equal(patterns[0], patterns[2])


def test_mean_is_exact_for_the_rounded_probability():
    """p is rounded to 1/65,536; the scale belongs to the rounded value, so mean and
    kept share fit each other.
    """
    torch.manual_seed(0)
    out = dropout(torch.ones(1000, dtype=torch.float64), 0.1, True)
    levels = round(0.1 * 65_536)
    assert float(out.max()) == 65_536 / (65_536 - levels)


@pytest.mark.parametrize("probability", [1e-9, 0.999999, 1.0])
def test_extreme_probabilities(probability):
    """Allowed by the schema (below 1), so neither may crash: nearly nothing, nearly
    all, all dropped.
    """
    torch.manual_seed(0)
    out = dropout(torch.ones(100), probability, True)
    assert bool(torch.isfinite(out).all())
    assert int((out != 0).sum()) == (100 if probability < 0.5 else 0)


def test_empty_input():
    assert dropout(torch.ones(0, 4), 0.5, True).shape == (0, 4)


# Attention with dropout on its weights

B, H, L = 3, 2, 7


def masks():
    """Causal; padding of each row; one for each pair of positions, as BSARec's."""
    real = torch.arange(L) < torch.tensor([7, 3, 1])[:, None]
    pairs = real[:, None, None, :] & torch.ones(L, L).tril().bool() | torch.eye(L).bool()
    return {"causal": None, "padded": real[:, None, None, :], "pairs": pairs}


def literal_attention(q, k, v, mask, factor):
    allowed = torch.ones(L, L).tril().bool() if mask is None else mask
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~allowed, -torch.inf)
    return (scores.softmax(dim=-1) * factor) @ v


@pytest.mark.parametrize("name", masks())
@pytest.mark.parametrize("queries", [1, 3, 7, 64])
def test_attention_in_parts_is_the_formula_in_value_and_gradient(name, queries, monkeypatch):
    """Which weights are kept is read off values that are the unit vectors; the same
    seed then keeps the same for others.
    """
    monkeypatch.setattr("lastitem.models.dropout._QUERIES", queries)
    mask, probability = masks()[name], 0.375
    generator = torch.Generator().manual_seed(0)
    q, k, v, outer = torch.randn(4, B, H, L, L, generator=generator, dtype=torch.float64).unbind()
    for part in (q, k, v):
        part.requires_grad_()
    unit = torch.eye(L, dtype=torch.float64).expand(B, H, L, L)
    torch.manual_seed(5)
    factor = (dropped_attention(q, k, unit, mask, probability) != 0) / (1 - probability)
    torch.manual_seed(5)
    found = dropped_attention(q, k, v, mask, probability)
    expected = literal_attention(q, k, v, mask, factor.detach())
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, (q, k, v), outer),
        torch.autograd.grad(expected, (q, k, v), outer),
    )


def test_weights_of_attention_are_dropped_independently():
    """The kept share is 1 − p for every pair of positions that may see each other."""
    torch.manual_seed(0)
    q, rows = torch.zeros(20_000, 1, 4, 4), torch.eye(4).expand(20_000, 1, 4, 4)
    kept = dropped_attention(q, q, rows, None, 0.25)[:, 0] != 0
    share = kept.double().mean(dim=0)
    spread = math.sqrt(0.25 * 0.75 / 20_000)
    assert bool(((share - 0.75).abs() < 5 * spread)[torch.ones(4, 4).tril().bool()].all())
    assert not bool(kept[:, torch.ones(4, 4).triu(1).bool()].any())
    both = (kept[:, 3, 0] & kept[:, 3, 1]).double().mean()
    assert abs(float(both) - 0.75**2) < 0.02


def test_attention_computes_nothing_behind_the_last_query(monkeypatch):
    """What stands behind may be anything."""
    monkeypatch.setattr("lastitem.models.dropout._QUERIES", 3)
    q = torch.randn(1, 1, 7, 7, generator=torch.Generator().manual_seed(0))
    damaged = q.clone()
    damaged[:, :, 3:] = torch.nan
    torch.manual_seed(0)
    whole = dropped_attention(q, q, q, None, 0.5)[:, :, :3]
    torch.manual_seed(0)
    assert torch.equal(dropped_attention(damaged, damaged, damaged, None, 0.5)[:, :, :3], whole)
