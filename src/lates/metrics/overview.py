"""The table of metrics, and the main ones of one set of logits."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lates.metrics.calibration import (
    BINS,
    classwise_ece,
    ece,
    ece_debiased,
    ece_debiased_of_rows,
    ece_floor,
    ece_of_draws,
)
from lates.metrics.ranking import auc, auc_keras, aurc, aurc_of_draws, coverage_at_risk, coverage_of_rows
from lates.metrics.rows import (
    Array,
    Rows,
    Statistic,
    accuracy,
    accuracy_of_draws,
    brier,
    brier_of_draws,
    brier_paper,
    brier_paper_of_draws,
    describe_rows,
    nll,
    nll_of_draws,
    on_all_rows,
)
from lates.metrics.smoothing import ece_smooth, ece_smooth_of_rows

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Metric:
    """A metric, and the quickest way to it: from draws of rows, or from rows, if not from logits and labels alone.

    function  (logits, labels) -> value, with its options
    of_draws  `Rows` -> how often each row is drawn -> value, with the same options
    of_rows   `Rows` -> value, with the same options
    bounds    the smallest and the largest value that it can take
    binned    whether it takes `bins`
    """

    function: Callable[..., float]
    of_draws: Callable[..., Statistic] | None = None
    of_rows: Callable[..., float] | None = None
    bounds: Bounds = (0.0, 1.0)
    larger_is_better: bool = False
    binned: bool = False

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def needs_logits(self) -> bool:
        return self.of_draws is None and self.of_rows is None

    def value(self, rows: Rows, **options: Any) -> float:
        """Of a metric that does not need logits."""
        if self.of_draws is not None:
            return on_all_rows(self.of_draws, rows, **options)
        if self.of_rows is None:
            raise TypeError(f"{self.name} needs logits.")
        return self.of_rows(rows, **options)


ALL = (
    Metric(accuracy, accuracy_of_draws, larger_is_better=True),
    Metric(nll, nll_of_draws, bounds=(0.0, math.inf)),
    Metric(brier, brier_of_draws, bounds=(0.0, 2.0)),
    Metric(brier_paper, brier_paper_of_draws, bounds=(-1.0, 1.0)),
    Metric(ece, ece_of_draws, binned=True),
    # a bin of two rows, one of them right, has a variance of 1/4
    Metric(ece_debiased, of_rows=ece_debiased_of_rows, bounds=(-0.25, 1.0), binned=True),
    Metric(ece_smooth, of_rows=ece_smooth_of_rows),
    Metric(aurc, aurc_of_draws),
    Metric(coverage_at_risk, of_rows=coverage_of_rows, larger_is_better=True),
    Metric(classwise_ece, binned=True),
    Metric(auc, larger_is_better=True),
    Metric(auc_keras, larger_is_better=True),
)
METRICS = {metric.name: metric for metric in ALL}

MAIN = ("accuracy", "nll", "brier", "ece", "ece_floor", "classwise_ece", "auc", "aurc")
"""Right or wrong, proper scores, calibration with its floor, ranking."""


def summary(logits: Array, labels: Array, bins: int = BINS, metrics: Iterable[str] = MAIN) -> dict[str, float]:
    """Several metrics by name; see the function of each name for its definition.

    Calibration errors take `bins` bins. Metrics that need a number or two per row share one softmax: this is faster than
    calling each.
    """
    metrics = list(metrics)
    check_names("metric", metrics, (*METRICS, "ece_floor"))
    rows = describe_rows(logits, labels)

    def value(metric: Metric) -> float:
        options = {"bins": bins} if metric.binned else {}
        return metric.function(logits, labels, **options) if metric.needs_logits else metric.value(rows, **options)

    return {name: ece_floor(logits, bins) if name == "ece_floor" else value(METRICS[name]) for name in metrics}


def check_names(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f'Unknown {kind} "{name}". Known: {", ".join(known)}.')
