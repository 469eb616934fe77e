"""A calibration is for the network as it was calibrated: what is another network, and what one that has changed."""

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import lates
from lates.model.storage import read_calibration
from tests.conftest import Problem, ResidualNetwork


def test_other_names_or_shapes_are_an_error_that_lists_them(saved: Path) -> None:
    other = ResidualNetwork()
    other.classifier = other.fc
    del other.fc
    with pytest.raises(ValueError, match=r"network\. missing: fc.weight, fc.bias; unexpected: classifier.weight"):
        lates.load(saved, other)
    with pytest.raises(ValueError, match=r"other shape: .*stem.weight is \[8, 3, 3, 3\], expected \[12, 3, 3, 3\]"):
        lates.load(saved, ResidualNetwork(width=8))


def test_other_values_are_a_warning(saved: Path, problem: Problem) -> None:
    other = ResidualNetwork()
    other.load_state_dict(problem.model.state_dict())
    with torch.no_grad():
        other.fc.bias.add_(0.1)
    with pytest.warns(UserWarning, match=r"1 of \d+ tensors of this network have other values .*fc\.bias") as caught:
        lates.load(saved, other)
    assert Path(caught[0].filename) == Path(__file__)


@pytest.fixture
def trained_on(problem: Problem) -> tuple[nn.Module, lates.CalibratedModel]:
    """A network that was changed after it was calibrated, and the calibration."""
    model = copy.deepcopy(problem.model)
    calibrated = lates.calibrate(model, holdout=problem.holdout, blocks=[], progress=False)
    with torch.no_grad():
        model.get_parameter("fc.bias").add_(0.1)
    return model, calibrated


def test_a_network_trained_on_since_is_a_warning_and_the_file_is_for_the_weights_of_then(
    tmp_path: Path, problem: Problem, trained_on: tuple[nn.Module, lates.CalibratedModel]
) -> None:
    model, calibrated = trained_on
    for kept in (calibrated, copy.deepcopy(calibrated)):
        with pytest.warns(UserWarning, match=r"1 of \d+ tensors .*fc\.bias.* for the weights of then") as caught:
            kept.save(tmp_path / "file")
        assert Path(caught[0].filename) == Path(__file__)
        with pytest.warns(UserWarning, match=r"1 of \d+ tensors of this network have other values .*fc\.bias"):
            lates.load(tmp_path / "file", model)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            lates.load(tmp_path / "file", problem.model)


def test_a_loaded_calibration_stays_for_the_network_of_its_file(
    tmp_path: Path, saved: Path, problem: Problem, trained_on: tuple[nn.Module, lates.CalibratedModel]
) -> None:
    with pytest.warns(UserWarning, match="other values"):
        loaded = lates.load(saved, trained_on[0])
    with pytest.warns(UserWarning, match="for the weights of then"):
        loaded.save(tmp_path / "again")
    assert read_calibration(tmp_path / "again")[1] == read_calibration(saved)[1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_cast_calibration_is_for_the_cast_network(
    tmp_path: Path, problem: Problem, calibrated: lates.CalibratedModel, dtype: torch.dtype
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copy.deepcopy(calibrated).to(dtype).save(tmp_path / "cast")
        lates.load(tmp_path / "cast", copy.deepcopy(problem.model).to(dtype))


class Packed(torch.Tensor):
    """A tensor that does not show its bytes, as quantised ones do not."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.view:
            raise RuntimeError("packed")
        return super().__torch_function__(function, types, args, kwargs)


def test_tensors_without_dense_values_bar_neither_calibrating_nor_saving(tmp_path: Path) -> None:
    class Spread(nn.Linear):
        def __init__(self) -> None:
            super().__init__(3, 3)
            self.register_buffer("graph", torch.eye(3).to_sparse())
            self.register_buffer("phases", torch.randn(3, dtype=torch.complex64).conj())
            self.register_buffer("ragged", torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]))
            self.register_buffer("packed", torch.ones(2).as_subclass(Packed))

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return torch.sparse.mm(self.get_buffer("graph"), super().forward(input).T).T

    model = Spread()
    calibrated = lates.calibrate(model, holdout=[(torch.eye(3), torch.arange(3).roll(1))], blocks=[], progress=False)
    calibrated.save(tmp_path / "file")
    assert lates.load(tmp_path / "file", model).weights == calibrated.weights


def test_a_wrapped_model_is_the_same_model(saved: Path, problem: Problem) -> None:
    loaded = lates.load(saved, nn.DataParallel(problem.model))
    assert list(loaded.weights) == ["stages.0", "stages.1", "stages.2", "head"]
