"""How sure is a metric? Its bootstrap interval over rows."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lates.metrics.overview import LARGER_IS_BETTER
from lates.metrics.resampling import Metric, mean_of, resample, statistics_of
from lates.metrics.rows import Array


@dataclass(frozen=True)
class Interval:
    """A measured value and its bootstrap interval [low, high] at the stated confidence."""

    value: float
    low: float
    high: float
    confidence: float
    draws: int

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside: for a paired difference, whether it exceeds chance at this confidence."""
        return self.low > 0 or self.high < 0

    def favours(self, metric: str) -> bool:
        """For a paired difference in the metric of that name: whether the first method is the better one."""
        return (self.value > 0) == (metric in LARGER_IS_BETTER)


def bootstrap(
    metric: Metric,
    logits: Array,
    labels: Array,
    *,
    other: Array | None = None,
    draws: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The interval of metric(logits, labels), or, given `other`, of metric(logits, labels) - metric(other, labels).

    Rows are drawn with replacement; both methods are measured on the same draws, which pairs the difference. With value
    v and the draws' median and quantiles q_low, q_high at (1 ∓ confidence) / 2, the interval is the centred bootstrap
    interval [v - (q_high - median), v - (q_low - median)]. For means it agrees with the usual percentile and basic
    intervals. The draws of an ECE mostly lie above its value, because resampling adds noise to every bin; there the
    centred interval suits values and differences alike. Simulated at 95 % and n = 2,000, it separated 4 to 7 % of
    equal pairs, the basic interval 11 %; for calibrated predictors the percentile interval missed the value itself in
    a quarter of the runs. It describes how the measured value varies and does not remove the bias of the ECE: see
    `ece_floor` for that.

    Any function (logits, labels) -> float that does not depend on the order of rows can be the metric; those of this
    package that need only per-row values are resampled without a new softmax. Not finite where the metric is infinite
    or NaN on a draw. `compare` does this for several methods and metrics at once.
    """
    check_draws(draws, confidence)
    if other is not None and other.shape != logits.shape:
        raise ValueError(
            f"other has shape {list(other.shape)}; expected {list(logits.shape)}, the logits of a second method for "
            "the same rows and classes."
        )
    methods = [logits] if other is None else [logits, other]
    statistics = dict(enumerate(statistics_of([metric], method, labels)[0] for method in methods))
    values = resample(statistics, len(labels), draws, seed)
    return interval_of(values[0] if other is None else values[0] - values[1], confidence)


def bootstrap_means(values: Mapping[str, Tensor], *, draws: int, seed: int = 0) -> dict[str, Interval]:
    """The 95 % intervals of means of per-row values [n], on the same draws as `bootstrap` and `compare` with that seed."""
    rows = len(next(iter(values.values())))
    drawn = resample({name: mean_of(value.double()) for name, value in values.items()}, rows, draws, seed)
    return {name: interval_of(of_name, 0.95) for name, of_name in drawn.items()}


def check_draws(draws: int, confidence: float) -> None:
    if draws < 2:
        raise ValueError(f"draws came as {draws}; expected at least 2, better 1000.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence came as {confidence}; expected a number between 0 and 1, such as 0.95.")


def interval_of(values: Tensor, confidence: float) -> Interval:
    """The interval that `bootstrap` describes. `values` [1 + draws]: on all rows, then on each draw."""
    value, drawn = float(values[0]), values[1:]
    tail = (1 - confidence) / 2
    levels = torch.tensor([tail, 0.5, 1 - tail], dtype=torch.float64)
    low, median, high = drawn.quantile(levels).tolist()
    return Interval(value, value - (high - median), value - (low - median), confidence, len(drawn))
