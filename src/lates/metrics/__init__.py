"""How good are these logits? Pure functions (logits [n, classes], labels [n]) -> float.

Logits are torch tensors on any device or numpy arrays, of any floating dtype; all arithmetic is float64, in chunks.
`probabilities.log()` are valid logits. Smaller is better, except for accuracy and the two areas `auc` and `auc_keras`.
"""

from lates.metrics.calibration import Reliability, classwise_ece, ece, ece_debiased, ece_floor, reliability
from lates.metrics.intervals import Interval, bootstrap
from lates.metrics.overview import summary
from lates.metrics.ranking import auc, auc_keras, aurc
from lates.metrics.scores import accuracy, brier, brier_paper, nll
from lates.metrics.smoothing import ece_smooth

__all__ = [
    "Interval",
    "Reliability",
    "accuracy",
    "auc",
    "auc_keras",
    "aurc",
    "bootstrap",
    "brier",
    "brier_paper",
    "classwise_ece",
    "ece",
    "ece_debiased",
    "ece_floor",
    "ece_smooth",
    "nll",
    "reliability",
    "summary",
]
