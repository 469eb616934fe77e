"""netcal: probabilities in numpy."""

from importlib import import_module

import numpy as np
import torch

from benchmarks.adapters.arrays import native as native

SCALING, METRICS = import_module("netcal.scaling"), import_module("netcal.metrics")


def softmax(logits: np.ndarray) -> np.ndarray:
    return torch.from_numpy(logits).softmax(dim=1).numpy()


def temperature(probabilities: np.ndarray, labels: np.ndarray) -> float:
    fitted = SCALING.TemperatureScaling().fit(probabilities.astype(np.float64), labels)  # of float32 it returns its start, 1
    return float(np.asarray(fitted.weights).squeeze())


def ece(probabilities: np.ndarray, labels: np.ndarray) -> float:
    return float(METRICS.ECE(15).measure(probabilities, labels))
