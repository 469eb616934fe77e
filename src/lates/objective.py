"""The penalised loss of a hold-out as a function of few weights, and the descents to its minimum.

Weights are scaled here, b_k = beta_k s_k with s_k the member's deviation: a unit means the same for all members.
"""

import math
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lates.holdout import Holdout
from lates.losses import Loss, MeanLoss
from lates.newton import Expansion, Minimum, NotConvergedError, Trend, box_minimiser, descend, minimise_convex

CAP = 1000.0
NLL_RISE = 0.01
NOTICED, STEP_ACCURACY, EXACT = 1e-3, 1e-6, 1e-9
STRIDES = (17, 61, 251, 1021)  # primes: labels in a regular order rarely repeat after as many rows
ENOUGH_ROWS, PLENTY_OF_ROWS = 200, 800  # for each weight
MANY_MEMBERS = 4
CUBIC_STEPS, SHORT = 10, 5e-3


@dataclass(frozen=True)
class Objective:
    """The penalised loss of a hold-out as a function of the scaled weights b_k = beta_k s_k.

    `reach` bounds by how much a unit of any scaled weight moves a margin: a row's centred logits c have
    |c_a - c_b| <= √2 ||c|| and the deviation is the rms of all c, hence √(2 · rows · classes).
    """

    holdout: Holdout
    rows: int
    deviations: Tensor
    penalty: float
    reach: float = math.inf

    @classmethod
    def of(cls, holdout: Holdout, regularise: float) -> "Objective":
        rows = holdout.rows()
        penalty = regularise / math.sqrt(rows / len(holdout.parts))
        return cls(holdout, rows, holdout.deviations(), penalty, math.sqrt(2 * rows * holdout.classes))

    @property
    def scales(self) -> Tensor:
        """The deviations, and 1 for members that have none."""
        return torch.where(self.deviations > 0, self.deviations, 1.0)

    def head(self) -> "Objective":
        """The same objective with the head as its only member: temperature scaling."""
        parts = tuple((members[-1:], labels) for members, labels in self.holdout.parts)
        return replace(self, holdout=replace(self.holdout, parts=parts), deviations=self.deviations[-1:])

    def every(self, stride: int) -> "Objective":
        """The same objective over every `stride`-th row."""
        holdout = self.holdout.every(stride)
        return replace(self, holdout=holdout, rows=holdout.rows())

    def rough(self) -> "Objective":
        """The same objective in float32, where that will do."""
        return replace(self, holdout=replace(self.holdout, dtype=torch.float32))

    def cap(self, start: Tensor) -> Tensor:
        """The largest scaled weights: any where a penalty holds them, otherwise 1000, or `start` where that is more."""
        return torch.full_like(start, math.inf) if self.penalty > 0 else start.clamp(min=CAP)

    def expand(self, point: Tensor) -> Expansion:
        """The penalised log-loss with gradient and Hessian."""
        members, scales = len(point), self.scales
        sums = self.holdout.log_loss(point / scales, derivatives=2) / self.rows
        gradient = sums[1 : 1 + members] / scales + self.penalty * point / scales**2
        hessian = sums[1 + members :].view(members, members) / scales / scales[:, None]
        return Expansion(
            float(sums[0]) + self.penalty_at(point), gradient, hessian + torch.diag(self.penalty / scales**2)
        )

    def value_and_gradient(self, point: Tensor) -> tuple[float, Tensor]:
        """The penalised log-loss with gradient."""
        scales = self.scales
        value, *_ = sums = self.holdout.log_loss(point / scales, derivatives=1) / self.rows
        return float(value) + self.penalty_at(point), sums[1:] / scales + self.penalty * point / scales**2

    def derivatives_of_one(self, point: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """First, second and third derivative [1] in the weight of the only member."""
        scale = self.scales
        _, first, second, third = (self.holdout.log_loss(point / scale, derivatives=3) / self.rows)[:, None]
        curvature = self.penalty / scale**2
        return first / scale + curvature * point, second / scale**2 + curvature, third / scale**3

    def value(self, point: Tensor) -> float:
        return self.nll(point) + self.penalty_at(point)

    def nll(self, point: Tensor) -> float:
        return float(self.holdout.log_loss(point / self.scales, derivatives=0)) / self.rows

    @torch.inference_mode(False)
    @torch.enable_grad()
    def loss_and_gradient(self, loss: Loss, point: Tensor) -> tuple[float, Tensor]:
        """Any loss, penalised, with its gradient, in two passes over the rows, or one if it is a mean over them."""
        weights = point / self.scales
        known = torch.zeros(1, dtype=torch.float64)  # of a mean the derivative is the same everywhere
        if not isinstance(loss, MeanLoss):
            known = self.holdout.statistics(loss, weights)
        (derivative,) = torch.autograd.grad(loss.outer(known.requires_grad_(), self.rows), known)
        sums, gradient = self.holdout.pull_back(loss, weights, derivative)
        value = float(loss.outer(sums, self.rows)) + self.penalty_at(point)
        return value, (gradient + self.penalty * weights) / self.scales

    def trend(self, point: Tensor, step: Tensor) -> Trend:
        """Whether the hold-out notices a step, and whether a direction without end is in sight.

        Where Newton's step is lost to underflow, the point itself or a single member still shows such a direction.
        The step as a direction is known to the accuracy of its solution only, hence its coarser threshold.
        """
        main = torch.where(step.abs() > STEP_ACCURACY * step.abs().amax(), step, 0.0)
        endless = torch.stack([_unit(main), _unit(point), *torch.eye(len(point), dtype=torch.float64)])
        thresholds = torch.full((len(endless),), EXACT)
        thresholds[0] = STEP_ACCURACY
        raised, lowered = self.holdout.margins_moved(endless / self.scales, thresholds)
        if bool(((endless >= 0).all(dim=1) & raised & ~lowered).any()):
            return "recedes"
        return "turns" if self._notices(step) else "settled"

    def _notices(self, step: Tensor) -> bool:
        """Whether a step moves a margin by more than 1e-3; no need to look where it cannot."""
        if float(step.abs().sum()) * self.reach <= NOTICED:
            return False
        return any(map(bool, self.holdout.margins_moved((step / self.scales)[None], torch.tensor([NOTICED]))))

    def penalty_at(self, point: Tensor) -> float:
        return self.penalty / 2 * float((point / self.scales).square().sum())


def log_loss_optimum(objective: Objective, start: Tensor | None) -> Minimum:
    """The best stack. A convex function's minimum is the same from wherever it is sought, so where there are rows enough
    the search begins at the optimum of a few of them, and where it finds the minimum that is all.

    Otherwise it goes from the network as it is to the best temperature; from there, or from a better `start`, to the
    best stack: that is an orderly descent even where no minimum exists.
    """
    early, lost, rows_per_weight = 0, 0, objective.rows / len(objective.scales)
    if start is None and rows_per_weight >= STRIDES[0] * ENOUGH_ROWS:
        stride = max(STRIDES[:1] + tuple(stride for stride in STRIDES if rows_per_weight >= stride * PLENTY_OF_ROWS))
        with suppress(NotConvergedError):  # a few rows that are hard to fit say nothing about all of them
            by_few = _temperature_by_few if len(objective.scales) == 1 else _stack_by_few
            end = by_few(objective, objective.every(stride))
            if not end.bounded:
                return end
            early, lost = end.early_steps, end.steps
    scales = objective.scales
    first = torch.zeros_like(scales)
    first[-1] = scales[-1]
    if len(scales) > 1:
        head = log_loss_optimum(objective.head(), None)
        first[-1], early = head.point[0], early + head.all_steps
    if start is not None:
        warm = start.detach().to("cpu", torch.float64) * scales
        first = min(first, warm, key=objective.value)
    end = _newton(objective, first)
    return replace(end, steps=lost + end.steps, early_steps=early)


def _temperature_by_few(objective: Objective, few: Objective) -> Minimum:
    """The best weight of one member: steps of third order in float32, over a few rows and then over all, and Newton's method
    from there, which then as a rule takes one step. Exponentials take most of the time, and in float32 a third of it."""
    near, early = _cubic_descent(few.rough(), objective.scales)
    nearer, steps = _cubic_descent(objective.rough(), near)
    end = _newton(objective, nearer)
    return replace(end, steps=steps + end.steps, early_steps=early)


def _stack_by_few(objective: Objective, few: Objective) -> Minimum:
    """Newton's method from the optimum of a few rows, after two steps in float32 if there are few members: the first with the
    few rows' Hessian, the second with one that is kept. With many members, one Hessian serves for all steps, and float32 would
    not do for it.
    """
    near = log_loss_optimum(few, None)
    if near.bounded:
        return replace(near, steps=0, early_steps=near.all_steps)
    if len(near.point) >= MANY_MEMBERS:
        return replace(_newton(objective, near.point), early_steps=near.all_steps)
    _, gradient = objective.rough().value_and_gradient(near.point)
    nearer = box_minimiser(near.point, gradient, near.hessian, objective.cap(near.point))
    here = objective.rough().expand(nearer)
    end = _newton(objective, box_minimiser(nearer, here.gradient, here.hessian, objective.cap(nearer)), here.hessian)
    return replace(end, steps=2 + end.steps, early_steps=near.all_steps)


def _cubic_descent(objective: Objective, point: Tensor) -> tuple[Tensor, int]:
    """To where the gradient of one weight is 0, and in how many steps d, each to the zero of its second-order model,
    g + h d + k d² / 2, or Newton's where that has none.

    The error that a step leaves is of the order of d³, so that after a short one float32 has no more to give. Steps begin at
    weights that it holds exactly, for to round those would be the largest error of all. Nothing proves that steps become
    short; where the first few do not, the descent is given up.
    """
    for steps in range(1, CUBIC_STEPS + 1):
        point = objective.holdout.held(point / objective.scales) * objective.scales
        if not bool(point.isfinite()):
            break
        gradient, hessian, third = objective.derivatives_of_one(point)
        inner = hessian.square() - 2 * gradient * third
        step = torch.where(inner >= 0, -2 * gradient / (hessian + inner.sqrt()), -gradient / hessian)
        last, point = point, (point + step).clamp(torch.zeros_like(point), objective.cap(point))
        if bool((point - last).abs() <= SHORT):
            return point, steps
    raise NotConvergedError("The first few steps in float32 did not become short.")


def _newton(objective: Objective, start: Tensor, hessian: Tensor | None = None) -> Minimum:
    """Newton's method; of few members the Hessian costs little beside the exponentials and is kept only if it was given."""
    return minimise_convex(
        objective.expand,
        objective.value,
        start,
        objective.cap(start),
        objective.trend,
        coercive=objective.penalty > 0,
        value_and_gradient=objective.value_and_gradient if hessian is not None or len(start) >= MANY_MEMBERS else None,
        hessian=hessian,
        reach=objective.reach,
    )


def local_optimum(objective: Objective, loss: Loss, start: Minimum) -> Minimum:
    """Descend to a local minimum of a loss that is not convex, from the optimum of the log-loss."""
    highest = (1 + NLL_RISE) * objective.nll(start.point) if loss.name == "soft_ece" else math.inf

    def value_and_gradient(point: Tensor) -> tuple[float, Tensor]:
        if highest < math.inf and objective.nll(point) > highest:
            return math.inf, torch.zeros_like(point)
        return objective.loss_and_gradient(loss, point)

    end = descend(value_and_gradient, start.point, objective.cap(start.point))
    bounded, steps = end.bounded or start.bounded, start.steps + end.steps
    return replace(end, bounded=bounded, steps=steps, early_steps=start.early_steps)


def _unit(direction: Tensor) -> Tensor:
    longest = direction.abs().amax()
    return direction / longest if longest > 0 else direction
