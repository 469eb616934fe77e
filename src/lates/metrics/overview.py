"""The metrics in tables: all by name, those that per-row values determine, and the main ones of one set of logits."""

import math
from collections.abc import Callable, Iterable

from lates.metrics import calibration
from lates.metrics.calibration import BINS, classwise_ece, ece, ece_debiased, ece_floor
from lates.metrics.ranking import auc, auc_keras, aurc, coverage_at_risk, coverage_of_rows, risks_of_rows
from lates.metrics.rows import Array, accuracy, brier, brier_paper, describe_rows, nll
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
KNOWN = {**METRICS, "ece_floor": ece_floor}
BINNED = ("ece", "ece_debiased", "ece_floor", "classwise_ece")
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

MAIN = ("accuracy", "nll", "brier", "ece", "ece_floor", "classwise_ece", "auc", "aurc")
"""Right or wrong, proper scores, calibration with its floor, ranking."""


def summary(logits: Array, labels: Array, bins: int = BINS, metrics: Iterable[str] = MAIN) -> dict[str, float]:
    """Several metrics by name; see the function of each name for its definition.

    Calibration errors take `bins` bins. Metrics that need a number or two per row share one softmax: this is faster than
    calling each.
    """
    metrics = list(metrics)
    check_names("metric", metrics, KNOWN)
    rows = describe_rows(logits, labels)
    values = dict[str, float]()
    for name in metrics:
        metric, options = KNOWN[name], {"bins": bins} if name in BINNED else {}
        if metric in OF_ROWS:
            values[name] = OF_ROWS[metric](rows, **options)
        else:
            values[name] = metric(logits, **options) if metric is ece_floor else metric(logits, labels, **options)
    return values


def check_names(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f'Unknown {kind} "{name}". Known: {", ".join(known)}.')
