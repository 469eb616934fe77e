"""How sure is a metric, and is one method better than another? Bootstrap intervals over rows."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lates.metrics.calibration import ece, ece_debiased, ece_debiased_of_rows, ece_of_rows
from lates.metrics.ranking import aurc, aurc_of_rows
from lates.metrics.rows import Array, Rows, checked, describe_rows
from lates.metrics.scores import (
    accuracy,
    brier,
    brier_paper,
    mean_brier,
    mean_brier_paper,
    mean_correct,
    mean_nll,
    nll,
)
from lates.metrics.smoothing import ece_smooth, ece_smooth_of_rows

Metric = Callable[[Array, Array], float]

FROM_ROWS: dict[Metric, Callable[[Rows], float]] = {
    accuracy: mean_correct,
    nll: mean_nll,
    brier: mean_brier,
    brier_paper: mean_brier_paper,
    ece: ece_of_rows,
    ece_debiased: ece_debiased_of_rows,
    ece_smooth: ece_smooth_of_rows,
    aurc: aurc_of_rows,
}


LARGER_IS_BETTER = ("accuracy", "auc")


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
        """Of a paired difference in the metric of that name: whether it speaks for the first, whichever way that points."""
        return (self.value > 0) == (metric in LARGER_IS_BETTER)


def on_rows(metric: Metric, logits: Array, labels: Array) -> Callable[[Tensor], float]:
    """index [n] -> the metric on those rows; the softmax is taken only once where per-row values suffice."""
    if metric in FROM_ROWS:
        rows, of_rows = describe_rows(logits, labels), FROM_ROWS[metric]
        return lambda index: of_rows(rows.take(index))
    logits, labels = checked(logits, labels)
    return lambda index: metric(logits[index.to(logits.device)], labels[index.to(labels.device)])


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

    Rows are drawn with replacement; both methods are measured on the same draw, which is what makes the difference
    paired. With value v and the draws' median and quantiles q_low, q_high at (1 ∓ confidence) / 2, the interval is
    the centred bootstrap interval [v - (q_high - median), v - (q_low - median)]. For means it agrees with the usual
    percentile and basic intervals. An ECE's draws mostly lie above its value, as resampling adds noise to every bin,
    and there it serves values and differences alike. Simulated at 95 % and n = 2,000: it told 4 to 7 % of equal pairs
    apart, the basic interval 11 %; of calibrated predictors the percentile interval missed the value itself in a
    quarter. It says how the measured value varies and does not remove the ECE's own bias: see `ece_floor` for that.

    Any function (logits, labels) -> float serves as metric; those of this package that need only per-row values are
    resampled without a new softmax. Not finite where the metric is infinite or NaN on a draw.
    """
    if draws < 2:
        raise ValueError(f"draws came as {draws}; expected at least 2, better 1000.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence came as {confidence}; expected a number between 0 and 1, such as 0.95.")
    if other is not None and other.shape != logits.shape:
        raise ValueError(
            f"other has shape {list(other.shape)}; expected {list(logits.shape)}, the logits of a second method for "
            "the same rows and classes."
        )
    measures = [on_rows(metric, method, labels) for method in (logits, other) if method is not None]

    def difference(index: Tensor) -> float:
        first, *second = [measure(index) for measure in measures]
        return first - sum(second)

    n = len(labels)
    generator = torch.Generator().manual_seed(seed)
    value = difference(torch.arange(n))
    values = [difference(torch.randint(n, (n,), generator=generator)) for _ in range(draws)]
    return centred_interval(value, torch.tensor(values, dtype=torch.float64), confidence)


def centred_interval(value: float, values: Tensor, confidence: float) -> Interval:
    """The interval that `bootstrap` describes, of a value and what it came to on each draw [draws]."""
    tail = (1 - confidence) / 2
    levels = torch.tensor([tail, 0.5, 1 - tail], dtype=torch.float64)
    low, median, high = values.quantile(levels).tolist()
    return Interval(value, value - (high - median), value - (low - median), confidence, len(values))
