"""Which of several methods is better on a test set? Their metrics, paired differences and a verdict on each difference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lates.metrics.calibration import ece_floor
from lates.metrics.intervals import Interval, check_draws, interval_of, resample
from lates.metrics.overview import METRICS, check_names
from lates.metrics.rows import Array
from lates.runtime import check_form

QUICK_METRICS = ("accuracy", "nll", "brier", "ece", "aurc")
MOST_DRAWS, FEWEST_DRAWS = 1000, 200
DRAWN_ROWS = 10**7  # in all draws together: a thousand draws of 10,000 rows take about a second
ROUNDING = 1e-6  # of float32 logits: a method compared with itself may differ by that much

Intervals = dict[str, Interval]
"""metric -> interval"""
Verdict = Literal["better", "worse", "unclear"]


@dataclass(frozen=True)
class Comparison:
    """Methods on one test set.

    measured      method -> metric -> value and interval
    differences   method -> baseline -> metric -> the method's value minus the baseline's, paired
    ece_floor     method -> the ECE that a perfectly calibrated predictor with its confidences would measure
    """

    rows: int
    classes: int
    draws: int
    measured: dict[str, Intervals]
    differences: dict[str, dict[str, Intervals]]
    ece_floor: dict[str, float]


def verdict(difference: Interval, metric: str) -> Verdict:
    """Of a paired difference in that metric: "better" or "worse" where its interval excludes zero, "unclear" otherwise."""
    if not difference.excludes_zero or abs(difference.value) < ROUNDING:
        return "unclear"
    return "better" if (difference.value > 0) == METRICS[metric].larger_is_better else "worse"


def compare(
    logits: Mapping[str, Array],
    labels: Array,
    *,
    baselines: Sequence[str] = (),
    metrics: Sequence[str] = QUICK_METRICS,
    draws: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Measure methods on the same rows, and each one against every baseline that stands before it.

    logits      method -> logits [n, classes], in the order in which the methods are compared
    baselines   the names of methods; each later method gets its difference to them
    metrics     names of functions of this module; those outside the default compute all draws anew and take longer
    draws       of the bootstrap, see `bootstrap`; by default 1000, fewer for more than 10,000 rows, at least 200

    >>> comparison = compare({"network": z, "lates": y}, labels, baselines=["network"])
    >>> comparison.measured["lates"]["nll"]  # Interval(value=0.41, low=0.39, high=0.43, confidence=0.95, draws=1000)
    >>> difference = comparison.differences["lates"]["network"]["nll"]  # Interval(value=-0.05, low=-0.06, …)
    >>> verdict(difference, "nll")
    'better'
    """
    if not logits:
        raise ValueError("No method came; expected at least one: method -> logits [n, classes].")
    for name, values in logits.items():
        check_form(values, f"the logits of {name}")
    (rows, classes), *others = {tuple(values.shape): None for values in logits.values()}
    if others:
        shapes = ", ".join(f"{name} {list(values.shape)}" for name, values in logits.items())
        raise ValueError(f"The methods' logits have different shapes: {shapes}; expected the same rows and classes.")
    if draws is None:
        draws = min(MOST_DRAWS, max(FEWEST_DRAWS, DRAWN_ROWS // rows))
    check_draws(draws, confidence)
    check_names("metric", metrics, METRICS)
    check_names("baseline", baselines, logits)
    chosen = {name: METRICS[name] for name in metrics}
    drawn = resample([metric.function for metric in chosen.values()], logits, labels, draws, seed)

    def intervals(*methods: str) -> Intervals:
        return {
            name: interval_of([drawn[method, metric.function] for method in methods], confidence, rows, metric.bounds)
            for name, metric in chosen.items()
        }

    methods = list(logits)
    return Comparison(
        rows,
        classes,
        draws,
        measured={method: intervals(method) for method in methods},
        differences={
            method: {baseline: intervals(method, baseline) for baseline in methods[:place] if baseline in baselines}
            for place, method in enumerate(methods)
        },
        ece_floor={method: ece_floor(values, seed=seed) for method, values in logits.items()},
    )
