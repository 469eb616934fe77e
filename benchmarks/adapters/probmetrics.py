"""probmetrics: a bisection on logits."""

from importlib import import_module

import numpy as np
import torch
from torch import Tensor

CALIBRATORS = import_module("probmetrics.calibrators")
DISTRIBUTIONS = import_module("probmetrics.distributions")


def native(logits: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(logits), torch.from_numpy(labels)


def temperature(logits: Tensor, labels: Tensor) -> float:
    calibrator = CALIBRATORS.TemperatureScalingCalibrator()
    calibrator.fit_torch(DISTRIBUTIONS.CategoricalLogits(logits), labels)
    return float(calibrator.invtemp_)
