"""Minimise a smooth function of few variables within a box 0 <= x <= upper: Newton's method, and BFGS.

Both step to the minimiser, within the box, of the quadratic model

    q(x + d) = f(x) + g·d + d·B d / 2        (B is the Hessian, or an estimate of it),

and backtrack until the Armijo condition holds, f(x + t d) <= f(x) + 1e-4 t g·d. The end of such a step is feasible, its
directional derivative g·d <= -d·B d / 2 is negative, and the bounds that bind at the minimum are determined by the model, not
by evaluations of f, each of which is a sum over all data. Everything here is float64 and on the CPU.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

TOLERANCE, LOCAL_TOLERANCE = 1e-10, 1e-8  # KKT residuals at which Newton's method and BFGS stop
STATIONARY = 1e-7  # a KKT residual that BFGS reaches even where rounding stops it early
MAX_STEPS = 200
ARMIJO = 1e-4
SHORTEST, SHORTEST_LOCAL = 1e-12, 1e-7  # step lengths below which backtracking gives up
RIDGE, ROUNDING, NEGLIGIBLE = 1e-13, 1e-15, 1e-20


class NotConvergedError(RuntimeError):
    """The residual stayed large."""


@dataclass(frozen=True)
class Expansion:
    """A function's value, gradient [variables] and Hessian [variables, variables] at a point."""

    value: float
    gradient: Tensor
    hessian: Tensor


@dataclass(frozen=True)
class Minimum:
    """The end of a descent. `residual` is that of x >= 0 alone; `unbounded`: there is no minimum, or `upper` stopped it;
    `start`: the function's value where it began."""

    point: Tensor
    value: float
    residual: float
    steps: int
    unbounded: bool
    start: float = math.nan


def kkt_residual(point: Tensor, gradient: Tensor, upper: Tensor | None = None) -> float:
    """max_k |x_k - clamp(x_k - g_k, 0, upper_k)|, zero exactly where x meets the first-order conditions of the box; written
    as max_k |clamp(g_k, x_k - upper_k, x_k)|, in which no small g_k is lost beside a large x_k."""
    inward = torch.minimum(gradient, point)
    return float((inward if upper is None else torch.maximum(inward, point - upper)).abs().amax())


def minimise_convex(
    expand: Callable[[Tensor], Expansion],
    start: Tensor,
    upper: Tensor,
    moves: Callable[[Tensor], bool],
) -> Minimum:
    """Minimise a convex f to a KKT residual of 1e-10, never rising above f(start).

    A small gradient is no proof of a minimum: far out, e^-x has one everywhere. But there Newton's step keeps its length,
    whereas it vanishes at a minimum. So, unless f is known to have a minimum, `moves(step)` says whether the step changes
    anything. If it still does where f is flat to the last digit, or where `upper` stops it, the result is `unbounded`; so it
    is where a variable that changes something has no curvature left, because float64 has lost it.
    Raises NotConvergedError where the residual stays large.
    """
    point, here, steps = start, expand(start), 0
    first = here.value
    while math.isfinite(residual := kkt_residual(point, here.gradient, upper)):
        step = box_minimiser(point, here.gradient, here.hessian, upper) - point
        derivative = float(here.gradient @ step)
        if residual <= TOLERANCE:
            at_rest = not moves(step) and not moves((here.hessian.diagonal() == 0).double())
            if at_rest or -derivative <= NEGLIGIBLE or steps == MAX_STEPS:
                unbounded = not at_rest or bool((point >= upper).any())
                return Minimum(point, here.value, kkt_residual(point, here.gradient), steps, unbounded, first)
        elif steps == MAX_STEPS:
            break
        length = _first_length(point, step) if steps == 0 else 1.0
        ahead = expand(point + length * step)
        flat = ROUNDING * (1 + abs(here.value))
        while ahead.value > here.value + ARMIJO * length * derivative + flat and length > SHORTEST:
            length /= 2
            ahead = expand(point + length * step)
        if length <= SHORTEST:
            break
        point, here, steps = point + length * step, ahead, steps + 1
    if residual <= TOLERANCE:  # flat to the last digit, and steps would still move
        return Minimum(point, here.value, kkt_residual(point, here.gradient), steps, True, first)
    raise NotConvergedError(
        f"The stack did not converge: after {steps} steps the KKT residual is {residual:.1e}, above {TOLERANCE:.0e}. "
        "Members whose entries span very many orders of magnitude cause this; look for outliers in their logits, "
        "leave out the member concerned, or raise `prior` (for calibrate: in its settings)."
    )


def _first_length(point: Tensor, step: Tensor) -> float:
    """Of the first step d: 1, but x / (x + |d|) for a single variable x that shrinks without reaching 0. That is Newton's step
    in 1 / x: an overconfident network's log-loss is nearer to quadratic in the temperature, and the full step overshoots."""
    if len(point) == 1 and 0 < float(point + step) < float(point):
        return float(point / (point - step))
    return 1.0


def descend(value_and_gradient: Callable[[Tensor], tuple[float, Tensor]], start: Tensor, upper: Tensor) -> Minimum:
    """Descend from `start` to a local minimum by BFGS; f need not be convex, and the end is never worse than the start.

    Where f is inf, steps are shortened. Stops at a KKT residual of 1e-8, or where f falls no further: at a kink, at a wall
    of inf or by rounding. After a step s, along which the gradient changed by y, the Hessian's estimate B is corrected,
    with Powell's damping, which keeps it positive definite:

        B <- B - (B s)(B s)^T / s·B s + r r^T / s·r,
        r = t y + (1 - t) B s,    t <= 1 the largest with s·r >= s·B s / 5.
    """
    point, (value, gradient), steps = start, value_and_gradient(start), 0
    hessian, fresh = _first_hessian(gradient), True
    while steps < MAX_STEPS and kkt_residual(point, gradient, upper) > LOCAL_TOLERANCE:
        step = box_minimiser(point, gradient, hessian, upper) - point
        derivative, length, trial_value, trial_gradient = float(gradient @ step), 1.0, torch.inf, gradient
        while length >= SHORTEST_LOCAL:
            trial_value, trial_gradient = value_and_gradient(point + length * step)
            if trial_value < value + ARMIJO * length * derivative:
                break
            length /= 4
        else:
            if fresh:
                break
            hessian, fresh = _first_hessian(gradient), True
            continue
        taken, change = length * step, trial_gradient - gradient
        if fresh and float(change @ taken) > 0:
            hessian = torch.eye(len(start), dtype=start.dtype) * (change @ change / (change @ taken))
        point, value, gradient, steps = point + taken, trial_value, trial_gradient, steps + 1
        hessian, fresh = _bfgs(hessian, taken, change), False
        if int(torch.linalg.cholesky_ex(hessian).info) != 0:  # lost to rounding, as happens at a kink
            hessian, fresh = _first_hessian(gradient), True
    unbounded = bool((point >= upper).any())
    return Minimum(point, value, kkt_residual(point, gradient), steps, unbounded)


def box_minimiser(point: Tensor, gradient: Tensor, hessian: Tensor, upper: Tensor) -> Tensor:
    """The minimiser within 0 <= x <= upper of the convex model with this gradient and Hessian at `point`.

    A primal active-set method: minimise over the free variables, stop at the first bound met and fix that variable, and
    free the bound that pulls hardest inwards once the free ones are at rest. Variables are first brought to unit
    curvature; a ridge of 1e-13 then makes the minimiser unique where members repeat or are constant.
    """
    unit = hessian.diagonal().clamp(min=0).sqrt()
    unit = torch.where(unit > 0, unit, 1.0)
    model = hessian / unit[:, None] / unit + RIDGE * torch.eye(len(point), dtype=point.dtype)
    scaled_gradient, x, ceiling = gradient / unit, point * unit, upper * unit
    origin, free = x, (x > 0) & (x < ceiling)
    rest = 1e-14 * float(scaled_gradient.abs().amax())
    for _ in range(10 * len(point)):
        while bool(free.any()):
            pull = -(scaled_gradient + model @ (x - origin))[free]
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
        pull = -(scaled_gradient + model @ (x - origin))
        inward = torch.where(free, 0.0, torch.where(x <= 0, pull, -pull))
        hardest = int(inward.argmax())
        if float(inward[hardest]) <= rest:
            break
        free[hardest] = True
    return torch.where(x >= ceiling, upper, x / unit)


def _first_bound(x: Tensor, aim: Tensor, ceiling: Tensor) -> tuple[float, int | None]:
    """How far along x -> aim the first bound lies (1: none before the aim), and which variable meets it."""
    towards = torch.where(aim < 0, x / (x - aim), torch.where(aim > ceiling, (ceiling - x) / (aim - x), torch.inf))
    nearest = int(towards.argmin())
    return (float(towards[nearest]), nearest) if float(towards[nearest]) < 1 else (1.0, None)


def _first_hessian(gradient: Tensor) -> Tensor:
    return torch.eye(len(gradient), dtype=gradient.dtype) * gradient.norm().clamp(min=1.0)


def _bfgs(hessian: Tensor, step: Tensor, change: Tensor) -> Tensor:
    """The damped BFGS update of `descend`."""
    image = hessian @ step
    curvature, measured = float(step @ image), float(step @ change)
    damping = 1.0 if measured >= 0.2 * curvature else 0.8 * curvature / (curvature - measured)
    change = damping * change + (1 - damping) * image
    return hessian - torch.outer(image, image) / curvature + torch.outer(change, change) / (step @ change)
