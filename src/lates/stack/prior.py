"""A prior for the weights that vanishes as rows grow: few, or all too easy, hold-out rows leave the network as it is.

With n distinct hold-out inputs, s_k the members' deviations, s_h the head's, and f the log-loss, the objective is

    F(beta) = f(beta) + (c s_h / n) (sqrt(1 + u² + v²) - 1) + (k / n) (f(beta) - m·beta),
    u = beta_h - 1,    v = 3 sum over probes of (s_k / s_h) beta_k.

The second term is 0 at the network as it is, quadratic near it, and linear far out, where it weighs as much as c wrong rows
whose margin is the head's deviation. Like the loss it is of degree 1 in the scale of the logits. v is a sum, so that copies
of a probe are penalised as one.

The third term is there only if the head is right in every row, and then k = 1: as in Laplace's rule of succession one error
is assumed, spread over all rows, with the head's probabilities q of the classes other than the label,

    m_j = mean_i E_{q_i}[ e_ij ]      (e: excess over the label).

F is convex, and grows along every member that is not constant: it always has a minimum.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from lates.stack.holdout import Holdout

PROBES = 3.0
"""How much heavier a probe weighs than a change of the head that moves the logits as much."""


@dataclass(frozen=True)
class Prior:
    """The last two terms of F, but for (k / n) f(beta), as functions of the weights beta [members].

    strength  c s_h / n
    slopes    of v in the weights [members]; 0 for the head
    errors    k / n
    excess    m [members]
    """

    strength: float
    slopes: Tensor
    errors: float
    excess: Tensor

    @classmethod
    def of(cls, holdout: Holdout, deviations: Tensor, c: float) -> "Prior":
        none = torch.zeros_like(deviations)
        if c == 0:
            return cls(0.0, none, 0.0, none)
        inputs = holdout.inputs()
        wrong, excess = holdout.assumed_error()
        reference = float(deviations[-1]) or 1.0  # a constant head has no scale
        slopes = PROBES * deviations / reference
        slopes[-1] = 0.0
        errors = 0.0 if wrong else 1 / inputs
        return cls(c * reference / inputs, slopes, errors, excess)

    def head(self) -> "Prior":
        return replace(self, slopes=self.slopes[-1:], excess=self.excess[-1:])

    @cached_property
    def _map(self) -> Tensor:
        """[2, members]: (u, v) = map beta - (1, 0)"""
        of_head = torch.zeros_like(self.slopes)
        of_head[-1] = 1.0
        return torch.stack([of_head, self.slopes])

    def _moved(self, weights: Tensor) -> tuple[Tensor, float]:
        """(u, v), and sqrt(1 + u² + v²)"""
        moved = self._map @ weights
        moved[0] -= 1
        return moved, float((1 + moved @ moved).sqrt())

    def value(self, weights: Tensor) -> float:
        moved, root = self._moved(weights)
        return self.strength * float(moved @ moved) / (1 + root) - self.errors * float(self.excess @ weights)

    def gradient(self, weights: Tensor) -> Tensor:
        moved, root = self._moved(weights)
        return self.strength * (moved @ self._map) / root - self.errors * self.excess

    def hessian(self, weights: Tensor) -> Tensor:
        moved, root = self._moved(weights)
        curvature = torch.eye(2, dtype=torch.float64) / root - torch.outer(moved, moved) / root**3
        return self.strength * self._map.T @ curvature @ self._map
