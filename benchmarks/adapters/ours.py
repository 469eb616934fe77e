"""`lates`, as a user calls it."""

from torch import Tensor

import lates
from benchmarks.adapters.tensors import native as native
from lates.metrics import auc, brier, classwise_ece, ece, nll
from lates.metrics import ece_smooth as smooth_ece

__all__ = ["auc", "brier", "classwise_ece", "ece", "nll", "smooth_ece", "temperature"]


def temperature(logits: Tensor, labels: Tensor) -> float:
    return float(lates.fit_stack([logits], labels).weights[0])
