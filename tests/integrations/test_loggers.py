"""A calibrated model as plain numbers: what it holds, and that TensorBoard takes it as it is."""

from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

import lates
from lates.integrations.loggers import scalars
from tests.conftest import Problem


def test_scalars_agree_with_the_model(calibrated: lates.CalibratedModel) -> None:
    numbers = scalars(calibrated, prefix="")
    assert all(type(value) is float for value in numbers.values())
    assert numbers["holdout_nll/network"] == calibrated.fit.nll_network
    assert numbers["holdout_nll/temperature"] == calibrated.fit.nll_temperature
    assert numbers["holdout_nll/calibrated"] == calibrated.fit.nll
    assert numbers["holdout_rows"] == 1000
    assert numbers["added_parameters"] == calibrated.added_parameters
    for kind, expected in (("contribution", calibrated.contributions), ("weight", calibrated.weights)):
        found = {name.removeprefix(f"{kind}/"): v for name, v in numbers.items() if name.startswith(f"{kind}/")}
        assert found == expected


def test_tensorboard_takes_the_scalars(calibrated: lates.CalibratedModel, problem: Problem, tmp_path: Path) -> None:
    with torch.no_grad():
        summary = lates.metrics.summary(calibrated(problem.images), problem.labels)
    numbers = scalars(calibrated) | {f"test/{name}": value for name, value in summary.items()}
    with SummaryWriter(str(tmp_path)) as writer:
        for name, value in numbers.items():
            writer.add_scalar(name, value, global_step=3)
    read = EventAccumulator(str(tmp_path)).Reload()
    assert set(read.Tags()["scalars"]) == set(numbers)
    for name, value in numbers.items():
        (event,) = read.Scalars(name)
        assert (event.step, event.value) == (3, pytest.approx(value, rel=1e-6))
