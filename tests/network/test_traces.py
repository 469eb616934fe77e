"""Reading a network leaves it, and the random state, as they were: in every mode of the caller, after every failure."""

import copy
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lates
from lates.network import Ensemble
from tests.networks import Network, draw, extract_samples, fail_after, loader, network, same, untouched


def awkward_network() -> Network:
    """In train mode but for one frozen norm, with gradients, a frozen parameter and a hook of the user's."""
    model = network().train()
    model(draw()[0]).sum().backward()
    model.body[1].eval()
    model.last.bias.requires_grad_(False)
    model.body[0].register_forward_hook(lambda module, inputs, output: None)
    return model


@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu")])
def test_extraction_leaves_no_trace_in_any_mode_of_the_caller(mode: Callable[[], AbstractContextManager[Any]]) -> None:
    model = awkward_network()
    with mode(), untouched(model):
        features = lates.extract(model, loader(), views="jitter", passes=2)
        extract_samples(Ensemble((model,), samples=2, dropout=True), loader())
    assert not features.logits.is_inference()
    assert not any(tensor.is_inference() for tensor in [*features.blocks.values(), *features.centre.values()])
    expected = lates.extract(copy.deepcopy(model).eval(), loader(), views="jitter", passes=2)
    assert torch.allclose(features.logits, expected.logits, atol=0.05 if "lambda" in repr(mode) else 1e-6)


def test_calibration_leaves_no_trace() -> None:
    model = awkward_network()
    with untouched(model):
        lates.calibrate(model, train=loader(40), holdout=loader(30, seed=1), budget=None, progress=False)


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_failing_loader_leaves_no_trace(batches: int) -> None:
    model = awkward_network()
    with untouched(model), pytest.raises(OSError, match="the disk is gone"):
        lates.extract(model, fail_after(batches), views=lambda images: images * random.random(), memory=0)


def test_a_module_that_writes_into_its_buffers_writes_into_a_copy() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls: Tensor
            self.register_buffer("calls", torch.zeros(()))
            self.inner = network()

        def forward(self, images: Tensor) -> Tensor:
            self.calls += 1
            return self.inner(images)

    model = Counting().eval()
    with untouched(model):
        lates.extract(model, loader())


def test_another_device_gets_its_own_copy() -> None:
    """The `meta` device stands for any other one: there is no second one here."""
    model = network()
    calibrated = lates.calibrate(model, holdout=loader(), blocks=[], progress=False)
    with untouched(model):
        assert all(parameter.is_meta for parameter in calibrated.to("meta").parameters())
    assert same(lates.extract(model, loader(), device="cpu"), lates.extract(model, loader()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_generators_of_cuda_are_kept_too_wherever_the_network_runs(device: str) -> None:
    model = awkward_network()
    torch.cuda.manual_seed(7)
    before = torch.cuda.get_rng_state()
    with untouched(model):
        features = lates.extract(model, loader(), views="jitter", device=device)
        again = lates.extract(model, loader(), views="jitter", device=device)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert features.logits.device.type == device
    assert same(features, again)
