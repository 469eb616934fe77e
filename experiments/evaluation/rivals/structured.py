"""Structured matrix scaling (SMS) and structured vector scaling (SVS): a full map whose penalty fits the size of the hold-out.

With n rows and k classes, let q = (n softmax(beta z) + 1/k) / (n + 1), beta the best temperature, and x = log q. Then

    log-probabilities  log_softmax(x + D x + b),
    minimise over D, b   log-loss + (k/n) (‖b‖² + ‖diag D‖²) + (k (k - 1)/n) ‖off-diagonal of D‖²,

which is strictly convex. SVS keeps the diagonal of D alone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from experiments.evaluation.rivals import temperature
from experiments.evaluation.rivals.descent import minimise
from experiments.evaluation.rivals.temperature import Temperature


@dataclass(frozen=True, eq=False)
class StructuredScaling:
    """`matrix` [classes, classes] is I + D; `rows` are those of the hold-out, which set the smoothing."""

    start: Temperature
    matrix: Tensor
    shifts: Tensor
    rows: int
    parameters: int

    def log_probabilities(self, logits: Tensor) -> Tensor:
        x = smoothed(self.start, logits, self.rows)
        return (x @ self.matrix.T + self.shifts).log_softmax(1)


def fit(logits: Tensor, labels: Tensor, *, diagonal: bool = False, passes: int = 1) -> StructuredScaling:
    """SMS, or with `diagonal` SVS. n counts inputs: `passes` rows of one input say less than as many inputs."""
    start = temperature.fit(logits, labels, passes=passes)
    (rows, classes), device = logits.shape, logits.device
    rows //= passes
    x = smoothed(start, logits, rows)
    off = 1 - torch.eye(classes, dtype=torch.float64, device=device)
    weak, strong = classes / rows, classes * (classes - 1) / rows

    def loss(point: Tensor) -> Tensor:
        shifts, change = point[:classes], point[classes:]
        if diagonal:
            return cross_entropy(x + change * x + shifts, labels) + weak * point.square().sum()
        change = change.view(classes, classes)
        penalty = weak * (shifts.square().sum() + change.diagonal().square().sum())
        return cross_entropy(x + x @ change.T + shifts, labels) + penalty + strong * (off * change).square().sum()

    numbers = classes if diagonal else classes**2
    best = minimise(loss, torch.zeros(classes + numbers, dtype=torch.float64, device=device))
    change = best[classes:].diag() if diagonal else best[classes:].view(classes, classes)
    return StructuredScaling(start, 1 - off + change, best[:classes], rows, 1 + len(best))


def smoothed(start: Temperature, logits: Tensor, rows: int) -> Tensor:
    """x = log q [n, classes]: every probability is at least 1 / (k (n + 1))."""
    probabilities = start.log_probabilities(logits).exp()
    return ((rows * probabilities + 1 / logits.shape[1]) / (rows + 1)).log()
