"""The loss of a hold-out as a function of few weights, and what is added to it.

With z_ic = sum_k e_ick beta_k, where e is the difference to the label's logit, and p_i = softmax(z_i), one network's
log-loss, its gradient and its Hessian are means over rows,

    f = mean_i logsumexp_c z_ic,    g_k = mean_i E_p[e_k],    H_kl = mean_i Cov_p(e_k, e_l).

It is convex. Other losses are not, nor is the log-loss of the mean prediction of several samples, mean_i -log mean_s p_s,i,y_i:
of them autograd gives the gradient.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lates.runtime import on_one_core
from lates.settings import Settings
from lates.stack.losses import NLL, Loss, MeanLoss
from lates.stack.members import Chunk, MemberRows
from lates.stack.newton import Expansion, Minimum, minimise_convex
from lates.stack.prior import Prior

LARGEST_WEIGHT = 1000.0  # scaled
NOTICEABLE = 1e-3  # a change of the margins; a step that makes none is at rest


@dataclass(frozen=True)
class Objective:
    """The penalised log-loss of one network's hold-out, all samples pooled, as a function of the weights beta [members].

    `deviations` are the root mean squares over rows, as they count, and classes of each member's logits, centred by their mean
    over classes.
    Descents scale the weights by them, b_k = beta_k s_k: a unit means the same for all members.
    """

    members: MemberRows
    pooled_rows: int  # of all samples, in all processes
    deviations: Tensor
    prior: Prior

    @classmethod
    def of_networks(cls, members: MemberRows, settings: Settings) -> "list[Objective]":
        """Of each network by itself; only whether an error is assumed depends on the prediction of all of them."""
        heads, rows, samples = members.heads(), members.rows, members.samples_per_network

        def wrong(chunks: list[Chunk]) -> Tensor:
            return heads.mean_logits(chunks, heads.initial_weights).argmax(dim=1) != chunks[0].labels

        all_right = settings.prior > 0 and members.classes > 1 and not heads.any(wrong)
        counts = members.row_weights

        def sum_of_squares(sizes: Tensor) -> Tensor:
            return sizes.square().sum(dim=1) if counts is None else sizes.square() @ counts

        squares = members.reduce(on_one_core(sum_of_squares, members.sizes))
        objectives, pooled_rows = [], samples * rows
        of_networks = squares.split([samples * len(names) for names in members.names])
        for network, per_sample in zip(members.networks(), of_networks, strict=True):
            deviations = (per_sample.view(samples, -1).sum(dim=0) / pooled_rows).sqrt()
            prior = Prior.of(network, deviations, settings, all_right)
            objectives.append(cls(network, pooled_rows, deviations, prior))
        return objectives

    def of_head(self) -> "Objective":
        """The same rows with the head as the only member: temperature scaling."""
        return replace(self, members=self.members.heads(), deviations=self.deviations[-1:], prior=self.prior.of_head())

    @property
    def scales(self) -> Tensor:
        """The members' deviations, and 1 for members that have none."""
        return torch.where(self.deviations > 0, self.deviations, 1.0)

    @property
    def largest_weight(self) -> float:
        """Of the scaled ones: unlimited where there is a minimum."""
        return math.inf if self.prior.has_minimum else LARGEST_WEIGHT

    def minimise(self, start: Tensor) -> Minimum:
        """The optimum, by Newton's method from these weights."""
        scales = self.scales

        def expand(scaled: Tensor) -> Expansion:
            here = self.expand(scaled / scales)
            return Expansion(here.value, here.gradient / scales, here.hessian / scales / scales[:, None])

        def moves(step: Tensor) -> bool:
            """Whether a step moves a margin noticeably: not at a minimum, but along a ray on which the loss falls forever."""
            if self.prior.has_minimum:
                return False
            squares = self.members.sum(lambda chunk: chunk.logits(step / scales).square_().sum()[None])
            return float(squares.sqrt()) > NOTICEABLE

        scaled = start * scales
        end = minimise_convex(expand, scaled, scaled.clamp(min=self.largest_weight), moves)
        return replace(end, point=end.point / scales)

    def expand(self, weights: Tensor) -> Expansion:
        """The penalised log-loss with gradient and Hessian."""
        nll, prior, factor = self._expand_nll(weights), self.prior.expand(weights), 1 + self.prior.errors
        return Expansion(
            factor * nll.value + prior.value,
            factor * nll.gradient + prior.gradient,
            factor * nll.hessian + prior.hessian,
        )

    def penalties(self, weights: Tensor) -> tuple[float, Tensor]:
        """All that is added to the log-loss, with its gradient."""
        prior, errors = self.prior.expand(weights), self.prior.errors
        if errors == 0:
            return prior.value, prior.gradient
        nll = self._expand_nll(weights)
        return prior.value + errors * nll.value, prior.gradient + errors * nll.gradient

    def _expand_nll(self, weights: Tensor) -> Expansion:
        sums = self.members.sum(lambda chunk: _expand(chunk, weights)) / self.pooled_rows
        value, gradient, hessian = sums.tensor_split([1, 1 + len(weights)])
        return Expansion(float(value), gradient, hessian.view(len(weights), -1))


def _expand(chunk: Chunk, weights: Tensor) -> Tensor:
    """What the chunk adds to the log-loss, its gradient and its Hessian: [1 + members + members²].

    Covariances are centred: where a row is sure of a class, uncentred moments cancel. Times the root of the probability, the
    differences less their mean are a factor A of the Hessian A A^T. So roots are what is computed, as powers of 2 of half the
    exponents: square roots take four times as long as these, and powers of e three times.
    """
    roots = chunk.logits(weights / (2 * math.log(2)))
    peaks = roots.amax(dim=1, keepdim=True)
    probabilities = roots.sub_(peaks).exp2_().square()
    totals = probabilities.sum(dim=1, keepdim=True)
    means = torch.linalg.vecdot(chunk.differences, probabilities) / totals.T
    of_rows = torch.cat([2 * math.log(2) * peaks + totals.log(), means.T], dim=1)
    row_weights = 1.0 if chunk.row_weights is None else chunk.row_weights[:, None]
    roots.mul_((row_weights / totals).sqrt())
    factor = chunk.differences.sub_(means[:, :, None]).mul_(roots).flatten(1)
    hessian = factor @ factor.T
    return torch.cat([chunk.sum(of_rows), hessian.flatten()])


def loss_sums(members: MemberRows, loss: Loss, weights: Tensor) -> Tensor:
    """The loss's statistics of the prediction with these weights, summed over rows."""
    return members.sum_jointly(lambda chunks: chunks[0].sum(_statistics(members, loss, chunks, weights)))


def _statistics(members: MemberRows, loss: Loss, chunks: list[Chunk], weights: Tensor) -> Tensor:
    """Of the prediction with these weights [rows, statistics]. The log-loss is taken directly, at half the cost: the label's
    difference is 0, so that the log of its probability in sample s is -logsumexp_c z_s,ic."""
    if loss is not NLL:
        return loss.statistics(members.mean_logits(chunks, weights), chunks[0].labels)
    samples = zip(chunks, members.per_sample(weights), strict=True)
    log_label = -torch.stack([chunk.logits(of_sample).logsumexp(dim=1) for chunk, of_sample in samples])
    return (math.log(len(chunks)) - log_label.logsumexp(dim=0))[:, None]


def log_loss(members: MemberRows, weights: Tensor) -> float:
    """The log-loss of the prediction with these weights."""
    return float(loss_sums(members, NLL, weights)) / members.rows


@torch.inference_mode(False)
@torch.enable_grad()
def penalised_loss(members: MemberRows, objectives: Sequence[Objective], loss: Loss, weights: Tensor) -> tuple[float, Tensor]:
    """Any loss of the prediction, and the mean over networks of what is added to it, with the gradient in the weights.

    In two passes over the rows, or one if the loss is a mean over them: its derivative in the sums is the same everywhere.
    """
    rows = members.rows
    sums = torch.zeros(1, dtype=torch.float64) if isinstance(loss, MeanLoss) else loss_sums(members, loss, weights)
    (derivative,) = torch.autograd.grad(loss.outer(sums.requires_grad_(), rows), sums)

    def sums_and_gradient(chunks: list[Chunk]) -> Tensor:
        point = weights.clone().requires_grad_()
        sums = chunks[0].sum(_statistics(members, loss, chunks, point))
        (gradient,) = torch.autograd.grad(sums, point, derivative.to(sums.device))
        return torch.cat([sums.detach().cpu(), gradient])

    sums, gradient = members.sum_jointly(sums_and_gradient).tensor_split([len(derivative)])
    of_networks = zip(objectives, members.of_networks(weights), strict=True)
    values, gradients = zip(*(objective.penalties(part) for objective, part in of_networks), strict=True)
    return float(loss.outer(sums, rows)) + sum(values) / len(values), gradient + torch.cat(gradients) / len(gradients)
