"""The switches that are meant for GPUs: each gives the plain path's loss and gradients,
here on the CPU, on a GPU where there is one.
"""

import numpy as np
import pytest
import torch

from lastitem.models.registry import build
from lastitem.study.settings import TrainingSettings
from lastitem.training.batches import make_batch
from lastitem.training.loop import train
from lastitem.training.step import loss_of, update
from tests.training.test_loop import continued, cycle, sequences_of

MODELS = ("sasrec", "gru4rec", "bert4rec", "bsarec", "duorec")
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(
            not torch.cuda.is_available(),
            reason="no CUDA device here: what runs on one is not tried",
        ),
    ),
]
HISTORIES = [
    [1, 4, 2, 9, 7],
    [3, 2],
    [5, 6, 7, 8, 9, 10, 11, 12],
    [2, 1, 2],
    [30, 4, 17],
    [9, 8, 7, 6],
]


def loss_and_gradients(architecture, device, blocks=2, **switches):
    """Of a model with spread-out weights and no dropout, on six sequences."""
    torch.manual_seed(0)
    of_attention = {} if architecture == "gru4rec" else {"heads": 2, "blocks": blocks}
    model = (
        build(
            architecture,
            30,
            {"hidden_size": 32, "maximum_length": 10, "dropout": 0.0, **of_attention},
        )
        .to(device)
        .train()
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.3)
    settings = TrainingSettings(length_groups=2, **switches)
    if settings.compile:
        model.compile(dynamic=True)
    sequences = sequences_of(HISTORIES)
    generator = torch.Generator().manual_seed(1)
    batches = [
        make_batch(model, sequences, index, settings.drawn_negatives, generator).to(device)
        for index in (np.array([1, 3, 4]), np.array([0, 2, 5]))
    ]
    loss = loss_of(model, batches, settings)
    loss.backward()
    assert loss.dtype == torch.float32
    return loss.detach().cpu(), {
        name: parameter.grad.cpu()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("architecture", MODELS)
def test_bfloat16_is_the_plain_path_up_to_its_rounding(architecture, device):
    """bfloat16 keeps 8 bits: the loss to a hundredth, the direction of every gradient;
    and it must really be in use.
    """
    plain, of_plain = loss_and_gradients(architecture, device)
    rounded, of_rounded = loss_and_gradients(architecture, device, precision="bfloat16")
    assert rounded != plain
    torch.testing.assert_close(rounded, plain, rtol=1e-2, atol=0)
    assert of_rounded.keys() == of_plain.keys()
    for name, gradient in of_plain.items():
        # A key's bias shifts all scores of a query alike: its gradient is zero but for
        # rounding.
        if not name.endswith("key.bias"):
            assert (
                torch.cosine_similarity(gradient.flatten(), of_rounded[name].flatten(), dim=0)
                > 0.97
            ), name


@pytest.mark.parametrize("device", DEVICES)
def test_the_compiled_encoder_is_the_plain_one(device):
    # One block, since compiling takes long and a second is compiled like the first.
    plain, of_plain = loss_and_gradients("sasrec", device, blocks=1)
    compiled, of_compiled = loss_and_gradients("sasrec", device, blocks=1, compile=True)
    torch.testing.assert_close(compiled, plain, rtol=1e-5, atol=0)
    for name, gradient in of_plain.items():
        torch.testing.assert_close(of_compiled[name], gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_the_precision_of_products_is_put_back(device):
    """The ranking that follows an update is in float32 again."""
    model = build("duorec", 30, {"hidden_size": 8, "heads": 2, "maximum_length": 10}).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    before = torch.get_float32_matmul_precision()
    update(
        model,
        optimizer,
        sequences_of(HISTORIES),
        np.arange(6),
        TrainingSettings(precision="bfloat16"),
        torch.Generator().manual_seed(0),
        device,
    )
    assert torch.get_float32_matmul_precision() == before
    assert not torch.is_autocast_enabled(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_cycle_is_learned(device, precision):
    """Training, validation and early stopping from end to end on the device."""
    torch.manual_seed(0)
    model = build(
        "sasrec", 12, {"hidden_size": 16, "heads": 2, "maximum_length": 10, "dropout": 0.1}
    )
    settings = TrainingSettings(
        batch_size=20, learning_rate=0.01, maximum_epochs=30, round_updates=9, precision=precision
    )
    validation = continued(cycle(20, 12, seed=1))
    curve = train(
        model,
        sequences_of(cycle(60, 12, seed=0)),
        validation,
        settings,
        filter_seen=False,
        seed=3,
        device=device,
    )
    assert max(line.validation_ndcg for line in curve) > 0.95
