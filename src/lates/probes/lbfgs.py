"""Minimise a smooth function of many variables: limited-memory BFGS around a preconditioner (Nocedal and Wright, ch. 7).

Where `stack.newton` solves few variables exactly in float64, this serves the thousands of a probe, in float32, to a
tolerance. After steps s, along which the gradient changed by y, the inverse Hessian H is the preconditioner P, scaled by
c = s·y / y·P y of the latest pair, and corrected by the last ten curvature pairs (s, y) in turn,

    H <- (1 - s yᵀ / s·y) H (1 - y sᵀ / s·y) + s sᵀ / s·y.

It is never formed: the two-loop recursion gives H g, from P g and the P y, differences of P g, so that P is applied once
for each step. A step of length t along d = -H g meets the weak Wolfe conditions,

    f(x + t d) <= f(x) + 1e-4 t g·d,        g(x + t d)·d >= 0.9 g·d,

of which the second gives s·y > 0: H stays positive definite, and every direction descends, whether f is convex or not.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

HISTORY = 10
MAX_STEPS, MAX_TRIALS = 200, 30
WOLFE_ARMIJO, WOLFE_CURVATURE = 1e-4, 0.9
NEGLIGIBLE = 1e-3  # of the value's rounding error: gradients are more accurate than values

Function = Callable[[Tensor], tuple[Tensor, Tensor]]
"""point [variables] -> value [], gradient [variables]"""
Pair = tuple[Tensor, Tensor, Tensor, Tensor]
"""A step s, the gradient's change y along it, P y, and s·y []"""


@dataclass(frozen=True, eq=False)
class Iterate:
    """A point with the function's value and gradient there; `slope` is that along the direction that led to it."""

    point: Tensor
    value: float
    gradient: Tensor
    norm: float
    slope: float


def minimise(
    function: Function,
    start: Tensor,
    precondition: Callable[[Tensor], Tensor],
    tolerance: float,
    agree: Callable[[Tensor], Tensor] = lambda direction: direction,
) -> Tensor:
    """Descend from `start` until the gradient's norm is at most `tolerance`, or what is left to gain is lost to rounding.

    Where several processes sum up one function, `agree` gives all of them one's direction: they take the same steps even
    if their processors round differently.
    """
    epsilon = torch.finfo(start.dtype).eps
    here = _evaluate(function, start, torch.zeros_like(start))
    preconditioned = precondition(here.gradient)
    pairs: deque[Pair] = deque(maxlen=HISTORY)
    for _ in range(MAX_STEPS):
        if here.norm <= tolerance:
            break
        direction = agree(-inverse_hessian_times(here.gradient, preconditioned, pairs))
        slope = float(torch.dot(here.gradient, direction))
        rounding_error = epsilon * abs(here.value)
        if not -slope > NEGLIGIBLE * rounding_error:
            break
        ahead = _line_search(function, here, direction, slope, rounding_error)
        if ahead is None:
            break
        preconditioned_ahead = precondition(ahead.gradient)
        if ahead.slope > slope:
            step, change = ahead.point - here.point, ahead.gradient - here.gradient
            pairs.append((step, change, preconditioned_ahead - preconditioned, torch.dot(step, change)))
        here, preconditioned = ahead, preconditioned_ahead
    return here.point


def inverse_hessian_times(gradient: Tensor, preconditioned: Tensor, pairs: Sequence[Pair]) -> Tensor:
    """H g from g and P g, by the two-loop recursion. All numbers stay on their device: a GPU is never waited for."""
    remaining, result, coefficients = gradient, preconditioned, []
    for step, change, preconditioned_change, curvature in reversed(pairs):
        coefficients.append(torch.dot(step, remaining) / curvature)
        remaining = remaining - coefficients[-1] * change
        result = result - coefficients[-1] * preconditioned_change
    if pairs:
        _, change, preconditioned_change, curvature = pairs[-1]
        result = result * (curvature / torch.dot(change, preconditioned_change))
    for (step, change, _, curvature), coefficient in zip(pairs, reversed(coefficients), strict=True):
        result = result + (coefficient - torch.dot(change, result) / curvature) * step
    return result


def _line_search(function: Function, here: Iterate, direction: Tensor, slope: float, rounding_error: float) -> Iterate | None:
    """The end of a step that meets the Wolfe conditions, by bisection; None where none decreases the function."""
    shortest, longest, length = 0.0, math.inf, 1.0
    best = None
    for _ in range(MAX_TRIALS):
        trial = _evaluate(function, here.point + length * direction, direction)
        if not trial.value <= here.value + WOLFE_ARMIJO * length * slope + rounding_error:
            longest = length
        else:
            best = trial
            if trial.slope >= WOLFE_CURVATURE * slope:
                break
            shortest = length
        length = 2 * length if longest == math.inf else (shortest + longest) / 2
    return best


def _evaluate(function: Function, point: Tensor, direction: Tensor) -> Iterate:
    """All numbers that the host needs in one transfer from the device."""
    value, gradient = function(point)
    numbers = torch.stack([value, gradient.norm(), torch.dot(gradient, direction)]).tolist()
    return Iterate(point, numbers[0], gradient, numbers[1], numbers[2])
