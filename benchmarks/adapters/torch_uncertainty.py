"""torch-uncertainty: its scaler reads batches of logits, its metrics take probabilities.

The scaler goes through its loader once, puts the batches together, and fits on them all. What it is given here is all rows as
one batch: a `DataLoader` of cached logits would fetch and collate them row by row, 0.2 s more for 50,000 rows.
Its package imports torchvision for parts that have nothing to do with either, so the two subpackages are entered by the
side: their parents are put in place as empty packages.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from torch import Tensor

from benchmarks.adapters.tensors import native as native
from benchmarks.adapters.tensors import softmax as softmax


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


def temperature(logits: Tensor, labels: Tensor) -> float:
    scaler = SCALER()
    scaler.fit([(logits, labels)], progress=False)
    return float(scaler.inv_temp)


def ece(probabilities: Tensor, labels: Tensor) -> float:
    classes = probabilities.shape[1]
    return _measured(CALIBRATION.CalibrationError(task="multiclass", num_classes=classes, num_bins=15), probabilities, labels)


def classwise_ece(probabilities: Tensor, labels: Tensor) -> float:
    classes = probabilities.shape[1]
    return _measured(CALIBRATION.ClasswiseCalibrationError(num_classes=classes, num_bins=15), probabilities, labels)


def brier(probabilities: Tensor, labels: Tensor) -> float:
    return _measured(BRIER(num_classes=probabilities.shape[1]), probabilities, labels)


def nll(probabilities: Tensor, labels: Tensor) -> float:
    return _measured(NLL(), probabilities, labels)


def smooth_ece(probabilities: Tensor, labels: Tensor) -> float:
    return _measured(CALIBRATION.SmoothCalibrationError(kernel_type="reflected"), probabilities, labels)


def _measured(metric: Any, probabilities: Tensor, labels: Tensor) -> float:
    metric.update(probabilities, labels)
    return float(metric.compute())
