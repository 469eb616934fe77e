"""torchmetrics' functions: logits as they are."""

from importlib import import_module

import numpy as np
import torch
from torch import Tensor

METRICS = import_module("torchmetrics.functional.classification")


def native(logits: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(logits), torch.from_numpy(labels)


def ece(logits: Tensor, labels: Tensor) -> float:
    return float(METRICS.multiclass_calibration_error(logits, labels, num_classes=logits.shape[1], n_bins=15))


def auc(logits: Tensor, labels: Tensor) -> float:
    return float(METRICS.multiclass_auroc(logits, labels, num_classes=logits.shape[1]))
