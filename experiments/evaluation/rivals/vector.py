"""Vector scaling (Guo et al. 2017): softmax(a ⊙ z + b), a and b [classes], to the log-loss, which is convex in both."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from experiments.evaluation.rivals.descent import minimise


@dataclass(frozen=True, eq=False)
class VectorScaling:
    scales: Tensor
    shifts: Tensor

    @property
    def parameters(self) -> int:
        return 2 * len(self.scales)

    def log_probabilities(self, logits: Tensor) -> Tensor:
        return (self.scales * logits.double() + self.shifts).log_softmax(1)


def fit(logits: Tensor, labels: Tensor) -> VectorScaling:
    z, ones = logits.double(), torch.ones(logits.shape[1], dtype=torch.float64, device=logits.device)

    def loss(point: Tensor) -> Tensor:
        scales, shifts = point.chunk(2)
        return cross_entropy(scales * z + shifts, labels)

    return VectorScaling(*minimise(loss, torch.cat([ones, 0 * ones])).chunk(2))
