"""The one bootstrap: rows drawn with replacement, the same draws for every method and metric, so that differences are paired.

A draw of n rows is a vector of counts w [n], how often each row was drawn. A `Statistic` maps it to the value on that draw.
For accuracy, log-loss and Brier score that is w · values / n. For the ECE, whose bins do not move, it is
sum_b |w · residuals_b| / n with residuals_b = correct - confidence inside bin b. For the area under the risk-coverage curve
rows are sorted once. Every other metric is computed anew on each draw.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import torch
from torch import Tensor

from lates.metrics.calibration import BINS, assign_bins, binned_error, ece
from lates.metrics.overview import OF_ROWS
from lates.metrics.ranking import aurc, risks_of_draws
from lates.metrics.rows import Array, Rows, checked, describe_rows
from lates.metrics.scores import accuracy, brier, brier_paper, nll
from lates.runtime import check_seed

Metric = Callable[[Array, Array], float]
Statistic = Callable[[Tensor], Tensor | float]


def resample(
    metrics: Iterable[Metric], methods: Mapping[str, Array], labels: Array, draws: int, seed: int
) -> dict[tuple[str, Metric], Tensor]:
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


def statistics_of(metrics: Iterable[Metric], logits: Array, labels: Array) -> dict[Metric, Statistic]:
    """One for each metric. Those that need only per-row values share one softmax; the others see the drawn logits."""
    rows = describe_rows(logits, labels)
    logits, labels = checked(logits, labels)

    def statistic(metric: Metric, counts: Tensor) -> float:
        index = torch.repeat_interleave(counts.long())
        if metric in OF_ROWS:
            return OF_ROWS[metric](rows.take(index))
        return metric(logits[index.to(logits.device)], labels[index.to(labels.device)])

    return {each: OF_COUNTS[each](rows) if each in OF_COUNTS else partial(statistic, each) for each in metrics}


def mean_of(values: Tensor) -> Statistic:
    """The mean of a value per row [n]."""
    return lambda counts: counts @ values / len(values)


def _ece(rows: Rows) -> Statistic:
    index = assign_bins(rows.confidence, BINS, "width")
    residuals = rows.correct - rows.confidence
    return lambda counts: binned_error(index, counts * residuals, BINS)


def _aurc(rows: Rows) -> Statistic:
    risks = risks_of_draws(rows)
    return lambda counts: risks(counts).mean()


OF_COUNTS: dict[Metric, Callable[[Rows], Statistic]] = {
    accuracy: lambda rows: mean_of(rows.correct),
    nll: lambda rows: mean_of(rows.nll),
    brier: lambda rows: mean_of(rows.brier),
    brier_paper: lambda rows: mean_of(rows.brier - 1),
    ece: _ece,
    aurc: _aurc,
}
