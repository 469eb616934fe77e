"""The penalised loss of a hold-out as a function of few weights, and the descents to its minimum.

With z_ic = sum_k e_ick beta_k, where e is the excess over the label, and p_i = softmax(z_i), the log-loss, its gradient and its
Hessian are means over rows,

    f = mean_i logsumexp_c z_ic,    g_k = mean_i E_p[e_k],    H_kl = mean_i Cov_p(e_k, e_l).

Descents scale the weights, b_k = beta_k s_k with s_k the member's deviation: a unit means the same for all members.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lates.settings import Settings
from lates.stack.losses import NLL, Loss, MeanLoss
from lates.stack.members import Chunk, MemberRows
from lates.stack.newton import Expansion, Minimum, descend, minimise_convex
from lates.stack.prior import Prior

CAP = 1000.0  # of scaled weights
NLL_RISE = 0.01  # relative: as much as the soft ECE may raise the log-loss
NOTICEABLE = 1e-3  # a change of the margins; a step that makes none is at rest


@dataclass(frozen=True)
class Objective:
    """The penalised loss of one network's hold-out, all draws pooled, as a function of the weights beta [members]."""

    members: MemberRows
    rows: int  # of all draws
    deviations: Tensor
    prior: Prior

    @classmethod
    def of(cls, members: MemberRows, settings: Settings) -> "Objective":
        deviations = members.deviations()
        return cls(members, members.rows * len(members.draws), deviations, Prior.of(members, deviations, settings))

    def of_head(self) -> "Objective":
        """The same rows with the head as the only member: temperature scaling."""
        return replace(self, members=self.members.heads(), deviations=self.deviations[-1:], prior=self.prior.of_head())

    @property
    def scales(self) -> Tensor:
        """The members' deviations, and 1 for members that have none."""
        return torch.where(self.deviations > 0, self.deviations, 1.0)

    @property
    def cap(self) -> float:
        """The largest scaled weight: unlimited where there is a minimum."""
        return math.inf if self.prior.has_minimum else CAP

    def expand(self, weights: Tensor) -> Expansion:
        """The penalised log-loss with gradient and Hessian."""
        sums = (1 + self.prior.errors) * self.members.sum(lambda chunk: _expand(chunk, weights)) / self.rows
        value, gradient, hessian = sums.tensor_split([1, 1 + len(weights)])
        prior = self.prior.expand(weights)
        hessian = hessian.view_as(prior.hessian) + prior.hessian
        return Expansion(float(value) + prior.value, gradient + prior.gradient, hessian)

    def penalties(self, weights: Tensor) -> tuple[float, Tensor]:
        """Prior and penalty, with their gradient."""
        prior, errors = self.prior.expand(weights), self.prior.errors
        if not errors:
            return prior.value, prior.gradient
        nll, slope = self._loss_and_gradient(NLL, weights)
        return prior.value + errors * nll, prior.gradient + errors * slope

    def loss_and_gradient(self, loss: Loss, weights: Tensor) -> tuple[float, Tensor]:
        """Any loss, penalised, with its gradient, in two passes over the rows, or one if it is a mean over them."""
        value, gradient = self._loss_and_gradient(loss, weights)
        penalties, slope = self.penalties(weights)
        return value + penalties, gradient + slope

    @torch.inference_mode(False)
    @torch.enable_grad()
    def _loss_and_gradient(self, loss: Loss, weights: Tensor) -> tuple[float, Tensor]:
        sums = torch.zeros(1, dtype=torch.float64)  # the derivative of a mean is the same everywhere
        if not isinstance(loss, MeanLoss):
            sums = self.members.sum(lambda chunk: chunk.sum(loss.statistics(chunk.logits(weights), chunk.labels)))
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

    def moves(self, step: Tensor) -> bool:
        """Whether a step moves a margin noticeably: not at a minimum, but along a ray on which the loss falls forever."""
        return float(self.members.sum(lambda chunk: chunk.logits(step).square_().sum()[None]).sqrt()) > NOTICEABLE

    def minimise(self, start: Tensor) -> Minimum:
        """The optimum of the log-loss, by Newton's method from these weights."""
        scales = self.scales

        def expand(scaled: Tensor) -> Expansion:
            here = self.expand(scaled / scales)
            return Expansion(here.value, here.gradient / scales, here.hessian / scales / scales[:, None])

        def moves(step: Tensor) -> bool:
            return not self.prior.has_minimum and self.moves(step / scales)

        scaled = start * scales
        end = minimise_convex(expand, scaled, scaled.clamp(min=self.cap), moves)
        return replace(end, point=end.point / scales)


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
    return objective.of_head().minimise(torch.ones(1, dtype=torch.float64))


def best_stack(objective: Objective, temperature: Minimum) -> Minimum:
    """The optimum of the log-loss for all members of one network, from the best temperature.

    Where no minimum exists, this is still an orderly descent: the stack never ends above the temperature.
    """
    if len(objective.deviations) == 1:
        return temperature
    return objective.minimise(objective.members.heads_alone(temperature.point))


def local_optimum(objective: Objective, loss: Loss, start: Minimum) -> Minimum:
    """Descend to a local minimum of a loss that is not convex, from the optimum of the log-loss."""
    members, highest = objective.members, math.inf
    if loss.name == "soft_ece":
        highest = (1 + NLL_RISE) * log_losses(members, start.point)[0]

    def value_and_gradient(weights: Tensor) -> tuple[float, Tensor]:
        if highest < math.inf and log_losses(members, weights)[0] > highest:
            return math.inf, torch.zeros_like(weights)
        return objective.loss_and_gradient(loss, weights)

    end = descend_scaled(value_and_gradient, start.point, objective.scales, objective.cap)
    return replace(end, unbounded=end.unbounded or start.unbounded, steps=start.steps + end.steps)


def descend_scaled(
    value_and_gradient: Callable[[Tensor], tuple[float, Tensor]], start: Tensor, scales: Tensor, cap: float
) -> Minimum:
    """Descend from these weights, by steps in the scaled ones, none of which rises above `cap`, or above where it started."""

    def function(scaled: Tensor) -> tuple[float, Tensor]:
        value, gradient = value_and_gradient(scaled / scales)
        return value, gradient / scales

    end = descend(function, start * scales, (start * scales).clamp(min=cap))
    return replace(end, point=end.point / scales)


def log_losses(members: MemberRows, *points: Tensor) -> list[float]:
    """The log-loss of the mean prediction of all draws, with each of these weights, in one pass over the rows."""
    of_points = [members.split(weights) for weights in points]

    def sums(chunks: list[Chunk]) -> Tensor:
        losses = []
        for vectors in of_points:
            of_draws = [chunk.logits(vector).logsumexp(dim=1) for chunk, vector in zip(chunks, vectors, strict=True)]
            losses.append(math.log(len(chunks)) - torch.stack(of_draws).neg_().logsumexp(dim=0))
        return chunks[0].sum(torch.stack(losses, dim=1))

    return (members.sum_jointly(sums) / members.rows).tolist()


def mean_log_loss(members: MemberRows, weights: Tensor) -> tuple[float, Tensor]:
    """The log-loss of the mean prediction of all draws, and its gradient in the weights, in one pass over the rows."""
    vectors = members.split(weights)

    def value_and_gradient(chunks: list[Chunk]) -> Tensor:
        log_label, means = [], []
        for chunk, vector in zip(chunks, vectors, strict=True):
            logits = chunk.logits(vector)
            log_normaliser = logits.logsumexp(dim=1, keepdim=True)
            log_label.append(-log_normaliser[:, 0])
            means.append((chunk.excess * (logits - log_normaliser).exp_()).sum(dim=2))
        scores = torch.stack(log_label)
        losses, responsibilities = math.log(len(chunks)) - scores.logsumexp(dim=0), scores.softmax(dim=0)
        of_draws = [chunks[0].sum((mean * share).T) for mean, share in zip(means, responsibilities, strict=True)]
        return torch.cat([chunks[0].sum(losses[:, None]), members.pool(of_draws)])

    sums = members.sum_jointly(value_and_gradient) / members.rows
    return float(sums[0]), sums[1:]
