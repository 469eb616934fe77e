"""Structured matrix scaling (SMS) and structured vector scaling (SVS): a full map whose penalty fits the size of the hold-out.

With n rows and k classes, let q = (n softmax(beta z) + 1/k) / (n + 1), beta the best temperature, and x = log q. Then

    log-probabilities  log_softmax(x + D x + b),
    minimise over D, b   log-loss + (k/n) (‖b‖² + ‖diag D‖²) + (k (k - 1)/n) ‖off-diagonal of D‖²,

which is strictly convex. SVS keeps the diagonal of D alone.
"""

from torch import Tensor

from experiments.evaluation.rivals import Rival, temperature
from experiments.evaluation.rivals.affine import AffineMap, fit_affine


def fit(logits: Tensor, labels: Tensor, *, diagonal: bool = False, passes: int = 1) -> Rival:
    """SMS, or with `diagonal` SVS. n counts inputs: `passes` rows of one input say less than as many inputs."""
    start = temperature.fit(logits, labels, passes=passes)
    rows, classes = len(logits) // passes, logits.shape[1]
    weak, strong = classes / rows, classes * (classes - 1) / rows

    def smoothed(logits: Tensor) -> Tensor:
        """x = log q [n, classes]: every probability is at least 1 / (k (n + 1))."""
        return ((rows * start.log_probabilities(logits).exp() + 1 / classes) / (rows + 1)).log()

    def penalty(affine: AffineMap) -> Tensor:
        shifts = weak * affine.shifts.square().sum()
        if diagonal:
            return shifts + weak * affine.change.square().sum()
        return shifts + weak * affine.change.diagonal().square().sum() + strong * affine.off_diagonal().square().sum()

    affine = fit_affine(smoothed(logits), labels, penalty, diagonal=diagonal)
    return Rival(lambda logits: affine(smoothed(logits)).log_softmax(1), 1 + affine.parameters)
