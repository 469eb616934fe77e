"""`lates`, as a user calls it."""

import numpy as np
import torch
from torch import Tensor

import lates


def native(logits: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(logits), torch.from_numpy(labels)


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
