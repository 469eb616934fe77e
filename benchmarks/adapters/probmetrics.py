"""probmetrics: a bisection on logits."""

from importlib import import_module

from torch import Tensor

from benchmarks.adapters.tensors import native as native

CALIBRATORS = import_module("probmetrics.calibrators")
DISTRIBUTIONS = import_module("probmetrics.distributions")


def temperature(logits: Tensor, labels: Tensor) -> float:
    calibrator = CALIBRATORS.TemperatureScalingCalibrator()
    calibrator.fit_torch(DISTRIBUTIONS.CategoricalLogits(logits), labels)
    return float(calibrator.invtemp_)
