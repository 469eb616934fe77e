"""A prior for the weights that vanishes as rows grow: few, or all too easy, hold-out rows leave the network as it is.

With n distinct hold-out inputs, s_k the members' deviations, s_h the head's, and f the log-loss, the objective is

    F(beta) = f(beta) + (c s_h / n) (sqrt(1 + u² + v²) - 1) + (k / n) (f(beta) - m·beta),
    u = beta_h - 1,    v = 3 sum over probes of (s_k / s_h) beta_k.

The second term is 0 at the network as it is, quadratic near it, and linear far out, where it weighs as much as c wrong rows
whose margin is the head's deviation. Like the loss it is of degree 1 in the scale of the logits. v is a sum, so that copies
of a probe are penalised as one.

The third term is there only if the network (of several: their mean prediction) is right in every row, and then k = 1: as in
Laplace's rule of succession one error is assumed, spread over all rows, with the head's probabilities q of the classes other
than the label,

    m_j = mean_i E_{q_i}[ e_ij ]      (e: difference to the label's logit).

F is convex, and grows along every member that is not constant: it always has a minimum. Proposition 1's penalty
(lambda / 2) ||beta||² may come on top.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lates.settings import Settings
from lates.stack.members import Chunk, MemberRows
from lates.stack.newton import Expansion

PROBE_PENALTY = 3.0
"""How much heavier a probe weighs than a change of the head that moves the logits as much."""


@dataclass(frozen=True)
class Prior:
    """All that is added to the log-loss but for (k / n) f(beta), as a function of the weights beta [members].

    strength  c s_h / n
    jacobian  of (u, v) in the weights [2, members]
    errors    k / n
    error_differences  m [members]
    penalty   lambda
    """

    strength: float
    jacobian: Tensor
    errors: float
    error_differences: Tensor
    penalty: float

    @classmethod
    def of(cls, members: MemberRows, deviations: Tensor, settings: Settings, all_right: bool) -> "Prior":
        """Of one network; `all_right`: the prediction is, without any fit, in every row."""
        rows, inputs = members.rows, members.rows / members.passes  # the views of an input are not independent
        jacobian, error_differences = torch.zeros(2, len(deviations), dtype=torch.float64), torch.zeros_like(deviations)
        strength = errors = 0.0
        if settings.prior > 0:
            reference = float(deviations[-1]) or 1.0  # a constant head has no scale
            jacobian[0, -1], jacobian[1, :-1] = 1.0, PROBE_PENALTY * deviations[:-1] / reference
            strength = settings.prior * reference / inputs
            if all_right:
                errors = 1 / inputs
                error_differences = members.sum(_differences_of_errors) / (len(members.samples) * rows)
        return cls(strength, jacobian, errors, error_differences, settings.regularise / math.sqrt(inputs))

    def of_head(self) -> "Prior":
        """With the head as the only member."""
        return replace(self, jacobian=self.jacobian[:, -1:], error_differences=self.error_differences[-1:])

    @property
    def has_minimum(self) -> bool:
        """Whether there is a minimum, whatever the rows."""
        return self.penalty > 0 or self.strength > 0

    def expand(self, weights: Tensor) -> Expansion:
        moved = self.jacobian @ weights
        moved[0] -= 1
        root = float((1 + moved @ moved).sqrt())
        curvature = torch.eye(2, dtype=torch.float64) / root - torch.outer(moved, moved) / root**3
        hessian = self.strength * self.jacobian.T @ curvature @ self.jacobian
        hessian.diagonal().add_(self.penalty)
        value = self.strength * float(moved @ moved) / (1 + root) + self.penalty / 2 * float(weights @ weights)
        gradient = self.strength * (moved @ self.jacobian) / root + self.penalty * weights
        slopes = self.errors * self.error_differences
        return Expansion(value - float(slopes @ weights), gradient - slopes, hessian)


def _differences_of_errors(chunk: Chunk) -> Tensor:
    """sum_i E_{q_i}[ e_ik ] for each member k."""
    others = chunk.differences[-1].scatter(1, chunk.labels[:, None], -torch.inf)
    return chunk.sum(torch.einsum("krc,rc->rk", chunk.differences, others.softmax(dim=1)))
