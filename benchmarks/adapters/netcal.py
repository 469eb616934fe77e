"""netcal: probabilities in numpy."""

from importlib import import_module

import numpy as np
import torch

SCALING, METRICS = import_module("netcal.scaling"), import_module("netcal.metrics")


def native(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return logits, labels


def softmax(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(_probabilities(logits)[0, 0])


def temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    probabilities = _probabilities(logits).astype(np.float64)  # of float32 it returns the start, 1
    fitted = SCALING.TemperatureScaling().fit(probabilities, labels)
    return float(np.asarray(fitted.weights).squeeze())


def ece(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(METRICS.ECE(15).measure(_probabilities(logits), labels))


def _probabilities(logits: np.ndarray) -> np.ndarray:
    return torch.from_numpy(logits).softmax(dim=1).numpy()
