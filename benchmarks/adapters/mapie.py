"""MAPIE: probabilities in numpy; its confidence error wants to be told which rows are right."""

from importlib import import_module

import numpy as np

from benchmarks.adapters.arrays import native as native
from benchmarks.adapters.arrays import softmax as softmax

METRICS = import_module("mapie.metrics.calibration")
EDGES = 16  # of 15 bins: its num_bins counts edges


def ece(probabilities: np.ndarray, labels: np.ndarray) -> float:
    correct = (probabilities.argmax(axis=1) == labels).astype(int)
    return METRICS.expected_calibration_error(correct, probabilities, num_bins=EDGES)


def classwise_ece(probabilities: np.ndarray, labels: np.ndarray) -> float:
    return METRICS.expected_calibration_error(labels, probabilities, num_bins=EDGES, classwise=True, class_labels=labels)
