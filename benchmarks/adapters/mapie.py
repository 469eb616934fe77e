"""MAPIE: probabilities in numpy; its confidence error wants to be told which rows are right."""

from importlib import import_module

import numpy as np

METRICS = import_module("mapie.metrics.calibration")


def native(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return logits, labels


def softmax(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(_probabilities(logits)[0, 0])


def ece(logits: np.ndarray, labels: np.ndarray) -> float:
    correct = (logits.argmax(axis=1) == labels).astype(int)
    return METRICS.expected_calibration_error(correct, _probabilities(logits), num_bins=15)


def classwise_ece(logits: np.ndarray, labels: np.ndarray) -> float:
    return METRICS.expected_calibration_error(
        labels, _probabilities(logits), num_bins=15, classwise=True, class_labels=labels
    )


def _probabilities(logits: np.ndarray) -> np.ndarray:
    exponentials = logits - logits.max(axis=1, keepdims=True)
    np.exp(exponentials, out=exponentials)
    exponentials /= exponentials.sum(axis=1, keepdims=True)
    return exponentials
