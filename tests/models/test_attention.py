"""The attention block against loops over heads, queries and sources."""

import math

import pytest
import torch

from lastitem.evaluation.probing import probing
from lastitem.models.attention import AttentionBlock, MultiHeadAttention

SIZE, HEADS, INNER = 6, 3, 10


def randomize(module, seed=0):
    """Draw every parameter, biases and gains included, so that no term can be forgotten
    unnoticed.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(
                0.5 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            )
    return module.double().eval()


def vectors(batch, length, seed=1):
    return torch.randn(
        batch, length, SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


@torch.no_grad()
def looped_attention(attention, query, source, allowed):
    """One number at a time: weights [B, H, L, L] and output [B, L, d]; ``allowed`` says
    whether query i may read source j.
    """
    batch, length, size = query.shape
    width = size // attention.heads
    weights = torch.zeros(batch, attention.heads, length, length, dtype=torch.float64)
    output = torch.zeros_like(query)
    for b in range(batch):
        for i in range(length):
            mixed = torch.zeros(size, dtype=torch.float64)
            for h in range(attention.heads):
                part = slice(h * width, (h + 1) * width)
                q = attention.query.weight[part] @ query[b, i] + attention.query.bias[part]
                score = {}
                for j in range(length):
                    if allowed(b, i, j):
                        k = attention.key.weight[part] @ source[b, j] + attention.key.bias[part]
                        score[j] = float(q @ k) / math.sqrt(width)
                total = sum(math.exp(value) for value in score.values())
                for j, value in score.items():
                    weights[b, h, i, j] = math.exp(value) / total
                    v = attention.value.weight[part] @ source[b, j] + attention.value.bias[part]
                    mixed[part] += weights[b, h, i, j] * v
            output[b, i] = attention.output.weight @ mixed + attention.output.bias
    return weights, output


def normalized(vector, norm):
    deviation = torch.sqrt(((vector - vector.mean()) ** 2).mean() + norm.eps)
    return norm.weight * (vector - vector.mean()) / deviation + norm.bias


def fed_forward(vector, layer, activation):
    inner = layer.inner.weight @ vector + layer.inner.bias
    if activation == "relu":
        inner = torch.tensor([max(float(value), 0.0) for value in inner], dtype=torch.float64)
    else:
        inner = torch.tensor(
            [0.5 * float(v) * (1 + math.erf(float(v) / math.sqrt(2))) for v in inner],
            dtype=torch.float64,
        )
    return layer.outer.weight @ inner + layer.outer.bias


@torch.no_grad()
def looped_block(block, x, allowed, scale, activation):
    """``post``: h = LN(λx + MHA(x, x)), out = LN(h + FFN(h)); ``pre``: q = LN(x), h =
    LN(λq + MHA(q, x)), out = h + FFN(h).
    """
    query = x.clone()
    if block.order == "pre":
        for b in range(len(x)):
            for i in range(x.shape[1]):
                query[b, i] = normalized(x[b, i], block.other_norm)
    _, attended = looped_attention(block.attention, query, x, allowed)
    out = torch.zeros_like(x)
    for b in range(len(x)):
        for i in range(x.shape[1]):
            h = normalized(scale * query[b, i] + attended[b, i], block.attention_norm)
            out[b, i] = h + fed_forward(h, block.feed_forward, activation)
            if block.order == "post":
                out[b, i] = normalized(out[b, i], block.other_norm)
    return out


def attend(attention, query, source, mask):
    """The output [B, Q, d] of a whole attention."""
    return attention.join(attention.mix(*attention.project(query, source), mask))


def check_against_loops(attention, query, source, mask, allowed):
    """Both ways through the code, the fused kernel and the plain formula."""
    weights, expected = looped_attention(attention, query, source, allowed)
    torch.testing.assert_close(attend(attention, query, source, mask), expected, rtol=0, atol=1e-12)
    q, k, v = attention.project(query, source)
    assert v.shape == (len(query), HEADS, source.shape[1], SIZE // HEADS)
    found = attention.weights(q, k, mask)
    torch.testing.assert_close(found, weights, rtol=0, atol=1e-12)
    for mixed in (attention.mix(q, k, v, mask), found @ v):
        torch.testing.assert_close(mixed, weights @ v, rtol=0, atol=1e-12)
        torch.testing.assert_close(attention.join(mixed), expected, rtol=0, atol=1e-12)


def test_causal_attention_equals_loops():
    attention = randomize(MultiHeadAttention(SIZE, HEADS, 0.3))
    query, source = vectors(2, 5, seed=1), vectors(2, 5, seed=2)
    check_against_loops(attention, query, source, None, lambda b, i, j: j <= i)


def test_masked_attention_equals_loops():
    """True in the mask means "may be read": a key mask that hides the last two
    positions of the second row.
    """
    attention = randomize(MultiHeadAttention(SIZE, HEADS, 0.3))
    x = vectors(2, 5)
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    mask = real[:, None, None, :]
    check_against_loops(attention, x, x, mask, lambda b, i, j: bool(real[b, j]))


def test_weights_are_a_distribution_over_what_may_be_read():
    attention = randomize(MultiHeadAttention(SIZE, HEADS, 0.0))
    x = vectors(3, 7)
    q, k, _ = attention.project(x, x)
    weights = attention.weights(q, k, None)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, HEADS, 7, dtype=torch.float64))
    assert bool((weights.triu(diagonal=1) == 0).all())


def test_huge_scores_stay_finite():
    """Scores of ±10⁶ must not overflow the softmax; the weight goes to the largest."""
    attention = randomize(MultiHeadAttention(SIZE, HEADS, 0.0))
    x = 1e3 * vectors(1, 4)
    q, k, v = attention.project(x, x)
    weights = attention.weights(q, k, None)
    output, fused = attention.join(weights @ v), attend(attention, x, x, None)
    assert bool(torch.isfinite(output).all())
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(1, HEADS, 4, dtype=torch.float64))
    torch.testing.assert_close(fused, output)


def test_dropout_falls_on_the_attention_weights():
    """In training single weights are zeroed or scaled by 1/(1 − p); with one source
    that shows in the output directly.
    """
    attention = randomize(MultiHeadAttention(SIZE, 1, 0.5))
    x = vectors(400, 1)
    plain = attend(attention, x, x, None) - attention.output.bias
    attention.train()
    torch.manual_seed(0)
    dropped = attend(attention, x, x, None) - attention.output.bias
    zero = dropped.abs().amax(dim=(1, 2)) < 1e-12
    torch.testing.assert_close(dropped[~zero], 2 * plain[~zero])
    assert 150 < int(zero.sum()) < 250


def test_dropout_keeps_the_expectation():
    """The output is linear in the weights, so its mean over many draws is the output
    without dropout.
    """
    attention = randomize(MultiHeadAttention(SIZE, HEADS, 0.3))
    x = vectors(1, 4)
    plain = attend(attention, x, x, None)
    attention.train()
    torch.manual_seed(0)
    draws = attend(attention, x.expand(20_000, -1, -1), x.expand(20_000, -1, -1), None)
    draws, plain = draws.detach(), plain.detach()
    error = (draws.mean(dim=0) - plain[0]).abs() / (draws.std(dim=0) / math.sqrt(20_000))
    assert float(error.max()) < 5


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("order", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_block_equals_loops(order, activation, scale):
    block = randomize(AttentionBlock(SIZE, HEADS, INNER, 0.2, order, activation=activation))
    x = vectors(2, 4)
    expected = looped_block(block, x, lambda b, i, j: j <= i, scale, activation)
    with probing(block, residual_scale=scale):
        torch.testing.assert_close(block(x, None), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("order", ["post", "pre"])
def test_scale_one_is_the_plain_block_bit_for_bit(order):
    """On one block, in single precision as in use."""
    block = randomize(AttentionBlock(SIZE, HEADS, INNER, 0.2, order)).float()
    x = vectors(2, 9).float()
    plain = block(x, None)
    with probing(block, residual_scale=1.0):
        assert torch.equal(block(x, None), plain)


@pytest.mark.parametrize("order", ["post", "pre"])
def test_trace_says_what_happened_and_changes_nothing(order):
    """The trace's terms rebuild the vector in front of the normalization
    and behind it.
    """
    block = randomize(AttentionBlock(SIZE, HEADS, INNER, 0.2, order))
    x = vectors(2, 5)
    with probing(block, residual_scale=0.4):
        expected = block(x, None)
    with probing(block, residual_scale=0.4, query="every") as traces:
        torch.testing.assert_close(block(x, None), expected, rtol=0, atol=1e-12)
    (found,) = traces
    query = block.other_norm(x) if order == "pre" else x
    weights, attended = looped_attention(block.attention, query, x, lambda b, i, j: j <= i)
    torch.testing.assert_close(found.attention, weights, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.residual, query)
    torch.testing.assert_close(found.before_norm, 0.4 * query + attended, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.after_norm, block.attention_norm(found.before_norm))
    assert found.residual_scale == 0.4
    rebuilt = torch.zeros_like(attended) + found.output_bias
    for head in range(HEADS):
        rebuilt += weights[:, head] @ found.values[:, head] @ found.output_weight[head]
    torch.testing.assert_close(rebuilt, attended, rtol=0, atol=1e-12)


def test_block_drops_in_three_places():
    """The published places: attention weights, attention output, feed-forward; each
    alone must change the output in training.
    """
    x = vectors(8, 6)
    for place in ("weights", "attention output", "feed-forward"):
        block = randomize(AttentionBlock(SIZE, HEADS, INNER, 0.0, "post"))
        plain = block(x, None)
        if place == "weights":
            block.attention.dropout = 0.5
        elif place == "attention output":
            block.attention_dropout.probability = 0.5
        else:
            block.feed_forward.dropout.probability = 0.5
        torch.testing.assert_close(block(x, None), plain)
        block.train()
        torch.manual_seed(0)
        assert not torch.allclose(block(x, None), plain), place
