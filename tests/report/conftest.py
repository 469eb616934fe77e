"""One report of one calibrated network, at every stage from its test sets to its page."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import lates
from lates.report import Predictions, read_predictions
from lates.report.findings import Findings, measure
from tests.conftest import Problem, loader_of


@pytest.fixture(scope="session")
def test_sets(problem: Problem) -> dict[str, DataLoader]:
    noise = torch.randn(problem.images.shape, generator=torch.Generator().manual_seed(7))
    return {
        "clean": loader_of(problem.images, problem.labels),
        "noise": loader_of(problem.images + noise, problem.labels),
    }


@pytest.fixture(scope="session")
def predictions(calibrated: lates.CalibratedModel, test_sets: dict[str, DataLoader]) -> dict[str, Predictions]:
    return read_predictions(calibrated, test_sets)


@pytest.fixture(scope="session")
def findings(calibrated: lates.CalibratedModel, predictions: dict[str, Predictions]) -> Findings:
    return measure(calibrated, predictions, None, seed=0)


@pytest.fixture(scope="session")
def page(calibrated: lates.CalibratedModel, test_sets: dict[str, DataLoader], tmp_path_factory: Any) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    lates.write_report(calibrated, test_sets, path, title="A small network", progress=False)
    return path.read_text("utf-8")
