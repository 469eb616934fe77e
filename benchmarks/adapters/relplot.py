"""relplot: the smooth ECE by its authors, from logits by their own way to confidences."""

from importlib import import_module

import numpy as np

METRICS = import_module("relplot.metrics")


def native(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return logits, labels


def softmax(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(METRICS.multiclass_logits_to_confidences(logits, labels)[0][0])


def ece(logits: np.ndarray, labels: np.ndarray) -> float:
    return METRICS.binnedECE(*METRICS.multiclass_logits_to_confidences(logits, labels), nbins=15)


def smooth_ece(logits: np.ndarray, labels: np.ndarray) -> float:
    return METRICS.smECE(*METRICS.multiclass_logits_to_confidences(logits, labels))
