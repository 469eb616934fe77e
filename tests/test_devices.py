"""What a user does on a GPU, where there is one; elsewhere the same on the CPU, so that these tests do not rot."""

import copy
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

import lates
from lates.export import check_onnx, export_program, make_onnx
from tests.conftest import Problem, calibrate

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="module")
def here(problem: Problem) -> Problem:
    """The problem with its network on the device, its batches elsewhere."""
    return replace(problem, model=copy.deepcopy(problem.model).to(DEVICE))


@pytest.fixture(scope="module")
def on_device(here: Problem) -> lates.CalibratedModel:
    return calibrate(here, budget=None)


def probabilities(model: lates.CalibratedModel, images: Tensor) -> Tensor:
    return model.predict_proba(images.to(DEVICE)).cpu()


def test_calibration_is_on_the_network_s_device_and_agrees_with_the_cpu(
    problem: Problem, on_device: lates.CalibratedModel
) -> None:
    assert {tensor.device.type for tensor in [*on_device.parameters(), *on_device.buffers()]} == {DEVICE.type}
    expected = calibrate(problem, budget=None)
    assert on_device.fit.nll == pytest.approx(expected.fit.nll, abs=2e-3)
    assert probabilities(on_device, problem.images).sub(expected.predict_proba(problem.images)).abs().mean() < 2e-3


def test_batches_of_the_device_a_caller_s_stream_and_spilled_features_change_nothing(
    here: Problem, on_device: lates.CalibratedModel
) -> None:
    holdout = [(images.to(DEVICE), labels.to(DEVICE)) for images, labels in here.holdout]
    train = DataLoader(here.train.dataset, batch_size=250, pin_memory=DEVICE.type == "cuda")
    with torch.cuda.stream(torch.cuda.Stream()) if DEVICE.type == "cuda" else nullcontext():
        for choices in ({"train": train, "holdout": holdout}, {"memory": 0}):
            assert calibrate(here, budget=None, **choices).fit.nll == pytest.approx(on_device.fit.nll, abs=1e-4)


def test_probes_are_trained_where_the_hold_out_is_also_from_spilled_features(here: Problem) -> None:
    holdout = lates.extract(here.model, here.holdout)
    spilled = lates.extract(here.model, here.train, like=holdout, memory=0)
    probes = lates.train_probes(spilled, holdout)
    assert {trained.probe.bias.device.type for trained in probes.values()} == {DEVICE.type}
    assert spilled.logits.device.type == "cpu"


def test_a_file_goes_from_device_to_device(
    problem: Problem, here: Problem, on_device: lates.CalibratedModel, tmp_path: Path
) -> None:
    on_device.save(tmp_path / "network.lates.safetensors")
    expected = probabilities(on_device, problem.images)
    there = lates.load(tmp_path / "network.lates.safetensors", here.model)
    torch.testing.assert_close(probabilities(there, problem.images), expected, atol=1e-6, rtol=0)
    elsewhere = lates.load(tmp_path / "network.lates.safetensors", copy.deepcopy(problem.model))
    torch.testing.assert_close(elsewhere.predict_proba(problem.images), expected, atol=5e-3, rtol=0)
    torch.testing.assert_close(probabilities(elsewhere.to(DEVICE), problem.images), expected, atol=1e-6, rtol=0)


def test_views_and_mc_dropout_run_on_the_device(here: Problem) -> None:
    sampled = replace(here, model=lates.mc_dropout(here.model, samples=3))
    found = calibrate(sampled, views="auto", passes=1, budget=None)
    assert found.fit.nll < found.fit.nll_temperature < found.fit.nll_network
    torch.testing.assert_close(probabilities(found, here.images).sum(1), torch.ones(len(here.images)))


def test_network_of_bfloat16_is_calibrated(here: Problem) -> None:
    train, holdout = ([(images.bfloat16(), labels) for images, labels in one] for one in (here.train, here.holdout))
    coarse = replace(here, model=copy.deepcopy(here.model).bfloat16())
    found = calibrate(coarse, train=train, holdout=holdout, budget=None)
    assert found.fit.nll < found.fit.nll_temperature < found.fit.nll_network


def test_cached_logits_stay_on_their_device(here: Problem) -> None:
    features = lates.extract(here.model, here.holdout, views=None)
    logits, labels = features.logits.to(DEVICE), features.labels.to(DEVICE)  # extract leaves them where they fit
    stack = lates.LogitStack().fit({"head": logits}, labels)
    temperature = lates.TemperatureScaling().fit(logits, labels)
    there, elsewhere = stack.predict_proba({"head": logits}), temperature.predict_proba(logits.cpu())
    assert isinstance(there, Tensor)
    assert there.device.type == DEVICE.type
    torch.testing.assert_close(there.cpu(), elsewhere, atol=1e-6, rtol=0)


def test_program_runs_where_the_network_is(problem: Problem, on_device: lates.CalibratedModel) -> None:
    program = export_program(on_device, problem.images[:2])
    with torch.no_grad():
        found = program.module()(problem.images.to(DEVICE)).softmax(1).cpu()
    torch.testing.assert_close(found, probabilities(on_device, problem.images), atol=1e-4, rtol=0)


def test_an_onnx_file_of_any_device_is_checked(problem: Problem, on_device: lates.CalibratedModel) -> None:
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    assert check_onnx(on_device, make_onnx(on_device, problem.images[:2]), problem.images).passed
