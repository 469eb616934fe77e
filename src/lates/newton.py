"""Minimise a smooth function of few variables within a box 0 <= x <= upper: Newton's method, and a quasi-Newton one.

Both take the step to the minimiser, within the box, of the quadratic model

    q(x + d) = f(x) + g·d + d·B d / 2        (B is the Hessian, or an estimate of it),

and shorten it until f falls enough. The end of such a step is feasible, its slope g·d <= -d·B d / 2 is negative, and
bounds that bind at the minimum are found by the model, not one by one by f, which is dear: it is a sum over all data.
Everything here is float64, on the CPU, and knows nothing of data.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

TOLERANCE = 1e-10
LOCAL_TOLERANCE = 1e-8
MAX_STEPS = 200
RIDGE = 1e-13
ENOUGH = 1e-4
SWIFT = 10
SHORTEST, SHORTEST_LOCAL = 1e-12, 1e-7
ROUNDING, NEGLIGIBLE = 1e-15, 1e-20
FORESEEABLE = 0.03
"""Of a step, in units of `reach`: Newton's next one, of second order, then moves nothing by 1e-3, and need not be judged."""

Trend = Literal["settled", "recedes", "turns"]


class NotConvergedError(RuntimeError):
    """A minimiser's residual stayed large."""


@dataclass(frozen=True)
class Expansion:
    """A function's value, gradient [variables] and Hessian [variables, variables] at a point; `doubt`: how far any part of the
    gradient may be off."""

    value: float
    gradient: Tensor
    hessian: Tensor
    doubt: float = 0.0


@dataclass(frozen=True)
class Minimum:
    """Where a descent ended. `residual` is that of the bound x >= 0 alone; `bounded`: f falls on, far out; `hessian`: the last
    one used; `early_steps`: on the way to its start, of cheaper functions."""

    point: Tensor
    value: float
    residual: float
    steps: int
    bounded: bool
    hessian: Tensor
    early_steps: int = 0

    @property
    def all_steps(self) -> int:
        return self.early_steps + self.steps


def kkt_residual(point: Tensor, gradient: Tensor, upper: Tensor | None = None) -> float:
    """max_k |x_k - clamp(x_k - g_k, 0, upper_k)|, zero exactly where x meets the first-order conditions of the box; written
    as max_k |clamp(g_k, x_k - upper_k, x_k)|, in which no small g_k is lost beside a large x_k."""
    inward = torch.minimum(gradient, point)
    return float((inward if upper is None else torch.maximum(inward, point - upper)).abs().amax())


def minimise_convex(
    expand: Callable[[Tensor], Expansion],
    value_of: Callable[[Tensor], float],
    start: Tensor,
    upper: Tensor,
    trend: Callable[[Tensor, Tensor], Trend],
    coercive: bool,
    value_and_gradient: Callable[[Tensor], tuple[float, Tensor]] | None = None,
    hessian: Tensor | None = None,
    reach: float = math.inf,
) -> Minimum:
    """Minimise a convex f to a KKT residual of 1e-10, never rising above f(start).

    Near the minimum the Hessian hardly changes. So where `value_and_gradient` is given, being cheaper than `expand`, a
    Hessian is kept for as long as each step with it cuts the residual tenfold; the first may be given, from nearby. Of a
    last step the end is foreseen, where it is short enough, and f is not evaluated there. `reach`: f is a mean of logsumexps of
    linear functions, plus a quadratic one, and within a logsumexp slopes along any axis differ by at most this.

    A small gradient is no proof of a minimum: far out, e^-x has one everywhere. There, however, Newton's step keeps its
    length, whereas it vanishes at a minimum. So `trend(point, step)` judges the step once the residual is small:
    "settled" (it changes nothing), "recedes" (f falls for ever: there is no minimum) or "turns" (neither: go on, and if
    that lasts until f is flat to the last digit, count as bounded too: whether there is a minimum cannot be told).
    A `coercive` f has a minimum, whatever the trend. Raises NotConvergedError where the residual stays large.
    """
    point, steps, last, kept = start, 0, math.inf, False
    if value_and_gradient is not None and hessian is not None:
        here, kept = Expansion(*value_and_gradient(start), hessian), True
    else:
        here = expand(start)
    while True:
        residual = kkt_residual(point, here.gradient, upper) + here.doubt
        if not math.isfinite(residual):
            raise NotConvergedError(_not_converged(residual, steps))
        swift = residual <= last / SWIFT
        if kept and not swift:
            here = expand(point)
        step = box_minimiser(point, here.gradient, here.hessian, upper) - point
        slope = float(here.gradient @ step)
        if residual <= TOLERANCE:
            verdict = trend(point, step)
            exhausted = -slope <= NEGLIGIBLE * abs(here.value) or steps >= MAX_STEPS
            if verdict == "settled" or exhausted or (verdict == "recedes" and not coercive):
                bounded = not coercive and (verdict != "settled" or bool((point >= upper).any()))
                residual = kkt_residual(point, here.gradient) + here.doubt
                return Minimum(point, here.value, residual, steps, bounded, here.hessian)
        elif steps >= MAX_STEPS:
            raise NotConvergedError(_not_converged(residual, steps))

        length, trial = 1.0, point + step
        keep = value_and_gradient if swift else None
        ahead = None if kept and swift else _foreseen(here, step, reach)
        if ahead is None or kkt_residual(trial, ahead.gradient, upper) + ahead.doubt > TOLERANCE:
            ahead = Expansion(*keep(trial), here.hessian) if keep else expand(trial)
        value = ahead.value
        while value > here.value + ENOUGH * length * slope + ROUNDING * (1 + abs(here.value)):
            length /= 2
            if length < SHORTEST:
                raise NotConvergedError(_not_converged(residual, steps))
            trial = point + length * step
            value = value_of(trial)
        kept = keep is not None and length == 1
        point, here, steps, last = trial, ahead if length == 1 else expand(trial), steps + 1, residual


def _foreseen(here: Expansion, step: Tensor, reach: float) -> Expansion | None:
    """The quadratic model at the end of a step d, with a proven bound on its gradient's error; None where there is none.

    Third derivatives of a logsumexp are third cumulants of its slopes, which differ by at most `reach` = R. Hence
    |D³f[e_k, d, d]| <= R d·H d, and on the way, where R |d|_1 <= 1, d·H d grows at most to e times what it was. By Taylor,

        |g_k(x + d) - g_k - (H d)_k| <= R e d·H d / 2.
    """
    moved = reach * float(step.abs().sum())
    if here.doubt > 0 or math.isnan(moved) or moved > FORESEEABLE:
        return None
    change = here.hessian @ step
    curvature = max(float(step @ change), 0.0)
    value = here.value + float(here.gradient @ step) + curvature / 2
    return Expansion(value, here.gradient + change, here.hessian, math.e / 2 * reach * curvature)


def descend(
    value_and_gradient: Callable[[Tensor], tuple[float, Tensor]],
    start: Tensor,
    upper: Tensor | None = None,
) -> Minimum:
    """Go down from `start` to a local minimum by BFGS; f need not be convex, and the end is never worse than the start.

    A point that must not be entered has the value inf: steps into it are shortened. Stops at a KKT residual of 1e-8, or
    where f falls no further, be it by a kink, by a wall of inf or by rounding. After a step s, along which the gradient
    changed by y, the Hessian's estimate B is corrected, with Powell's damping, which keeps it positive definite:

        B <- B - (B s)(B s)^T / s·B s + r r^T / s·r,
        r = t y + (1 - t) B s,    t <= 1 the largest with s·r >= s·B s / 5.
    """
    upper = torch.full_like(start, torch.inf) if upper is None else upper
    identity = torch.eye(len(start), dtype=start.dtype)
    point, (value, gradient), steps, fresh = start, value_and_gradient(start), 0, True
    hessian = identity * max(1.0, float(gradient.norm()))
    while steps < MAX_STEPS and kkt_residual(point, gradient, upper) > LOCAL_TOLERANCE:
        step = box_minimiser(point, gradient, hessian, upper) - point
        slope, length, trial_value, trial_gradient = float(gradient @ step), 1.0, torch.inf, gradient
        while length >= SHORTEST_LOCAL:
            trial_value, trial_gradient = value_and_gradient(point + length * step)
            if trial_value < value + ENOUGH * length * slope:
                break
            length /= 4
        else:
            if fresh:
                break
            hessian, fresh = identity * max(1.0, float(gradient.norm())), True
            continue
        taken, change = length * step, trial_gradient - gradient
        if fresh and float(change @ taken) > 0:
            hessian = identity * float(change @ change / (change @ taken))
        point, value, gradient, steps = point + taken, trial_value, trial_gradient, steps + 1
        hessian, fresh = _bfgs(hessian, taken, change), False
        if int(torch.linalg.cholesky_ex(hessian).info) != 0:  # lost to rounding, as happens at a kink
            hessian, fresh = identity * max(1.0, float(gradient.norm())), True
    bounded = bool((point >= upper).any())
    return Minimum(point, value, kkt_residual(point, gradient), steps, bounded, hessian)


def box_minimiser(point: Tensor, gradient: Tensor, hessian: Tensor, upper: Tensor) -> Tensor:
    """The minimiser within 0 <= x <= upper of the convex model with this gradient and Hessian at `point`.

    A primal active-set method: minimise over the variables that are free, stop at the first bound met and hold it, and
    free the bound that pulls hardest inwards once the free ones are at rest. Variables are first brought to unit
    curvature; a ridge of 1e-13 then makes the minimiser unique where members repeat or say nothing. Of one variable it is
    the parabola's vertex, or the bound before it.
    """
    if len(point) == 1:
        vertex = point - gradient / (hessian[0] if hessian[0] > 0 else RIDGE)
        return vertex.clamp(min=torch.zeros(()), max=upper)
    unit = hessian.diagonal().clamp(min=0).sqrt()
    unit = torch.where(unit > 0, unit, 1.0)
    model = hessian / unit[:, None] / unit + RIDGE * torch.eye(len(point), dtype=point.dtype)
    slope, x, ceiling = gradient / unit, point * unit, upper * unit
    origin, free = x, (x > 0) & (x < ceiling)
    rest = 1e-14 * float(slope.abs().amax())
    for _ in range(10 * len(point)):
        while bool(free.any()):
            pull = -(slope + model @ (x - origin))[free]
            aim = x[free] + torch.cholesky_solve(pull[:, None], torch.linalg.cholesky(model[free][:, free]))[:, 0]
            fraction, bound = _first_bound(x[free], aim, ceiling[free])
            moved = x[free] + fraction * (aim - x[free])
            if bound is None:
                x = x.masked_scatter(free, moved)
                break
            index = free.nonzero()[bound, 0]
            x = x.masked_scatter(free, moved.clamp(min=torch.zeros(()), max=ceiling[free]))
            x[index] = 0.0 if aim[bound] <= 0 else ceiling[index]
            free[index] = False
        pull = -(slope + model @ (x - origin))
        inward = torch.where(free, 0.0, torch.where(x <= 0, pull, -pull))
        hardest = int(inward.argmax())
        if float(inward[hardest]) <= rest:
            break
        free[hardest] = True
    return torch.where(x >= ceiling, upper, x / unit)


def _first_bound(x: Tensor, aim: Tensor, ceiling: Tensor) -> tuple[float, int | None]:
    """How far along x -> aim the first bound lies (1: none before the aim), and whose it is."""
    towards = torch.where(aim < 0, x / (x - aim), torch.where(aim > ceiling, (ceiling - x) / (aim - x), torch.inf))
    nearest = int(towards.argmin())
    return (float(towards[nearest]), nearest) if float(towards[nearest]) < 1 else (1.0, None)


def _bfgs(hessian: Tensor, step: Tensor, change: Tensor) -> Tensor:
    """The damped BFGS update of `descend`."""
    image = hessian @ step
    curvature, measured = float(step @ image), float(step @ change)
    trust = 1.0 if measured >= 0.2 * curvature else 0.8 * curvature / (curvature - measured)
    change = trust * change + (1 - trust) * image
    return hessian - torch.outer(image, image) / curvature + torch.outer(change, change) / (step @ change)


def _not_converged(residual: float, steps: int) -> str:
    return (
        f"The stack did not converge: after {steps} steps the KKT residual is {residual:.1e}, above {TOLERANCE:.0e}. "
        "Members whose entries span very many orders of magnitude cause this; look for outliers in their logits, "
        "leave out the member concerned, or set regularise=1.0 (for calibrate: in its settings)."
    )
