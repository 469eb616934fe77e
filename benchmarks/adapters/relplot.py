"""relplot: the smooth ECE by its authors, by their own way from logits to confidences, which begins with scipy's softmax."""

from importlib import import_module

import numpy as np

from benchmarks.adapters.arrays import native as native

METRICS, SPECIAL = import_module("relplot.metrics"), import_module("scipy.special")


def softmax(logits: np.ndarray) -> np.ndarray:
    return SPECIAL.softmax(logits, axis=-1)


def ece(probabilities: np.ndarray, labels: np.ndarray) -> float:
    return METRICS.binnedECE(*METRICS.multiclass_logits_to_confidences(probabilities, labels, probs=True), nbins=15)


def smooth_ece(probabilities: np.ndarray, labels: np.ndarray) -> float:
    return METRICS.smECE(*METRICS.multiclass_logits_to_confidences(probabilities, labels, probs=True))
