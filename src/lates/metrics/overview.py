"""The table of metrics, and the main ones of one set of logits."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

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
    OfDraws,
    Rows,
    accuracy,
    brier,
    brier_paper,
    computed_anew,
    describe_rows,
    mean_of,
    nll,
    on_all_rows,
)
from lates.metrics.smoothing import ece_smooth, ece_smooth_of_rows

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Metric:
    """A metric, and the quickest way to it.

    function  (logits, labels) -> value, with its options
    of_draws  `Rows` -> how often each row is drawn -> value, with the same options; None: the logits themselves are needed
    bounds    the smallest and the largest value that it can take
    binned    whether it takes `bins`
    """

    function: Callable[..., float]
    of_draws: OfDraws | None = None
    bounds: Bounds = (0.0, 1.0)
    larger_is_better: bool = False
    binned: bool = False

    def of_rows(self, rows: Rows, **options: Any) -> float:
        """Of a metric that does not need the logits."""
        return on_all_rows(cast(OfDraws, self.of_draws), rows, **options)


METRICS = {
    metric.function.__name__: metric
    for metric in (
        Metric(accuracy, mean_of("correct"), larger_is_better=True),
        Metric(nll, mean_of("nll"), bounds=(0.0, math.inf)),
        Metric(brier, mean_of("brier"), bounds=(0.0, 2.0)),
        Metric(brier_paper, lambda rows: lambda counts: mean_of("brier")(rows)(counts) - 1, bounds=(-1.0, 1.0)),
        Metric(ece, ece_of_draws, binned=True),
        # a bin of two rows, one of them right, has a variance of 1/4
        Metric(ece_debiased, computed_anew(ece_debiased_of_rows), bounds=(-0.25, 1.0), binned=True),
        Metric(ece_smooth, computed_anew(ece_smooth_of_rows)),
        Metric(aurc, aurc_of_draws),
        Metric(coverage_at_risk, computed_anew(coverage_of_rows), larger_is_better=True),
        Metric(classwise_ece, binned=True),
        Metric(auc, larger_is_better=True),
        Metric(auc_keras, larger_is_better=True),
    )
}

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

    def value(name: str) -> float:
        if name == "ece_floor":
            return ece_floor(logits, bins)
        metric = METRICS[name]
        options = {"bins": bins} if metric.binned else {}
        if metric.of_draws is None:
            return metric.function(logits, labels, **options)
        return metric.of_rows(rows, **options)

    return {name: value(name) for name in metrics}


def check_names(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f'Unknown {kind} "{name}". Known: {", ".join(known)}.')
