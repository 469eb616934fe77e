"""What a user does on a graphics card, where there is one; elsewhere the same on the CPU, so that these tests do not rot."""

import copy
from contextlib import nullcontext
from operator import attrgetter
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import lates
from lates.export import check_onnx, export_program, make_onnx
from tests.conftest import Problem, calibrate

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BACKENDS = attrgetter("cuda.matmul", "cudnn.conv", "mkldnn.conv")(torch.backends)


@pytest.fixture(scope="module")
def network(problem: Problem) -> nn.Module:
    return copy.deepcopy(problem.model).to(DEVICE)


@pytest.fixture(scope="module")
def calibrated(problem: Problem, network: nn.Module) -> lates.CalibratedModel:
    return lates.calibrate(network, train=problem.train, holdout=problem.holdout, views=None, progress=False)


def probabilities(model: lates.CalibratedModel, images: Tensor) -> Tensor:
    return model.predict_proba(images.to(DEVICE)).cpu()


def test_the_device_of_the_network_is_the_calibration_s(calibrated: lates.CalibratedModel) -> None:
    assert {tensor.device.type for tensor in [*calibrated.parameters(), *calibrated.buffers()]} == {DEVICE.type}


def test_the_calibration_is_the_cpu_s(problem: Problem, calibrated: lates.CalibratedModel) -> None:
    expected = calibrate(problem)
    assert calibrated.fit.nll == pytest.approx(expected.fit.nll, abs=2e-3)
    assert probabilities(calibrated, problem.images).sub(expected.predict_proba(problem.images)).abs().mean() < 2e-3


def test_again_it_is_the_same(problem: Problem, network: nn.Module, calibrated: lates.CalibratedModel) -> None:
    again = lates.calibrate(network, train=problem.train, holdout=problem.holdout, views=None, progress=False)
    assert again.fit.nll == pytest.approx(calibrated.fit.nll, abs=1e-5)


def test_batches_may_come_from_the_device_or_from_pinned_memory(
    problem: Problem, network: nn.Module, calibrated: lates.CalibratedModel
) -> None:
    holdout = [(images.to(DEVICE), labels.to(DEVICE)) for images, labels in problem.holdout]
    train = DataLoader(problem.train.dataset, batch_size=250, pin_memory=DEVICE.type == "cuda")
    found = lates.calibrate(network, train=train, holdout=holdout, views=None, progress=False)
    assert found.fit.nll == pytest.approx(calibrated.fit.nll, abs=1e-5)


def test_a_caller_s_stream_and_spilled_features_change_nothing(
    problem: Problem, network: nn.Module, calibrated: lates.CalibratedModel
) -> None:
    with torch.cuda.stream(torch.cuda.Stream()) if DEVICE.type == "cuda" else nullcontext():
        found = lates.calibrate(
            network, train=problem.train, holdout=problem.holdout, views=None, memory=0, progress=False
        )
    assert found.fit.nll == pytest.approx(calibrated.fit.nll, abs=1e-4)


def test_a_file_goes_from_device_to_device(
    problem: Problem, network: nn.Module, calibrated: lates.CalibratedModel, tmp_path: Path
) -> None:
    calibrated.save(tmp_path / "network.lates.safetensors")
    expected = probabilities(calibrated, problem.images)
    there = lates.load(tmp_path / "network.lates.safetensors", network)
    assert torch.equal(probabilities(there, problem.images), expected)
    elsewhere = lates.load(tmp_path / "network.lates.safetensors", problem.model)
    torch.testing.assert_close(elsewhere.predict_proba(problem.images), expected, atol=5e-3, rtol=0)
    torch.testing.assert_close(probabilities(elsewhere.to(DEVICE), problem.images), expected, atol=1e-6, rtol=0)
    problem.model.cpu()


def test_views_and_mc_dropout(problem: Problem, network: nn.Module) -> None:
    sampled = lates.mc_dropout(network, samples=3)
    found = lates.calibrate(sampled, train=problem.train, holdout=problem.holdout, passes=1, progress=False)
    assert found.fit.nll < found.fit.nll_temperature < found.fit.nll_network
    torch.testing.assert_close(probabilities(found, problem.images).sum(1), torch.ones(len(problem.images)))


def test_a_network_of_bfloat16(problem: Problem, network: nn.Module) -> None:
    coarse = copy.deepcopy(network).bfloat16()
    train, holdout = (
        [(images.bfloat16(), labels) for images, labels in one] for one in (problem.train, problem.holdout)
    )
    found = lates.calibrate(coarse, train=train, holdout=holdout, views=None, progress=False)
    assert found.fit.nll < found.fit.nll_temperature < found.fit.nll_network


def test_cached_logits(problem: Problem, network: nn.Module) -> None:
    features = lates.extract(network, problem.holdout, views=None)
    logits, labels = features.logits.to(DEVICE), features.labels.to(DEVICE)
    stack = lates.LogitStack().fit({"head": logits}, labels)
    temperature = lates.TemperatureScaling().fit(logits, labels)
    there, here = stack.predict_proba({"head": logits}), temperature.predict_proba(features.logits)
    assert isinstance(there, Tensor)
    assert there.device.type == DEVICE.type
    torch.testing.assert_close(there.cpu(), here, atol=1e-6, rtol=0)


def test_a_program_runs_where_the_network_is(problem: Problem, calibrated: lates.CalibratedModel) -> None:
    program = export_program(calibrated, problem.images[:2])
    with torch.no_grad():
        found = program.module()(problem.images.to(DEVICE)).softmax(1).cpu()
    torch.testing.assert_close(found, probabilities(calibrated, problem.images), atol=1e-5, rtol=0)


def test_an_onnx_file_of_any_device_is_checked_in_full_precision(
    problem: Problem, calibrated: lates.CalibratedModel
) -> None:
    pytest.importorskip("onnxscript")
    before = [backend.fp32_precision for backend in BACKENDS]
    assert check_onnx(calibrated, make_onnx(calibrated, problem.images[:2]), problem.images).difference < 1e-5
    assert [backend.fp32_precision for backend in BACKENDS] == before
