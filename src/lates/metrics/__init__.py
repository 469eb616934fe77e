"""How good are these logits? Pure functions (logits [n, classes], labels [n]) -> float.

Logits are torch tensors on any device or numpy arrays, of any floating dtype; all arithmetic is float64, in chunks.
`probabilities.log()` are valid logits. Smaller is better, except for accuracy,
`coverage_at_risk` and the two areas `auc` and `auc_keras`.
"""

from lates.metrics.rows import accuracy, brier, brier_paper, nll
from lates.metrics.calibration import Reliability, classwise_ece, ece, ece_debiased, ece_floor, reliability
from lates.metrics.smoothing import ece_smooth
from lates.metrics.ranking import auc, auc_keras, aurc, coverage_at_risk
from lates.metrics.overview import summary
from lates.metrics.intervals import Interval, bootstrap
from lates.metrics.comparison import Comparison, compare, verdict

# Public as `lates.selective`.
from lates.metrics.selective import Selection as Selection, Selector as Selector, fit_selector as fit_selector

# For the other packages of this library; not public.
from lates.metrics.rows import Array as Array, Rows as Rows, checked as checked, describe_rows as describe_rows
from lates.metrics.calibration import BINS as BINS, class_errors as class_errors
from lates.metrics.ranking import risk_coverage_of_rows as risk_coverage_of_rows
from lates.metrics.overview import METRICS as METRICS
from lates.metrics.comparison import Intervals as Intervals, Verdict as Verdict

__all__ = [
    "accuracy", "brier", "brier_paper", "nll",
    "Reliability", "classwise_ece", "ece", "ece_debiased", "ece_floor", "reliability", "ece_smooth",
    "auc", "auc_keras", "aurc", "coverage_at_risk",
    "summary", "Interval", "bootstrap", "Comparison", "compare", "verdict",
]  # fmt: skip
