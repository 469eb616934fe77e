"""An affine map before the softmax, softmax(x + D x + b): D and b minimise the log-loss and a penalty, a convex problem."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from experiments.evaluation.rivals.descent import minimise


@dataclass(frozen=True, eq=False)
class AffineMap:
    """`change` is D [classes, classes], or its diagonal [classes]; `shifts` is b [classes]."""

    change: Tensor
    shifts: Tensor

    @property
    def parameters(self) -> int:
        return self.change.numel() + len(self.shifts)

    def __call__(self, x: Tensor) -> Tensor:
        return x + (self.change * x if self.change.ndim == 1 else x @ self.change.T) + self.shifts

    def off_diagonal(self) -> Tensor:
        return self.change - self.change.diagonal().diag()


def fit_affine(
    x: Tensor,
    labels: Tensor,
    penalty: Callable[[AffineMap], Tensor | float] = lambda affine: 0.0,
    *,
    diagonal: bool = False,
    start: AffineMap | None = None,
) -> AffineMap:
    """From `start`, or from the identity."""
    classes = x.shape[1]
    shape = (classes,) if diagonal else (classes, classes)

    def as_map(point: Tensor) -> AffineMap:
        return AffineMap(point[classes:].view(shape), point[:classes])

    def loss(point: Tensor) -> Tensor:
        affine = as_map(point)
        return cross_entropy(affine(x), labels) + penalty(affine)

    first = torch.zeros(classes + math.prod(shape), dtype=torch.float64, device=x.device)
    return as_map(minimise(loss, first if start is None else torch.cat([start.shifts, start.change.flatten()])))
