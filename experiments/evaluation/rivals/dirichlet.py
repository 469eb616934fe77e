"""Dirichlet calibration with an off-diagonal and intercept penalty (Kull et al. 2019): softmax(W log p + b).

    minimise over W, b   log-loss + decay (mean over i != j of W_ij² + mean of b²),

convex. One decay serves both penalties; of a grid from strong to weak, each solution the start of the next, that with the least
log-loss in cross-validation is taken, and the grid is left where the loss rises.
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from experiments.evaluation.rivals import Rival
from experiments.evaluation.rivals.affine import AffineMap, fit_affine

DECAYS = tuple(10.0**power for power in range(6, -3, -1))
FOLDS = 3
LEAST = 1e-12
"""The smallest probability whose logarithm is taken."""


def fit(logits: Tensor, labels: Tensor) -> Rival:
    x = logs_of(logits)
    fold = torch.arange(len(labels), device=x.device) % FOLDS
    maps: list[AffineMap | None] = [None] * FOLDS
    best, least = DECAYS[0], torch.inf
    for decay in DECAYS:
        maps = [_solve(x[fold != k], labels[fold != k], decay, start) for k, start in enumerate(maps)]
        losses = [cross_entropy(affine(x[fold == k]), labels[fold == k]) for k, affine in enumerate(maps) if affine]
        loss = float(torch.stack(losses).mean())
        if loss >= least:
            break
        best, least = decay, loss
    affine = _solve(x, labels, best)
    return Rival(lambda logits: affine(logs_of(logits)).log_softmax(1), affine.parameters)


def logs_of(logits: Tensor) -> Tensor:
    return logits.double().softmax(1).clamp(min=LEAST).log()


def _solve(x: Tensor, labels: Tensor, decay: float, start: AffineMap | None = None) -> AffineMap:
    entries = max(x.shape[1] * (x.shape[1] - 1), 1)

    def penalty(affine: AffineMap) -> Tensor:
        return decay * (affine.off_diagonal().square().sum() / entries + affine.shifts.square().mean())

    return fit_affine(x, labels, penalty, start=start)
