"""torch-uncertainty: its scaler reads logits from a loader, its metrics take probabilities.

Its package imports torchvision for parts that have nothing to do with either, so the two subpackages are entered by the
side: their parents are put in place as empty packages.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset


def _enter(package: str) -> ModuleType:
    """The package, without what its `__init__` would import."""
    spec = find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {package!r}")
    entered = ModuleType(package)
    entered.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[package] = entered
    return entered


for _package in ("torch_uncertainty", "torch_uncertainty.metrics", "torch_uncertainty.metrics.classification"):
    _enter(_package)
_processing = _enter("torch_uncertainty.post_processing")
_processing.__dict__["PostProcessing"] = import_module("torch_uncertainty.post_processing.abstract").PostProcessing
SCALER = import_module("torch_uncertainty.post_processing.calibration.temperature_scaler").TemperatureScaler
CALIBRATION = import_module("torch_uncertainty.metrics.classification.calibration")
BRIER = import_module("torch_uncertainty.metrics.classification.brier_score").BrierScore
NLL = import_module("torch_uncertainty.metrics.classification.categorical_nll").CategoricalNLL


def native(logits: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(logits), torch.from_numpy(labels)


def softmax(logits: Tensor, labels: Tensor) -> float:
    return float(logits.softmax(dim=1)[0, 0])


def temperature(logits: Tensor, labels: Tensor) -> float:
    scaler = SCALER()
    scaler.fit(DataLoader(TensorDataset(logits, labels), batch_size=len(labels)), progress=False)
    return float(scaler.inv_temp)


def ece(logits: Tensor, labels: Tensor) -> float:
    metric = CALIBRATION.CalibrationError(task="multiclass", num_classes=logits.shape[1], num_bins=15)
    return _measured(metric, logits, labels)


def classwise_ece(logits: Tensor, labels: Tensor) -> float:
    return _measured(CALIBRATION.ClasswiseCalibrationError(num_classes=logits.shape[1], num_bins=15), logits, labels)


def brier(logits: Tensor, labels: Tensor) -> float:
    return _measured(BRIER(num_classes=logits.shape[1]), logits, labels)


def nll(logits: Tensor, labels: Tensor) -> float:
    return _measured(NLL(), logits, labels)


def smooth_ece(logits: Tensor, labels: Tensor) -> float:
    return _measured(CALIBRATION.SmoothCalibrationError(kernel_type="reflected"), logits, labels)


def _measured(metric: Any, logits: Tensor, labels: Tensor) -> float:
    metric.update(logits.softmax(dim=1), labels)
    return float(metric.compute())
