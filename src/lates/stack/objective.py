"""The penalised loss of a hold-out as a function of few weights, and the descents to its minimum.

Weights are scaled here, b_k = beta_k s_k with s_k the member's deviation: a unit means the same for all members.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lates.stack.holdout import Holdout
from lates.stack.losses import NLL, Loss, MeanLoss
from lates.stack.newton import Expansion, Minimum, descend, minimise_convex
from lates.stack.prior import Prior

CAP = 1000.0  # of scaled weights
NLL_RISE = 0.01  # relative: as much as the soft ECE may raise the log-loss
NOTICEABLE = 1e-3  # a change of the margins; a step that makes none has settled


@dataclass(frozen=True)
class Objective:
    """The penalised loss of a hold-out as a function of the scaled weights b_k = beta_k s_k.

    penalty  lambda of Proposition 1's (lambda / 2) ||beta||²
    """

    holdout: Holdout
    rows: int
    deviations: Tensor
    penalty: float
    prior: Prior

    @classmethod
    def of(cls, holdout: Holdout, regularise: float, prior: float) -> "Objective":
        """With c of the penalty and c of the prior."""
        rows, deviations = holdout.rows(), holdout.deviations()
        penalty = regularise / math.sqrt(rows / len(holdout.parts))
        return cls(holdout, rows, deviations, penalty, Prior.of(holdout, deviations, prior))

    @property
    def scales(self) -> Tensor:
        """The deviations, and 1 for members that have none."""
        return torch.where(self.deviations > 0, self.deviations, 1.0)

    @property
    def coercive(self) -> bool:
        """Whether there is a minimum, whatever the rows."""
        return self.penalty > 0 or self.prior.strength > 0

    def head(self) -> "Objective":
        """The same objective with the head as its only member: temperature scaling."""
        parts = tuple((members[-1:], labels) for members, labels in self.holdout.parts)
        holdout = replace(self.holdout, parts=parts)
        return replace(self, holdout=holdout, deviations=self.deviations[-1:], prior=self.prior.head())

    def cap(self, start: Tensor) -> Tensor:
        """The largest scaled weights: unlimited where there is a minimum, otherwise 1000, or `start` where that is more."""
        return torch.full_like(start, math.inf) if self.coercive else start.clamp(min=CAP)

    def expand(self, point: Tensor) -> Expansion:
        """The penalised log-loss with gradient and Hessian."""
        members, scales, weights = len(point), self.scales, point / self.scales
        sums = (1 + self.prior.errors) * self.holdout.log_loss(weights) / self.rows
        value, gradient, hessian = sums.tensor_split([1, 1 + members])
        hessian = hessian.view(members, members) + self.prior.hessian(weights)
        hessian.diagonal().add_(self.penalty)
        return Expansion(
            float(value) + self.penalty_at(point),
            (gradient + self.penalty * weights + self.prior.gradient(weights)) / scales,
            hessian / scales / scales[:, None],
        )

    def nll(self, point: Tensor) -> float:
        return float(self.holdout.statistics(NLL, point / self.scales)) / self.rows

    def nll_of(self, value: float, point: Tensor) -> float:
        """The log-loss where the penalised one has this value."""
        return (value - self.penalty_at(point)) / (1 + self.prior.errors)

    def penalty_at(self, point: Tensor) -> float:
        """Penalty and prior, but for the prior's multiple of the log-loss."""
        weights = point / self.scales
        return self.penalty / 2 * float(weights @ weights) + self.prior.value(weights)

    def loss_and_gradient(self, loss: Loss, point: Tensor) -> tuple[float, Tensor]:
        """Any loss, penalised, with its gradient, in two passes over the rows, or one if it is a mean over them."""
        value, gradient = self._loss_and_gradient(loss, point / self.scales)
        penalties, slope = self.penalties(point)
        return value + penalties, gradient / self.scales + slope

    def penalties(self, point: Tensor) -> tuple[float, Tensor]:
        """Penalty and prior, with their gradient."""
        weights, prior = point / self.scales, self.prior
        value, gradient = self.penalty_at(point), self.penalty * weights + prior.gradient(weights)
        if prior.errors:
            nll, slope = self._loss_and_gradient(NLL, weights)
            value, gradient = value + prior.errors * nll, gradient + prior.errors * slope
        return value, gradient / self.scales

    @torch.inference_mode(False)
    @torch.enable_grad()
    def _loss_and_gradient(self, loss: Loss, weights: Tensor) -> tuple[float, Tensor]:
        sums = torch.zeros(1, dtype=torch.float64)  # the derivative of a mean is the same everywhere
        if not isinstance(loss, MeanLoss):
            sums = self.holdout.statistics(loss, weights)
        (derivative,) = torch.autograd.grad(loss.outer(sums.requires_grad_(), self.rows), sums)
        sums, gradient = self.holdout.pull_back(loss, weights, derivative)
        return float(loss.outer(sums, self.rows)), gradient

    def moves(self, step: Tensor) -> bool:
        """Whether a step moves a margin noticeably: not at a minimum, but along a ray on which the loss falls forever."""
        return self.holdout.margins_moved(step / self.scales) > NOTICEABLE


def best_temperature(objective: Objective) -> Minimum:
    """The optimum of the log-loss for the head alone, from the network as it is."""
    head = objective.head()
    return _newton(head, head.scales)


def best_stack(objective: Objective, temperature: Minimum) -> Minimum:
    """The optimum of the log-loss for all members, from the best temperature.

    Where no minimum exists, this is still an orderly descent: the stack never ends above the temperature.
    """
    scales = objective.scales
    if len(scales) == 1:
        return temperature
    first = torch.zeros_like(scales)
    first[-1] = temperature.point[0]
    return _newton(objective, first)


def local_optimum(objective: Objective, loss: Loss, start: Minimum) -> Minimum:
    """Descend to a local minimum of a loss that is not convex, from the optimum of the log-loss."""
    highest = (1 + NLL_RISE) * objective.nll(start.point) if loss.name == "soft_ece" else math.inf

    def value_and_gradient(point: Tensor) -> tuple[float, Tensor]:
        if highest < math.inf and objective.nll(point) > highest:
            return math.inf, torch.zeros_like(point)
        return objective.loss_and_gradient(loss, point)

    end = descend(value_and_gradient, start.point, objective.cap(start.point))
    return replace(end, unbounded=end.unbounded or start.unbounded, steps=start.steps + end.steps)


def _newton(objective: Objective, start: Tensor) -> Minimum:
    moves = None if objective.coercive else objective.moves
    return minimise_convex(objective.expand, start, objective.cap(start), moves)
