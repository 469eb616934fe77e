"""Losses of a classifier: (logits [n, classes], labels [n]) -> scalar tensor, smooth enough to be minimised.

Every loss here has the form

    loss = outer( sum over rows of statistics(row), number of rows ),

with few statistics: one for the log-loss and for Brier, two per bin for the soft ECE. So the gradient over rows that do not
fit in memory, or are sharded over processes, takes two passes: sum the statistics; then send the derivative of `outer`,
which those sums determine, back through the statistics of one chunk of rows at a time. Where `outer` is the mean of one
statistic, its derivative is known beforehand and one pass does both; such a loss also has a closed form for the derivative
in the logits.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

BINS, SOFTNESS = 15, 0.001


@dataclass(frozen=True)
class Loss:
    """A loss as `outer(sums, rows)`, where the sums [statistics] are those of `statistics(logits, labels)` [n, statistics]."""

    name: str
    statistics: Callable[[Tensor, Tensor], Tensor]
    outer: Callable[[Tensor, int], Tensor]

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.outer(self.statistics(logits, labels).sum(0), len(labels))


@dataclass(frozen=True)
class MeanLoss(Loss):
    """A mean over rows; `value_and_gradient`: the sum of the rows' losses [] and its gradient in the logits [n, classes]."""

    value_and_gradient: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def find_loss(name: str) -> Loss:
    """The loss of that name; an unknown one is refused with those there are."""
    if name not in LOSSES:
        raise ValueError(f'Unknown loss "{name}". Losses: {", ".join(LOSSES)}.')
    return LOSSES[name]


def find_probe_loss(name: str) -> MeanLoss:
    """The loss that probes are trained to where the weights are fitted to the one of that name."""
    loss = find_loss(name)
    return loss if isinstance(loss, MeanLoss) else NLL


def soft_ece_loss(bins: int = BINS, softness: float = SOFTNESS) -> Loss:
    """Calibration error over soft bins (Karandikar et al., 2021), in its differentiable quadratic form.

    A row with confidence q = max_c p_c belongs to bin j, whose centre is t_j = (j - 1/2) / bins, to the degree

        u_j = exp(-(q - t_j)^2 / softness) / sum_k exp(-(q - t_k)^2 / softness).

    With size S_j = sum_i u_ij and gap G_j = sum_i u_ij ([row i is right] - q_i), bin j errs by G_j / S_j, and

        soft_ece = sqrt( sum_j (S_j / n) (G_j / S_j)^2 ) = || G_j / sqrt(n S_j) ||.

    As softness -> 0 this becomes the root mean square calibration error over ordinary bins, which is at least the ECE. A row
    is right if its first largest logit is the label's; where that changes the loss jumps, elsewhere it is smooth. The
    statistics are S_1, …, S_bins, G_1, …, G_bins.
    """

    def statistics(logits: Tensor, labels: Tensor) -> Tensor:
        confidence, predicted = _probabilities(logits).max(dim=1)
        centres = (torch.arange(bins, device=confidence.device, dtype=confidence.dtype) + 0.5) / bins
        membership = torch.softmax(-((confidence[:, None] - centres) ** 2) / softness, dim=1)
        gap = (predicted == labels).to(confidence.dtype) - confidence
        return torch.cat([membership, gap[:, None] * membership], dim=1)

    def outer(sums: Tensor, rows: int) -> Tensor:
        size, gap = sums.chunk(2)
        smallest = torch.finfo(sums.dtype).tiny
        return torch.linalg.vector_norm(gap / (rows * size.clamp(min=smallest)).sqrt())

    return Loss("soft_ece", statistics, outer)


def _nll(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(_at_least_float32(logits), labels, reduction="none")[:, None]


def _nll_gradient(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The derivative is p - [c = y]; the softmax is taken step by step, four times as fast for few classes on a CPU."""
    label = labels[:, None]
    logits = _at_least_float32(logits)
    shifted = logits - logits.amax(1, keepdim=True)
    log_label = shifted.gather(1, label)
    probabilities = shifted.exp_()
    totals = probabilities.sum(1, keepdim=True)
    log_label = log_label - totals.log()
    return -log_label.sum(), probabilities.div_(totals).scatter_(1, label, log_label.expm1())


def _brier(logits: Tensor, labels: Tensor) -> Tensor:
    """sum_c (p_c - [c = y])^2 = sum_c p_c^2 - 2 p_y + 1"""
    probabilities = _probabilities(logits)
    return probabilities.square().sum(dim=1, keepdim=True) - 2 * probabilities.gather(1, labels[:, None]) + 1


def _brier_gradient(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """With r = p - [c = y] the sum is of r², and the derivative 2 p (r - p·r)."""
    label = labels[:, None]
    probabilities = _probabilities(logits)
    residuals = probabilities.scatter(1, label, probabilities.gather(1, label) - 1)
    along = torch.linalg.vecdot(probabilities, residuals)[:, None]
    return residuals.square().sum(), residuals.sub_(along).mul_(probabilities).mul_(2)


def _probabilities(logits: Tensor) -> Tensor:
    return torch.softmax(_at_least_float32(logits), dim=1)


def _at_least_float32(logits: Tensor) -> Tensor:
    """Sums over many rows are not for half precision."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _mean(sums: Tensor, rows: int) -> Tensor:
    return sums[0] / rows


NLL = MeanLoss("nll", _nll, _mean, _nll_gradient)
BRIER = MeanLoss("brier", _brier, _mean, _brier_gradient)
LOSSES: dict[str, Loss] = {"nll": NLL, "brier": BRIER, "soft_ece": soft_ece_loss()}
