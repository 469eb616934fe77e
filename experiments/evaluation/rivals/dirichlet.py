"""Dirichlet calibration with an off-diagonal and intercept penalty (Kull et al. 2019): softmax(W log p + b).

    minimise over W, b   log-loss + decay (mean over i != j of W_ij² + mean of b²),

convex. One decay serves both penalties; of a grid from strong to weak, each solution the start of the next, that with the least
log-loss in cross-validation is taken, and the grid is left where the loss rises.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from experiments.evaluation.rivals.descent import minimise

DECAYS = tuple(10.0**power for power in range(6, -3, -1))
FOLDS = 3
LEAST = 1e-12
"""The smallest probability whose logarithm is taken."""


@dataclass(frozen=True, eq=False)
class Dirichlet:
    matrix: Tensor
    shifts: Tensor
    decay: float

    @property
    def parameters(self) -> int:
        return self.matrix.numel() + len(self.shifts)

    def log_probabilities(self, logits: Tensor) -> Tensor:
        return (logs_of(logits) @ self.matrix.T + self.shifts).log_softmax(1)


def fit(logits: Tensor, labels: Tensor) -> Dirichlet:
    x, classes = logs_of(logits), logits.shape[1]
    identity = torch.cat([torch.zeros(classes), torch.eye(classes).flatten()]).to(x)
    fold = torch.arange(len(labels), device=x.device) % FOLDS
    starts = [identity] * FOLDS
    best, least = DECAYS[0], torch.inf
    for decay in DECAYS:
        starts = [_solve(x[fold != k], labels[fold != k], decay, start) for k, start in enumerate(starts)]
        losses = [cross_entropy(_map(x[fold == k], point), labels[fold == k]) for k, point in enumerate(starts)]
        loss = float(torch.stack(losses).mean())
        if loss >= least:
            break
        best, least = decay, loss
    point = _solve(x, labels, best, identity)
    return Dirichlet(point[classes:].view(classes, classes), point[:classes], best)


def logs_of(logits: Tensor) -> Tensor:
    return logits.double().softmax(1).clamp(min=LEAST).log()


def _map(x: Tensor, point: Tensor) -> Tensor:
    classes = x.shape[1]
    return x @ point[classes:].view(classes, classes).T + point[:classes]


def _solve(x: Tensor, labels: Tensor, decay: float, start: Tensor) -> Tensor:
    classes = x.shape[1]
    off = 1 - torch.eye(classes, dtype=x.dtype, device=x.device)

    def loss(point: Tensor) -> Tensor:
        matrix = point[classes:].view(classes, classes)
        outside = (off * matrix).square().sum() / max(classes * (classes - 1), 1)
        return cross_entropy(_map(x, point), labels) + decay * (outside + point[:classes].square().mean())

    return minimise(loss, start)
