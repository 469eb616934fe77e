"""Does a higher probability mean a likelier class? Areas under curves that only the order of values decides."""

import math

import torch
from torch import Tensor

from lates.metrics.rows import Array, Rows, Statistic, checked, describe_rows, map_classes, on_all_rows

KERAS_THRESHOLDS = 200
COVERAGE_STEPS = 100


def auc(logits: Array, labels: Array) -> float:
    """Area under the ROC curve, one class against the rest, averaged over classes (macro); exact, ties counted half.

    Ranks are those of the float64 softmax probabilities; raw logits would rank differently. Classes without a positive
    or without a negative row are left out; where none is left the result is NaN. With two classes both curves are the
    same but for rounding, and the area is the usual binary one, of the probability of class 1.
    """
    logits, labels = checked(logits, labels)
    areas = [area for area in map_classes(lambda c, p: _area(p, labels == c), logits) if area is not None]
    if not areas:
        return math.nan
    return areas[1] if logits.shape[1] == 2 else sum(areas) / len(areas)


def _area(p: Tensor, positive: Tensor) -> float | None:
    """Over all rows x, sum_u (#{x < u} + #{x <= u}) over the P positives u counts every pair of a positive and a negative
    twice or, tied, once; the positives among themselves add P^2."""
    u, x = p[positive], p.sort().values
    P, N = len(u), len(p) - len(u)
    pairs = (torch.searchsorted(x, u) + torch.searchsorted(x, u, right=True)).sum()
    return float(pairs - P**2) / (2 * P * N) if P and N else None


def auc_keras(logits: Array, labels: Array) -> float:
    """What `tf.keras.metrics.AUC()` approximates from one-hot labels and probabilities, presumably the paper's AUC.

    Every entry of the [n, classes] probabilities is one binary prediction, all classes pooled. The ROC curve is taken
    at the 200 thresholds t / 199 (predicted positive: strictly above; the first lies just below 0, the last just above
    1) and integrated by trapezia. Pooling compares probabilities of different rows and classes, and the thresholds are
    linear: unlike `auc`, it rewards calibration. NaN where there is only one class.
    """
    logits, labels = checked(logits, labels)
    steps = KERAS_THRESHOLDS - 1

    def counts_of_class(c: int, p: Tensor) -> Tensor:
        above = ((p * steps).ceil() - 1).clamp(min=0).long()  # the last threshold strictly below
        return torch.stack([torch.bincount(each, minlength=steps) for each in (above[labels == c], above)])

    counts = torch.stack(map_classes(counts_of_class, logits)).sum(0).double()  # of positives, of all
    positive, everything = torch.nn.functional.pad(counts.flip(1).cumsum(1), (1, 0))
    negative = everything - positive
    return float(torch.trapezoid(positive / positive[-1], negative / negative[-1]))


def risks_of_draws(rows: Rows) -> Statistic:
    """As a statistic, [n]: the error rate among the k most confident of them, k = 1 … n.

    Rows of equal confidence share their mean error.
    """
    confidence, order = rows.confidence.sort(descending=True)
    tie = confidence.unique_consecutive(return_inverse=True)[1]
    wrong, k = 1 - rows.correct[order], torch.arange(1, len(rows) + 1)

    def risks(counts: Tensor) -> Tensor:
        drawn = counts[order]
        errors = torch.bincount(tie, drawn * wrong) / torch.bincount(tie, drawn)  # NaN where no row of a tie was drawn
        return errors[tie].repeat_interleave(drawn.long()).cumsum(0) / k

    return risks


def risks_of_rows(rows: Rows) -> Tensor:
    """The error rate among the k most confident rows, k = 1 … n."""
    return risks_of_draws(rows)(torch.ones_like(rows.confidence))


def risk_coverage_of_rows(rows: Rows) -> tuple[tuple[float, float], ...]:
    """(coverage, risk): the error rate among the most confident share of rows, at every hundredth."""
    risks, n = risks_of_rows(rows).tolist(), len(rows)
    kept = sorted({max(1, math.ceil(n * step / COVERAGE_STEPS)) for step in range(1, COVERAGE_STEPS + 1)})
    return tuple((k / n, risks[k - 1]) for k in kept)


def aurc_of_draws(rows: Rows) -> Statistic:
    risks = risks_of_draws(rows)
    return lambda counts: risks(counts).mean()


def aurc(logits: Array, labels: Array) -> float:
    """Area under the risk-coverage curve: the mean over k of the error rate among the k most confident rows.

    Confidence is the largest probability. Rows of equal confidence enter in random order, and the expectation over
    that order is taken: each counts as its tie's mean error, so the order of rows does not matter. 0 is best.
    """
    return on_all_rows(aurc_of_draws, describe_rows(logits, labels))


def coverage_of_rows(rows: Rows, risk: float = 0.05) -> float:
    confidence = rows.confidence.sort(descending=True).values
    allowed = risks_of_rows(rows) <= risk
    allowed[:-1] &= confidence[1:] < confidence[:-1]  # a threshold accepts all rows of equal confidence, or none
    return (int(allowed.nonzero().max()) + 1) / len(rows) if bool(allowed.any()) else 0.0


def coverage_at_risk(logits: Array, labels: Array, risk: float = 0.05) -> float:
    """The largest share of rows, most confident first, whose error rate is at most `risk`; 1 is best.

    The threshold behind it is chosen on these very rows and promises nothing: `lates.selective` finds one that does.
    """
    return coverage_of_rows(describe_rows(logits, labels), risk)
