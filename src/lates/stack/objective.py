"""The penalised loss of a hold-out as a function of few weights, and the descents to its minimum.

Weights are scaled here, b_k = beta_k s_k with s_k the member's deviation: a unit means the same for all members. With
z_ic = sum_k e_ick beta_k, where e is the excess over the label, and p_i = softmax(z_i), the log-loss, its gradient and its
Hessian are means over rows,

    f = mean_i logsumexp_c z_ic,    g_k = mean_i E_p[e_k],    H_kl = mean_i Cov_p(e_k, e_l).
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lates.settings import Settings
from lates.stack.losses import NLL, Loss, MeanLoss
from lates.stack.members import Chunk, MemberRows, scales_of
from lates.stack.newton import Expansion, Minimum, descend, minimise_convex
from lates.stack.prior import Prior

CAP = 1000.0  # of scaled weights
NLL_RISE = 0.01  # relative: as much as the soft ECE may raise the log-loss
NOTICEABLE = 1e-3  # a change of the margins; a step that makes none is at rest


@dataclass(frozen=True)
class Objective:
    """The penalised loss of a hold-out as a function of the scaled weights; `rows` are those of all draws and processes."""

    members: MemberRows
    rows: int
    deviations: Tensor
    prior: Prior

    @classmethod
    def of(cls, members: MemberRows, settings: Settings) -> "Objective":
        deviations = members.deviations()
        return cls(members, members.rows() * len(members.draws), deviations, Prior.of(members, deviations, settings))

    @property
    def scales(self) -> Tensor:
        return scales_of(self.deviations)

    def head(self) -> "Objective":
        """The same objective with the head as its only member: temperature scaling."""
        prior = self.prior.head()
        return replace(self, members=self.members.heads(), deviations=self.deviations[-1:], prior=prior)

    def cap(self, start: Tensor) -> Tensor:
        """The largest scaled weights: unlimited where there is a minimum, otherwise 1000, or `start` where that is more."""
        return torch.full_like(start, math.inf) if self.prior.has_minimum else start.clamp(min=CAP)

    def expand(self, point: Tensor) -> Expansion:
        """The penalised log-loss with gradient and Hessian."""
        scales, weights = self.scales, point / self.scales
        sums = (1 + self.prior.errors) * self.members.sum(lambda chunk: _expand(chunk, weights)) / self.rows
        value, gradient, hessian = sums.tensor_split([1, 1 + len(point)])
        prior = self.prior.expand(weights)
        return Expansion(
            float(value) + prior.value,
            (gradient + prior.gradient) / scales,
            (hessian.view_as(prior.hessian) + prior.hessian) / scales / scales[:, None],
        )

    def nll(self, point: Tensor) -> float:
        return float(self._statistics(NLL, point / self.scales)) / self.rows

    def nll_of(self, value: float, point: Tensor) -> float:
        """The log-loss where the penalised one has this value."""
        return (value - self.prior.expand(point / self.scales).value) / (1 + self.prior.errors)

    def penalties(self, point: Tensor) -> tuple[float, Tensor]:
        """Prior and penalty, with their gradient."""
        weights, prior = point / self.scales, self.prior.expand(point / self.scales)
        value, gradient = prior.value, prior.gradient
        if self.prior.errors:
            nll, slope = self._loss_and_gradient(NLL, weights)
            value, gradient = value + self.prior.errors * nll, gradient + self.prior.errors * slope
        return value, gradient / self.scales

    def loss_and_gradient(self, loss: Loss, point: Tensor) -> tuple[float, Tensor]:
        """Any loss, penalised, with its gradient, in two passes over the rows, or one if it is a mean over them."""
        value, gradient = self._loss_and_gradient(loss, point / self.scales)
        penalties, slope = self.penalties(point)
        return value + penalties, gradient / self.scales + slope

    @torch.inference_mode(False)
    @torch.enable_grad()
    def _loss_and_gradient(self, loss: Loss, weights: Tensor) -> tuple[float, Tensor]:
        sums = torch.zeros(1, dtype=torch.float64)  # the derivative of a mean is the same everywhere
        if not isinstance(loss, MeanLoss):
            sums = self._statistics(loss, weights)
        (derivative,) = torch.autograd.grad(loss.outer(sums.requires_grad_(), self.rows), sums)

        def sums_and_gradient(chunk: Chunk) -> Tensor:
            of_rows = None if chunk.row_weights is None else chunk.row_weights.clone()
            chunk = Chunk(chunk.excess, chunk.labels.clone(), of_rows)  # autograd refuses tensors of inference mode
            logits = chunk.logits(weights).requires_grad_()
            sums = chunk.sum(loss.statistics(logits, chunk.labels))
            (slope,) = torch.autograd.grad(sums, logits, derivative.to(sums.device))
            return torch.cat([sums.detach(), chunk.excess.flatten(1) @ slope.flatten()])

        sums, gradient = self.members.sum(sums_and_gradient).tensor_split([len(derivative)])
        return float(loss.outer(sums, self.rows)), gradient

    def _statistics(self, loss: Loss, weights: Tensor) -> Tensor:
        """The sums over rows that the loss is a function of."""
        return self.members.sum(lambda chunk: chunk.sum(loss.statistics(chunk.logits(weights), chunk.labels)))

    def moves(self, step: Tensor) -> bool:
        """Whether a step moves a margin noticeably: not at a minimum, but along a ray on which the loss falls forever."""
        step = step / self.scales
        return float(self.members.sum(lambda chunk: chunk.logits(step).square_().sum()[None]).sqrt()) > NOTICEABLE


def _expand(chunk: Chunk, weights: Tensor) -> Tensor:
    """What the chunk adds to the log-loss, its gradient and its Hessian: [1 + members + members²].

    Covariances are centred: where a row is sure of a class, uncentred moments cancel. Powers of 2 take half as long as those
    of e, and torch's softmax several times as long for few classes.
    """
    exponents = chunk.logits(weights / math.log(2))
    peaks = exponents.amax(dim=1, keepdim=True)
    probabilities = exponents.sub_(peaks).exp2_()
    totals = probabilities.sum(dim=1, keepdim=True)
    probabilities.mul_(totals.reciprocal())
    means = (chunk.excess * probabilities).sum(dim=2)
    centred = chunk.excess.sub_(means[:, :, None])
    of_rows = torch.cat([peaks * math.log(2) + totals.log(), means.T], dim=1)
    if chunk.row_weights is not None:
        probabilities.mul_(chunk.row_weights[:, None])
    hessian = (centred * probabilities).flatten(1) @ centred.flatten(1).T
    return torch.cat([chunk.sum(of_rows), hessian.flatten()])


def best_temperature(objective: Objective) -> Minimum:
    """The optimum of the log-loss for the head alone, from the network as it is."""
    head = objective.head()
    network_as_it_is = head.scales  # beta = 1
    return _newton(head, network_as_it_is)


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
    moves = None if objective.prior.has_minimum else objective.moves
    return minimise_convex(objective.expand, start, objective.cap(start), moves)
