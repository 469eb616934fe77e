"""The metrics in tables: all by name, those that per-row values determine, and the main ones of one set of logits."""

import math
from collections.abc import Callable

from lates.metrics import calibration
from lates.metrics.calibration import BINS, classwise_ece, ece, ece_debiased, ece_floor
from lates.metrics.ranking import auc, auc_keras, aurc, coverage_at_risk, coverage_of_rows, risks_of_rows
from lates.metrics.rows import Array, describe_rows
from lates.metrics.scores import accuracy, brier, brier_paper, nll
from lates.metrics.smoothing import ece_smooth, ece_smooth_of_rows

OF_ROWS: dict[Callable[..., float], Callable[..., float]] = {
    accuracy: lambda rows: float(rows.correct.mean()),
    nll: lambda rows: float(rows.nll.mean()),
    brier: lambda rows: float(rows.brier.mean()),
    brier_paper: lambda rows: float(rows.brier.mean()) - 1,
    ece: calibration.ece_of_rows,
    ece_debiased: calibration.ece_debiased_of_rows,
    ece_smooth: ece_smooth_of_rows,
    aurc: lambda rows: float(risks_of_rows(rows).mean()),
    coverage_at_risk: coverage_of_rows,
}
"""metric -> the same as a function of `Rows`, with the same options"""

METRICS = {metric.__name__: metric for metric in (*OF_ROWS, classwise_ece, auc, auc_keras)}
LARGER_IS_BETTER = ("accuracy", "auc", "auc_keras", "coverage_at_risk")

Bounds = tuple[float, float]
UNBOUNDED: Bounds = (-math.inf, math.inf)
BOUNDS: dict[Callable[..., float], Bounds] = {
    **dict.fromkeys(METRICS.values(), (0.0, 1.0)),
    nll: (0.0, math.inf),
    brier: (0.0, 2.0),
    brier_paper: (-1.0, 1.0),
    ece_debiased: (-0.25, 1.0),  # a bin of two rows, one of them right, has a variance of 1/4
}
"""metric -> the smallest and the largest value that it can take"""


def summary(logits: Array, labels: Array, bins: int = BINS) -> dict[str, float]:
    """The main metrics by name: right or wrong, proper scores, calibration with its floor, ranking.

    Calibration is binned in equal widths; see the function of each name for its definition.
    """
    rows = describe_rows(logits, labels)
    return {
        "accuracy": float(rows.correct.mean()),
        "nll": float(rows.nll.mean()),
        "brier": float(rows.brier.mean()),
        "ece": calibration.ece_of_rows(rows, bins),
        "ece_floor": ece_floor(logits, bins),
        "classwise_ece": classwise_ece(logits, labels, bins),
        "auc": auc(logits, labels),
        "aurc": float(risks_of_rows(rows).mean()),
    }
