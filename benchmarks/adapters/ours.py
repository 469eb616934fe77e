"""`lates`, as a user calls it."""

from torch import Tensor

import lates
from benchmarks.adapters.tensors import native as native


def temperature(logits: Tensor, labels: Tensor) -> float:
    return float(lates.fit_stack([logits], labels).weights[0])


def ece(logits: Tensor, labels: Tensor) -> float:
    return lates.metrics.ece(logits, labels)


def classwise_ece(logits: Tensor, labels: Tensor) -> float:
    return lates.metrics.classwise_ece(logits, labels)


def brier(logits: Tensor, labels: Tensor) -> float:
    return lates.metrics.brier(logits, labels)


def nll(logits: Tensor, labels: Tensor) -> float:
    return lates.metrics.nll(logits, labels)


def auc(logits: Tensor, labels: Tensor) -> float:
    return lates.metrics.auc(logits, labels)


def smooth_ece(logits: Tensor, labels: Tensor) -> float:
    return lates.metrics.ece_smooth(logits, labels)
