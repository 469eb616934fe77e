"""`lates`, as a user calls it; and the rivals that the experiments compare it with, fitted on the first half of the rows."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

import lates
from benchmarks.adapters.tensors import native as native
from experiments.evaluation.rivals import mixture, structured, vector
from lates.metrics import auc, brier, classwise_ece, ece, nll
from lates.metrics import ece_smooth as smooth_ece

__all__ = [
    "auc",
    "brier",
    "classwise_ece",
    "ece",
    "ets",
    "nll",
    "smooth_ece",
    "sms",
    "svs",
    "temperature",
    "vector_scaling",
]


def temperature(logits: Tensor, labels: Tensor) -> float:
    return float(lates.fit_stack([logits], labels).weights[0])


def _log_loss_of(fit: Callable[..., Any], logits: Tensor, labels: Tensor) -> float:
    """Of the second half."""
    half = len(labels) // 2
    rival = fit(logits[:half], labels[:half])
    return nll(rival.log_probabilities(logits[half:]), labels[half:])


vector_scaling = partial(_log_loss_of, vector.fit)
svs = partial(_log_loss_of, partial(structured.fit, diagonal=True))
sms = partial(_log_loss_of, structured.fit)
ets = partial(_log_loss_of, mixture.fit)
