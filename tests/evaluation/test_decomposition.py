"""Norm decomposition against the literal L×L×d tensor of parts, which only these tests
build.

The literal starts from the vectors that enter and leave a block (taken by hooks) and
the block's own weights; it shares no formula with the code under test, which never
forms single parts.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import decompose as script
from lastitem.data.sequences import HeldOut, read_held_out
from lastitem.errors import InputError
from lastitem.evaluation import decomposition
from lastitem.evaluation.decomposition import (
    Decomposition,
    additivity_error,
    decompose,
    head_shares,
    mixing_ratios,
    newest_maps,
    own_and_others,
    stack_mixing_ratio,
)
from lastitem.evaluation.probing import BlockTrace, probing
from lastitem.models.bert4rec import BERT4Rec
from lastitem.models.registry import build, save
from lastitem.study.runs import PARTS, read_run_tables
from tests.literal import write_part

ITEMS, SIZE, HEADS, LENGTH, MAP = 30, 8, 2, 20, 15
KINDS = {
    "sasrec post": ("sasrec", {"block_order": "post"}),
    "sasrec pre": ("sasrec", {"block_order": "pre"}),
    "bert4rec": ("bert4rec", {}),
    "bsarec": ("bsarec", {"filter_share": 0.6}),
}


def model_of(kind, seed=0, **settings):
    """Weights as large as trained ones, with every bias, gain and shift drawn, so that
    no term vanishes.
    """
    architecture, own = KINDS[kind]
    model = build(
        architecture,
        ITEMS,
        {"hidden_size": SIZE, "heads": HEADS, "maximum_length": LENGTH, **own, **settings},
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = 0.4 * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(
                1 + drawn if parameter.dim() == 1 and name.endswith("weight") else drawn
            )
    return model.eval()


def cases_of(lengths, seed=0):
    generator = np.random.default_rng(seed)
    ends = np.cumsum(lengths)
    return HeldOut(
        generator.integers(1, ITEMS + 1, size=ends[-1]).astype(np.int32),
        ends - lengths,
        ends,
        np.arange(100, 100 + len(lengths), dtype=np.int32),
        np.ones(len(lengths), dtype=np.int32),
        np.zeros(len(lengths), dtype=bool),
    )


class Literal:
    """One block on one input: ``parts[name][i, j]`` for every query i and source j,
    what is left out, and the true output.
    """

    def __init__(self, block, x, entering, leaving, scale, causal):
        attention, norm = block.attention, block.attention_norm
        length, width = len(x), SIZE // HEADS
        q = block.other_norm(x) if block.order == "pre" else x
        outputs = attention.output.weight.T
        self.weights = torch.zeros(HEADS, length, length, dtype=x.dtype)
        y = torch.zeros(length, length, SIZE, dtype=x.dtype)
        self.by_head = torch.zeros(HEADS, length, length, SIZE, dtype=x.dtype)
        for h in range(HEADS):
            own = slice(h * width, (h + 1) * width)
            score = attention.query(q)[:, own] @ attention.key(x)[:, own].T / width**0.5
            if causal:
                score = score + torch.full_like(score, -torch.inf).triu(1)
            self.weights[h] = torch.softmax(score, dim=1)
            for j in range(length):
                value = x[j] @ attention.value.weight.T[:, own] + attention.value.bias[own]
                transformed = value @ outputs[own]
                for i in range(length):
                    self.by_head[h, i, j] = self.weights[h, i, j] * transformed
                    y[i, j] += self.by_head[h, i, j]
        with_residual = y.clone()
        for i in range(length):
            with_residual[i, i] += scale * q[i]
        deviation = (((entering - entering.mean(1, keepdim=True)) ** 2).mean(1) + norm.eps).sqrt()
        normalized = torch.zeros_like(y)
        for i in range(length):
            for j in range(length):
                part = with_residual[i, j]
                normalized[i, j] = norm.weight * (part - part.mean()) / deviation[i]
        self.parts = {"Attn": y, "AttnRes": with_residual, "AttnResLN": normalized}
        bias = attention.output.bias
        self.left_out = norm.weight * (bias - bias.mean()) / deviation[:, None] + norm.bias
        self.entering, self.leaving, self.bias = entering, leaving, bias

    def head_shares(self, i):
        """Norm of what each head brings to query i from other positions, as a share of
        their sum.
        """
        norms = [
            sum(self.by_head[h][i, j] for j in range(len(self.entering)) if j != i).norm()
            for h in range(HEADS)
        ]
        return [float(norm / sum(norms)) for norm in norms]

    def ratio(self, name, i):
        part = self.parts[name]
        others = (
            torch.stack([part[i, j] for j in range(part.shape[1]) if j != i]).sum(0).norm()
            if part.shape[1] > 1
            else 0.0
        )
        return float(others / (others + part[i, i].norm()))


def place_of(model, history):
    """The real positions of a model's output for one history; BSARec's stand behind
    padding.
    """
    length = torch.tensor([len(history)])
    return slice(int(model.input_start(length)), int(model.readout(length)) + 1)


@torch.no_grad()
def literals(model, history, scale=1.0):
    """A :class:`Literal` per block for the real positions of one history: padding is no
    source of theirs.
    """
    seen, real = {}, place_of(model, history)
    handles = []
    for number, block in enumerate(model.blocks):
        handles.append(
            block.register_forward_pre_hook(
                lambda _, given, number=number: seen.update({(number, "x"): given[0][0, real]})
            )
        )
        handles.append(
            block.attention_norm.register_forward_hook(
                lambda _, given, out, number=number: seen.update(
                    {(number, "entering"): given[0][0, real], (number, "leaving"): out[0, real]}
                )
            )
        )
    with probing(model, residual_scale=scale):
        model.encode(torch.tensor([history]), torch.tensor([len(history)]))
    for handle in handles:
        handle.remove()
    return [
        Literal(
            block,
            *(seen[number, name] for name in ("x", "entering", "leaving")),
            scale,
            causal=not isinstance(model, BERT4Rec),
        )
        for number, block in enumerate(model.blocks)
    ]


def histories_of(cases, model):
    return [
        cases.items[a:b][-model.input_length :].tolist()
        for a, b in zip(cases.start, cases.end, strict=True)
    ]


@torch.no_grad()
def traces_of(model, history, scale=1.0):
    with probing(model, residual_scale=scale, query="every") as found:
        model.encode(torch.tensor([history]), torch.tensor([len(history)]))
    return found


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", list(KINDS))
def test_parts_and_left_out_terms_are_the_output(kind, scale):
    """The literal parts first: they must add up to what the block really gave, or they
    are no reference.
    """
    model = model_of(kind).double()
    for history in ([3, 1, 4, 1, 5, 9], [7], [2, 2]):
        for found in literals(model, history, scale):
            torch.testing.assert_close(
                found.parts["AttnRes"].sum(1) + found.bias, found.entering, rtol=0, atol=1e-10
            )
            torch.testing.assert_close(
                found.parts["AttnResLN"].sum(1) + found.left_out, found.leaving, rtol=0, atol=1e-10
            )


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", list(KINDS))
def test_sums_of_parts_equal_the_literal_ones(kind, scale):
    model = model_of(kind).double()
    history = [3, 1, 4, 1, 5, 9, 2]
    for trace, literal in zip(
        traces_of(model, history, scale), literals(model, history, scale), strict=True
    ):
        own, others = (part[:, place_of(model, history)] for part in own_and_others(trace))
        y = literal.parts["Attn"]
        diagonal = torch.stack([y[i, i] for i in range(len(y))])
        torch.testing.assert_close(own[0], diagonal, rtol=0, atol=1e-12)
        torch.testing.assert_close(others[0], y.sum(1) - diagonal, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", list(KINDS))
def test_mixing_ratios_equal_the_literal_ones(kind, scale):
    """At every position, in every block, for the three kinds of part."""
    model = model_of(kind).double()
    history = [3, 1, 4, 1, 5, 9, 2]
    for trace, literal in zip(
        traces_of(model, history, scale), literals(model, history, scale), strict=True
    ):
        found = mixing_ratios(trace)[:, :, place_of(model, history)]
        for number, name in enumerate(PARTS):
            expected = [literal.ratio(name, i) for i in range(len(literal.entering))]
            assert found[number, 0].tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", list(KINDS))
@torch.no_grad()
def test_a_trace_of_one_query_is_that_row_of_the_whole(kind, scale):
    """Another query for each of three padded inputs: weights, vectors, ratios; and the
    model's output is what it is without a trace.
    """
    model = model_of(kind).double()
    items, length = (
        torch.tensor([[3, 1, 4, 1, 5], [2, 7, 0, 0, 0], [9, 2, 6, 0, 0]]),
        torch.tensor([5, 2, 3]),
    )
    row = torch.arange(3)
    with probing(model, residual_scale=scale, query="every") as whole:
        encoded = model.encode(items, length)
    for query in (model.readout(length), model.input_start(length)):
        at = row * encoded.shape[1] + query
        with probing(model, residual_scale=scale, query=query) as single:
            found = model.encode(items, length, at)
        with probing(model, residual_scale=scale):
            assert torch.equal(found, model.encode(items, length, at))
        if scale == 1.0:
            assert torch.equal(found, model.encode(items, length, at))
        assert len(single) == len(whole) == len(model.blocks)
        for one, every in zip(single, whole, strict=True):
            torch.testing.assert_close(
                one.attention[:, :, 0], every.attention[row, :, query], rtol=0, atol=1e-12
            )
            torch.testing.assert_close(
                mixing_ratios(one)[:, :, 0], mixing_ratios(every)[:, row, query], rtol=0, atol=1e-12
            )
            for name in ("residual", "before_norm", "after_norm"):
                torch.testing.assert_close(
                    getattr(one, name)[:, 0], getattr(every, name)[row, query], rtol=0, atol=1e-12
                )


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("length", [2, 5, 14, 15, 16, 19])
@torch.no_grad()
def test_maps_equal_the_newest_literal_parts(kind, scale, length):
    """Row = query, column = source, the newest last; positions that do not exist are
    not valid.
    """
    model = model_of(kind).double()
    history = [1 + (7 * place) % ITEMS for place in range(length)]
    for trace, literal in zip(
        traces_of(model, history, scale), literals(model, history, scale), strict=True
    ):
        real, place = len(literal.entering), place_of(model, history)
        weights, norms, valid = newest_maps(
            trace, torch.tensor([place.start]), torch.tensor([place.stop]), MAP
        )
        assert valid[0].tolist() == [place >= MAP - real for place in range(MAP)]
        shown = min(real, MAP)
        for i in range(shown):
            for j in range(shown):
                query, source = real - shown + i, real - shown + j
                cell = (0, MAP - shown + i, MAP - shown + j)
                assert float(weights[cell]) == pytest.approx(
                    float(literal.weights[:, query, source].mean()), abs=1e-12
                )
                assert float(norms[cell]) == pytest.approx(
                    float(literal.parts["AttnResLN"][query, source].norm()), abs=1e-7
                )


def hand_made(attention, size=4, scale=1.0):
    """A trace with one head, chosen attention, and vectors 1, 2, 3 … in the first
    dimension.
    """
    length = len(attention)
    residual = torch.zeros(1, length, size, dtype=torch.float64)
    residual[0, :, 0] = torch.arange(1, length + 1)
    weights = torch.tensor(attention, dtype=torch.float64)[None, None]
    before = scale * residual + weights[:, 0] @ residual
    return BlockTrace(
        query=None,
        attention=weights,
        values=residual[:, None],
        mixed=weights @ residual[:, None],
        output_weight=torch.eye(size, dtype=torch.float64)[None],
        output_bias=torch.zeros(size, dtype=torch.float64),
        residual=residual,
        residual_scale=scale,
        before_norm=before,
        after_norm=before,
        norm_weight=torch.ones(size, dtype=torch.float64),
        norm_bias=torch.zeros(size, dtype=torch.float64),
        norm_epsilon=1e-8,
    )


def test_attention_on_the_newest_item_shows_in_the_last_column():
    """Twenty items, all mass on the newest: of the fifteen shown, the last column is
    one and the others are zero.
    """
    attention = [[0.0] * 19 + [1.0] for _ in range(20)]
    weights, norms, valid = newest_maps(
        hand_made(attention), torch.tensor([0]), torch.tensor([20]), MAP
    )
    assert bool(valid.all())
    assert bool((weights[0, :, -1] == 1).all())
    assert bool((weights[0, :, :-1] == 0).all())
    assert bool((norms[0, :, -1] > 0).all())


def test_the_newest_fifteen_are_shown_in_their_order():
    """A weight that names its cell: 100·query + source. The map is the lower right
    corner, not the upper left, not reversed.
    """
    attention = [[100.0 * i + j for j in range(20)] for i in range(20)]
    weights, _, _ = newest_maps(hand_made(attention), torch.tensor([0]), torch.tensor([20]), MAP)
    assert torch.equal(weights[0], torch.tensor(attention, dtype=torch.float64)[5:, 5:])


def test_maps_of_padded_inputs_start_at_each_ones_own_end():
    """Two inputs of one batch, the second padded: its newest item stands in the last
    cell as well.
    """
    attention = [[100.0 * i + j for j in range(6)] for i in range(6)]
    one = hand_made(attention)
    two = BlockTrace(
        **{
            name: (
                value.expand(2, *value.shape[1:])
                if name in ("attention", "values", "mixed", "residual", "before_norm")
                else value
            )
            for name, value in vars(one).items()
        }
    )
    weights, _, valid = newest_maps(two, torch.tensor([0, 0]), torch.tensor([6, 2]), 3)
    assert weights[0].tolist() == [row[3:6] for row in attention[3:6]]
    assert valid[1].tolist() == [False, True, True]
    assert weights[1, 1:, 1:].tolist() == [row[:2] for row in attention[:2]]


def test_mixing_ratio_by_hand():
    """Two positions with vectors 1 and 2 and weights ¼, ¾: others ¼·1, own ¾·2, with
    residual ¾·2 + λ·2.
    """
    for scale in (0.0, 0.5, 1.0):
        ratios = mixing_ratios(hand_made([[1.0, 0.0], [0.25, 0.75]], scale=scale))
        assert ratios[:, 0, 0].tolist() == [0.0, 0.0, 0.0], "the first position has no other"
        assert float(ratios[0, 0, 1]) == pytest.approx(0.25 / (0.25 + 1.5))
        assert float(ratios[1, 0, 1]) == pytest.approx(0.25 / (0.25 + 1.5 + 2 * scale))
        assert float(ratios[2, 0, 1]) == pytest.approx(0.25 / (0.25 + 1.5 + 2 * scale)), (
            "all parts lie along one direction"
        )


def test_value_bias_counts_output_bias_and_shift_do_not():
    """A changed value bias moves the Attn ratio; a changed output bias or shift moves
    neither Attn, AttnRes nor the numerators.
    """
    history = [3, 1, 4, 1, 5]
    model = model_of("sasrec post").double()
    plain = mixing_ratios(traces_of(model, history)[0])
    block = model.blocks[0]
    with torch.no_grad():
        block.attention_norm.bias += 3.0
    assert torch.equal(mixing_ratios(traces_of(model, history)[0]), plain)
    with torch.no_grad():
        block.attention.output.bias += torch.linspace(-3, 3, SIZE)
    torch.testing.assert_close(mixing_ratios(traces_of(model, history)[0]), plain)
    with torch.no_grad():
        block.attention.value.bias += torch.linspace(-3, 3, SIZE)
    assert not torch.allclose(
        mixing_ratios(traces_of(model, history)[0])[0, 0, 1:], plain[0, 0, 1:], atol=1e-3
    )


def test_ratios_without_a_meaning_are_empty():
    """All parts zero: 0/0 is NaN, not 0 and not 1; with the residual the position keeps
    only itself: ratio 0.
    """
    model = model_of("sasrec post").double()
    with torch.no_grad():
        model.blocks[0].attention.output.weight.zero_()
    ratios = mixing_ratios(traces_of(model, [3, 1, 4])[0])
    assert bool(ratios[0].isnan().all())
    assert bool((ratios[1:] == 0).all())


@pytest.mark.parametrize("kind", list(KINDS))
def test_without_residual_the_first_two_kinds_of_part_are_the_same(kind):
    model = model_of(kind)
    found = decompose(model, cases_of([5, 9, 13]), residual_scale=0.0)
    assert np.array_equal(found.latest[:, :, 0], found.latest[:, :, 1])
    plain = decompose(model, cases_of([5, 9, 13]))
    assert (plain.latest[:, 0, 1] < plain.latest[:, 0, 0]).all(), (
        "in the first block the residual takes from the mixing"
    )


LENGTHS = [1, 2, 3, 1, 7, 14, 15, 16, 19, 20, 21, 33, 2]


def literal_stack_ratio(blocks):
    """Every way from a source through the blocks to the last position, its shares
    multiplied; what does not come from itself.
    """
    length = len(blocks[0].entering)
    shares = []
    for literal in blocks:
        norms = literal.parts["AttnResLN"].norm(dim=-1)
        shares.append(
            [[float(norms[i, j] / norms[i].sum()) for j in range(length)] for i in range(length)]
        )
    reached = [float(i == length - 1) for i in range(length)]
    for share in reversed(shares):
        reached = [sum(reached[i] * share[i][j] for i in range(length)) for j in range(length)]
    return 1 - reached[-1]


def test_stack_ratio_by_hand():
    """Two blocks, two positions: the last keeps 0.6 and 0.8 of itself, and nothing
    comes back from the first.
    """
    traces = []
    for kept in (0.6, 0.8):
        trace = hand_made([[1.0, 0.0], [1 - kept, kept]], scale=0.0)
        # Vectors that differ in sign only: centred norms are equal, so shares are the
        # weights.
        trace.values = torch.tensor([1.0, -1.0], dtype=torch.float64).view(
            1, 1, 2, 1
        ) * torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
        traces.append(trace)
    found = stack_mixing_ratio(traces, torch.tensor([1]))
    assert float(found) == pytest.approx(1 - 0.6 * 0.8)


def test_head_shares_by_hand():
    """Two heads that bring vectors of length 3 and 1 from the other position: 3/4 and
    1/4; own contributions do not count.
    """
    trace = hand_made([[1.0, 0.0], [0.5, 0.5]])
    trace.attention = torch.tensor(
        [[[1.0, 0.0], [0.3, 0.7]], [[1.0, 0.0], [0.1, 0.9]]], dtype=torch.float64
    )[None]
    trace.values = torch.tensor([[10.0], [5.0]], dtype=torch.float64).expand(1, 2, 2, 1)
    trace.mixed = trace.attention @ trace.values
    trace.output_weight = torch.tensor([[[1.0, 0, 0, 0]], [[0, 1.0, 0, 0]]], dtype=torch.float64)
    assert head_shares(trace, torch.tensor([1]))[0].tolist() == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("scale", [1.0, 0.3])
@pytest.mark.parametrize("kind", list(KINDS))
def test_decompose_equals_the_literal_over_all_users(kind, scale):
    """Inputs from one item to more than the model reads: ratios, their sums, maps and
    what is behind each cell.
    """
    model = model_of(kind).double()
    cases = cases_of(LENGTHS)
    found = decompose(model, cases, residual_scale=scale, map_positions=MAP)
    users = [number for number, length in enumerate(LENGTHS) if length > 1]
    assert found.user.tolist() == [100 + number for number in users]
    assert found.single_item_inputs == 2
    assert found.additivity_error < 1e-10
    histories = histories_of(cases, model)
    per_user = [literals(model, histories[number], scale) for number in users]
    lengths = [len(blocks[0].entering) for blocks in per_user]
    count = np.zeros((MAP, MAP), dtype=int)
    maps = {name: np.zeros((len(model.blocks), MAP, MAP)) for name in ("attention", "norm")}
    older = np.zeros((2, len(model.blocks), MAP))
    every = []
    for row, (blocks, length) in enumerate(zip(per_user, lengths, strict=True)):
        ratios = np.array(
            [
                [[literal.ratio(name, i) for name in PARTS] for literal in blocks]
                for i in range(length)
            ]
        )
        every.append(ratios)
        np.testing.assert_allclose(found.latest[row], ratios[-1], atol=1e-6)
        np.testing.assert_allclose(
            found.head_shares[row],
            [literal.head_shares(length - 1) for literal in blocks],
            atol=1e-6,
        )
        if kind == "bsarec":
            assert np.isnan(found.stack[row]), "its filter mixes positions beside the attention"
        else:
            assert found.stack[row] == pytest.approx(literal_stack_ratio(blocks), abs=1e-6)
        shown = min(length, MAP)
        count[MAP - shown :, MAP - shown :] += 1
        for layer, literal in enumerate(blocks):
            corner = (layer, slice(MAP - shown, None), slice(MAP - shown, None))
            maps["attention"][corner] += literal.weights.mean(0)[-shown:, -shown:].numpy()
            maps["norm"][corner] += (
                literal.parts["AttnResLN"].norm(dim=-1)[-shown:, -shown:].numpy()
            )
            if length > MAP:
                older[0, layer] += literal.weights.mean(0)[-MAP:, :-MAP].sum(1).numpy()
                before = literal.parts["AttnResLN"][-MAP:, :-MAP]
                older[1, layer] += before.sum(1).norm(dim=-1).numpy()
    assert np.array_equal(found.map_count, count)
    np.testing.assert_allclose(found.attention_map, maps["attention"] / count, atol=1e-9)
    np.testing.assert_allclose(found.norm_map, maps["norm"] / count, atol=1e-6)
    longer = sum(length > MAP for length in lengths)
    assert longer and found.older_count.tolist() == [longer] * MAP
    np.testing.assert_allclose(found.older, older / longer, atol=1e-6)
    np.testing.assert_allclose(
        np.sort(found.every, axis=0), np.sort(np.concatenate(every), axis=0), atol=1e-6
    )


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
def test_single_precision_stays_within_the_tolerance(kind, scale):
    """As in use: float32, the sizes of the paper, larger weights than fresh ones."""
    model = model_of(kind, hidden_size=64)
    found = decompose(model, cases_of([5, 19, 40, 12]), residual_scale=scale)
    assert found.additivity_error < 1e-4
    again = decompose(model.double(), cases_of([5, 19, 40, 12]), residual_scale=scale)
    np.testing.assert_allclose(found.latest, again.latest, atol=1e-4)


def test_a_broken_sum_is_an_error(monkeypatch):
    """The check inside ``decompose`` must be able to fail: with a tolerance below
    rounding it does, and says by how much.
    """
    monkeypatch.setattr(decomposition, "ADDITIVITY_TOLERANCE", 0.0)
    with pytest.raises(ArithmeticError, match="miss the block's output by"):
        decompose(model_of("sasrec post"), cases_of([5, 9]))


def test_a_forgotten_term_shows_in_the_check():
    """The shift of the normalization left out of a trace: the error is the largest
    shift.
    """
    model = model_of("sasrec post").double().requires_grad_(False)
    trace = traces_of(model, [3, 1, 4])[0]
    real = torch.ones(1, 3, dtype=torch.bool)
    assert additivity_error(trace, real) < 1e-12
    shift = float(trace.norm_bias.abs().max())
    trace.norm_bias = torch.zeros_like(trace.norm_bias)
    assert additivity_error(trace, real) == pytest.approx(shift)


@pytest.mark.parametrize("wrong", ["attention", "values", "output_weight", "residual"])
def test_a_wrong_part_shows_in_the_check(wrong):
    """Weights or vectors that are not those the block used: what the block itself added
    up does not hide it.
    """
    trace = traces_of(model_of("bert4rec").double().requires_grad_(False), [3, 1, 4, 1, 5])[0]
    real = torch.ones(1, trace.before_norm.shape[1], dtype=torch.bool)
    assert additivity_error(trace, real) < 1e-12
    setattr(trace, wrong, getattr(trace, wrong).flip(-1))
    assert additivity_error(trace, real) > 1e-3


def test_other_users_change_nothing():
    """In another order, and some users without the others,
    every number is the same, bit for bit.
    """
    model = model_of("bert4rec")
    cases = cases_of(LENGTHS * 9)
    whole = decompose(model, cases)
    order = np.random.default_rng(0).permutation(len(cases))
    turned = decompose(model, cases.select(order))
    np.testing.assert_allclose(turned.norm_map, whole.norm_map, atol=1e-12)
    assert np.array_equal(turned.map_count, whole.map_count)
    assert sorted(turned.every.ravel()) == sorted(whole.every.ravel())
    for found in (turned, decompose(model, cases.select(order[:5]))):
        place = {int(user): row for row, user in enumerate(whole.user)}
        rows = [place[int(user)] for user in found.user]
        for part in ("latest", "stack", "head_shares"):
            assert np.array_equal(getattr(found, part), getattr(whole, part)[rows]), part


def test_no_tensor_of_all_parts_is_formed():
    """Neither ratios nor norms need B×L×L×d; nothing made on the way is
    even a quarter of that.
    """
    model = model_of("sasrec post", hidden_size=64, maximum_length=64)
    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            nonlocal largest
            made = function(*arguments, **(keywords or {}))
            if isinstance(made, torch.Tensor):
                largest = max(largest, made.untyped_storage().nbytes() // made.element_size())
            return made

    with Watch():
        decompose(model, cases_of([64, 64, 64, 64]))
    assert 64 * 64 * 64 * 2 <= largest < 64 * 64 * 64 * 64 / 4, (
        "64 rows, 64 positions, 2 heads or 64 dimensions"
    )


def test_a_model_without_attention_has_nothing_to_decompose():
    model = build("gru4rec", ITEMS, {"hidden_size": SIZE, "maximum_length": LENGTH})
    with pytest.raises(InputError, match="GRU4Rec has no attention block"):
        decompose(model, cases_of([5, 9]))


def test_no_maps_where_none_are_asked_for():
    found = decompose(model_of("sasrec post"), cases_of([5, 9]), map_positions=0)
    assert found.norm_map.shape == (2, 0, 0)
    assert found.latest.shape == (2, 2, 3)


def test_only_inputs_with_one_item():
    """There is nothing to average; the count says so."""
    found = decompose(model_of("sasrec post"), cases_of([1, 1, 1]))
    assert found.single_item_inputs == 3
    assert len(found.user) == len(found.latest) == len(found.every) == 0


# The script


def script_arguments(folder, **changed):
    values = {
        "dataset": "d",
        "split": "gts",
        "model": "m",
        "seed": 1,
        "weights": f"{folder}/model.safetensors",
        "description": f"{folder}/model.json",
        "test": f"{folder}/test.parquet",
        "device": "cpu",
        "threads": 1,
        "map-positions": MAP,
        "mixing": f"{folder}/mixing.parquet",
        "mixing-users": f"{folder}/mixing_users.parquet",
        "maps": f"{folder}/maps.parquet",
        **changed,
    }
    return [str(part) for name, value in values.items() for part in (f"--{name}", value)]


def prepare(folder, lengths, architecture="sasrec", settings=None):
    """A saved model and a test part whose inputs have the given lengths (the last event
    is the target).
    """
    settings = {"hidden_size": SIZE, "maximum_length": LENGTH} if settings is None else settings
    torch.manual_seed(0)
    model = build(architecture, ITEMS, settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    description = {"architecture": architecture, "items": ITEMS, "settings": settings}
    save(model, description, folder / "model.safetensors", folder / "model.json")
    events = np.array(lengths) + 1
    items = np.random.default_rng(0).integers(1, ITEMS + 1, size=events.sum()).astype(np.int32)
    offsets = np.concatenate(([0], np.cumsum(events)))
    write_part(
        folder / "test.parquet",
        items,
        np.arange(len(items), dtype=np.int64),
        offsets,
        events,
        (np.arange(len(events)), events - 1),
    )
    return model.eval()


def test_the_script_writes_what_was_found(tmp_path, capsys):
    """Mean, median, sd and n per layer, part and positions; the users' ratios; the maps
    with 0 for the newest position.
    """
    model = prepare(tmp_path, [1, 4, 9, 20, 31])
    script.main(script_arguments(tmp_path))
    said = capsys.readouterr().out
    found = decompose(model, read_held_out(tmp_path / "test.parquet"), map_positions=MAP)
    assert f"parts + left-out terms = output to {found.additivity_error:.1e}" in said
    assert "1 inputs with one item are left out; 4 are in" in said
    mixing = read_run_tables([tmp_path / "mixing.parquet"]).rows
    assert len(mixing) == 2 * 3 * 2 + 2 * HEADS + 1
    (stack,) = mixing[mixing["layer"] == 0].to_dict("records")
    assert (stack["part"], stack["positions"], stack["n"]) == ("AttnResLN", "latest", 4)
    assert stack["mean"] == pytest.approx(found.stack.mean())
    shares = mixing[mixing["part"].str.startswith("share of head")]
    assert shares["mean"].to_numpy() == pytest.approx(found.head_shares.mean(axis=0).ravel())
    for row in mixing[mixing["part"].isin(PARTS) & (mixing["layer"] > 0)].to_dict("records"):
        values = found.latest if row["positions"] == "latest" else found.every
        values = values[:, row["layer"] - 1, PARTS.index(row["part"])]
        assert (row["mean"], row["median"], row["sd"]) == pytest.approx(
            (values.mean(), np.median(values), values.std()), abs=1e-6
        )
        assert row["n"] == {"latest": 4, "all": 4 + 9 + 20 + 20}[row["positions"]]
        assert row["single_item_inputs"] == 1
    users = read_run_tables([tmp_path / "mixing_users.parquet"]).rows
    assert len(users) == 4 * len(mixing[mixing["positions"] == "latest"])
    for row in users[users["part"].isin(PARTS) & (users["layer"] > 0)].to_dict("records"):
        place = (found.user.tolist().index(row["user"]), row["layer"] - 1, PARTS.index(row["part"]))
        assert row["latest"] == pytest.approx(found.latest[place])
    maps = read_run_tables([tmp_path / "maps.parquet"]).rows
    maps = maps.set_index(["layer", "query", "source"])
    assert len(maps) == 2 * MAP * (MAP + 1)
    assert maps.loc[(1, 0, -MAP), "norm"] == pytest.approx(found.older[1, 0, -1], nan_ok=True)
    newest = maps.loc[(1, 0, 0)]
    assert newest["attention"] == pytest.approx(found.attention_map[0, -1, -1])
    assert newest["norm"] == pytest.approx(found.norm_map[0, -1, -1])
    assert maps.loc[(2, 0, -3), "attention"] == pytest.approx(found.attention_map[1, -1, -4])
    assert maps.loc[(2, -MAP + 1, 0), "n"] == 2


def test_the_script_says_why_there_is_nothing_for_a_model_without_attention(tmp_path):
    prepare(tmp_path, [4, 9], "gru4rec")
    script.main(script_arguments(tmp_path))
    for name in ("mixing", "mixing_users", "maps"):
        table = read_run_tables([tmp_path / f"{name}.parquet"])
        assert table.rows.empty
        assert table.missing == [("d", "gts", "m", 1, "no attention block")]


def test_the_script_survives_a_test_part_of_one_item_inputs(tmp_path):
    """No ratio exists; the files must still say which run they belong to, and why they
    are empty, for the tables to show n/a.
    """
    prepare(tmp_path, [1, 1, 1])
    script.main(script_arguments(tmp_path))
    for name in ("mixing", "mixing_users"):
        table = read_run_tables([tmp_path / f"{name}.parquet"])
        assert table.rows.empty
        ((*run, note),) = table.missing
        assert run == ["d", "gts", "m", 1]
        assert note


def test_the_script_names_a_missing_model(tmp_path):
    prepare(tmp_path, [4, 9])
    (tmp_path / "model.json").unlink()
    with pytest.raises(InputError, match=r"model\.json"):
        script.main(script_arguments(tmp_path))


def test_results_are_plain_types(tmp_path):
    """Readable by any Parquet reader: numbers and text, no categories."""
    prepare(tmp_path, [4, 9])
    script.main(script_arguments(tmp_path))
    types = pd.read_parquet(tmp_path / "mixing_users.parquet").dtypes
    assert {name: str(kind) for name, kind in types.items() if name != "part"} == {
        "user": "int32",
        "layer": "int64",
        "latest": "float32",
    }
    assert str(types["part"]) != "category"


def test_columns_say_which_number_is_which():
    """One user, two layers: every number can be found again under its layer, part and
    position.
    """
    latest = np.arange(6, dtype=np.float32).reshape(1, 2, 3) / 10
    every = np.stack([latest[0], latest[0] + 0.2])
    maps = np.arange(8.0).reshape(2, 2, 2)
    stack, shares = np.array([0.9], dtype=np.float32), np.array([[[0.7], [0.8]]], dtype=np.float32)
    made = Decomposition(
        np.array([7], dtype=np.int32),
        latest,
        every,
        stack,
        shares,
        maps,
        -maps,
        np.array([[1, 2], [3, 4]]),
        np.arange(10.0, 18.0).reshape(2, 2, 2),
        np.array([5, 6]),
        0,
        0.0,
    )
    users = made.by_user()
    assert (users["user"] == 7).all()
    assert sorted(
        zip(
            users["layer"].tolist(),
            users["part"],
            users["latest"].astype(float).round(1).tolist(),
            strict=True,
        )
    ) == sorted(
        [
            *(
                (layer, part, round(0.3 * (layer - 1) + 0.1 * number, 1))
                for layer in (1, 2)
                for number, part in enumerate(PARTS)
            ),
            *((1, "share of head 1", 0.7), (2, "share of head 1", 0.8), (0, "AttnResLN", 0.9)),
        ]
    )
    summary = made.summary()
    row = [
        list(values)
        for values in zip(*summary.values(), strict=True)
        if values[:3] == (2, "AttnRes", "all")
    ]
    assert row == [
        [2, "AttnRes", "all", pytest.approx(0.5), pytest.approx(0.5), pytest.approx(0.1), 2]
    ]
    cells = {
        (layer, query, source): (weight, norm, n)
        for layer, query, source, weight, norm, n in zip(*made.maps().values(), strict=True)
    }
    assert cells[2, -1, 0] == (5.0, -5.0, 2) and cells[1, 0, -1] == (2.0, -2.0, 3)
    # What is older than both: of layer 1 at the newest, of layer 2 at the one before.
    assert cells[1, 0, -2] == (11.0, 15.0, 6) and cells[2, -1, -2] == (12.0, 16.0, 5)
