"""How sure is a metric? One bootstrap: the same draws of rows for every method and metric, so that differences are paired.

A draw of n rows is a vector of counts w [n], how often each row was drawn. A `Statistic` maps it to the value on that draw.
For accuracy, log-loss and Brier score that is w · values / n. For the ECE, whose bins do not move, it is
sum_b |w · residuals_b| / n with residuals_b = correct - confidence inside bin b. For the area under the risk-coverage curve
rows are sorted once. Every other metric is computed anew on each draw.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from lates.metrics.overview import METRICS, Bounds, Metric
from lates.metrics.rows import Array, Statistic, checked, describe_rows
from lates.runtime import check_integer, check_seed

ROUNDING = 1e-14  # relative to their mean: draws that differ by less are equal

Function = Callable[[Array, Array], float]


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


def bootstrap(
    metric: Function,
    logits: Array,
    labels: Array,
    *,
    other: Array | None = None,
    draws: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    bounds: Bounds | None = None,
) -> Interval:
    """The interval of metric(logits, labels), or, given `other`, of metric(logits, labels) - metric(other, labels).

    Rows are drawn with replacement; both methods are measured on the same draws, which pairs the difference. With value v,
    and mean m, skewness and quantile function Q of the draws, a = skewness / 6 and z the normal quantile of the confidence,
    the interval is the percentile interval at the levels of BCa (Efron, 1987), moved by the draws' bias m - v:

        v - m + Q(Φ(a + (a ∓ z) / (1 - a (a ∓ z)))).

    For a mean, a is BCa's acceleration and its bias correction too. For an ECE, whose draws mostly lie above its value
    because resampling adds noise to every bin, BCa's own bias correction breaks down; a shift does not. The ends are cut to
    `bounds`, the values that the metric can take: known for the metrics of this package, -inf to inf for others unless you
    pass them. Where every draw is the best or worst value possible, as for an accuracy of 1, no draw shows what other rows
    would: the other end is then the exact binomial one, 1 - ((1 - confidence) / 2)^(1 / n) of the range away.

    It describes how the measured value varies at this number of rows and does not remove the bias of the ECE: see
    `ece_floor` for that. Simulated at 95 %, with 200 to 2,000 rows of which 1 to 47 % were wrong, intervals of values covered
    91 to 99 % (plain percentile intervals 85 to 98 %, least for an ECE), and intervals of differences 90 to 98 %.

    Any function (logits, labels) -> float that does not depend on the order of rows can be the metric. NaN where it is
    infinite or NaN on a draw. `compare` does this for several methods and metrics at once.
    """
    check_draws(draws, confidence)
    if other is not None and other.shape != logits.shape:
        raise ValueError(
            f"other has shape {list(other.shape)}; expected {list(logits.shape)}, the logits of a second method for "
            "the same rows and classes."
        )
    methods = {"one": logits} if other is None else {"one": logits, "other": other}
    drawn = resample([metric], methods, labels, draws, seed)
    return interval_of(list(drawn.values()), confidence, len(labels), bounds or known(metric).bounds)


def check_draws(draws: int, confidence: float) -> None:
    if check_integer(draws, "draws") < 2:
        raise ValueError(f"draws came as {draws}; expected at least 2, better 1000.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence came as {confidence}; expected a number between 0 and 1, such as 0.95.")


def interval_of(drawn: Sequence[Tensor], confidence: float, rows: int, bounds: Bounds) -> Interval:
    """The interval that `bootstrap` describes, from a method's values on all rows and on each draw [1 + draws]; given a second
    method's too, that of their difference."""
    values, (least, most) = drawn[0], bounds
    if len(drawn) > 1:
        values, least, most = values - drawn[1], least - most, most - least
    value, draws = float(values[0]), values[1:]
    if not bool(values.isfinite().all()):
        return Interval(value, math.nan, math.nan, confidence, len(draws))
    tail = (1 - confidence) / 2
    mean, deviation = float(draws.mean()), float(draws.std(correction=0))
    if deviation <= ROUNDING * abs(mean):
        low = high = value
        if value in (least, most) and math.isfinite(most - least):
            unseen = (most - least) * (1 - tail ** (1 / rows))
            low, high = value - unseen, value + unseen
    else:
        skewness = float(((draws - mean) / deviation).pow(3).mean())
        z = NormalDist().inv_cdf(1 - tail)
        levels = torch.tensor([accelerated(sign * z, skewness / 6) for sign in (-1, 1)], dtype=torch.float64)
        low, high = (value - mean + draws.quantile(levels)).tolist()
    return Interval(value, min(value, max(low, least)), max(value, min(high, most)), confidence, len(draws))


def accelerated(z: float, a: float) -> float:
    """The level Φ(a + (a + z) / (1 - a (a + z))) of BCa with acceleration and bias correction a."""
    rest = 1 - a * (a + z)
    return NormalDist().cdf(a + (a + z) / rest) if rest > 0 else float(z > 0)


def resample(
    metrics: Iterable[Function], methods: Mapping[str, Array], labels: Array, draws: int, seed: int
) -> dict[tuple[str, Function], Tensor]:
    """Each method's metrics on all rows once, followed by their values on the draws: [1 + draws]."""
    statistics = {
        (method, metric): statistic
        for method, logits in methods.items()
        for metric, statistic in statistics_of(metrics, logits, labels).items()
    }
    rows, generator = len(labels), torch.Generator().manual_seed(check_seed(seed))
    counts = torch.ones(rows, dtype=torch.float64)
    values = [[float(statistic(counts)) for statistic in statistics.values()]]
    for _ in range(draws):
        index = torch.randint(rows, (rows,), generator=generator)
        counts = torch.bincount(index, minlength=rows).double()
        values.append([float(statistic(counts)) for statistic in statistics.values()])
    return dict(zip(statistics, torch.tensor(values, dtype=torch.float64).T, strict=True))


def statistics_of(metrics: Iterable[Function], logits: Array, labels: Array) -> dict[Function, Statistic]:
    """One for each metric. Those that need only per-row values share one softmax; the others see the drawn logits."""
    rows = describe_rows(logits, labels)
    logits, labels = checked(logits, labels)

    def statistic(function: Function) -> Statistic:
        of_draws = known(function).of_draws
        if of_draws is not None:
            return of_draws(rows)

        def on_draw(counts: Tensor) -> Tensor:
            index = torch.repeat_interleave(counts.long()).to(logits.device)
            return torch.tensor(function(logits[index], labels[index]), dtype=torch.float64)

        return on_draw

    return {function: statistic(function) for function in metrics}


def known(function: Function) -> Metric:
    """The metric of this function; one of the user's own has no bounds."""
    metric = METRICS.get(getattr(function, "__name__", ""))
    if metric is None or metric.function is not function:
        return Metric(function, bounds=(-math.inf, math.inf))
    return metric
