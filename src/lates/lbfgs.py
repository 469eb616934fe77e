"""Minimise a smooth function of many variables: limited-memory BFGS around a preconditioner.

Where `newton.py` solves few variables exactly in float64, this serves the thousands of a probe, in float32, to a tolerance.
After steps s_j, along which the gradient changed by y_j, the inverse Hessian H is the preconditioner P, scaled to the latest
pair, and corrected by each pair in turn,

    H <- (1 - s yᵀ / s·y) H (1 - y sᵀ / s·y) + s sᵀ / s·y,

applied to a gradient by the two-loop recursion without ever being formed. A step of length t along d = -H g is taken where
f has fallen enough and its slope has flattened (the weak Wolfe conditions),

    f(x + t d) <= f(x) + 1e-4 t g·d,        g(x + t d)·d >= 0.9 g·d,

of which the second gives s·y > 0: H stays positive definite, and every direction goes down, whether f is convex or not.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

PAIRS = 10
MAX_STEPS, MAX_TRIALS = 200, 30
ENOUGH, FLATTER = 1e-4, 0.9
LOST = 1e-3
"""Gradients are sharper than values: the descent goes on until a step would gain this share of a value's last digit."""

Pair = tuple[Tensor, Tensor, Tensor]
"""step s, change of the gradient y, their product s·y"""
Function = Callable[[Tensor], tuple[float, Tensor]]
"""point -> value, gradient"""


def minimise(
    function: Function,
    start: Tensor,
    precondition: Callable[[Tensor], Tensor],
    tolerance: float,
    agree: Callable[[Tensor], Tensor] = lambda direction: direction,
) -> Tensor:
    """Go down from `start` until the gradient's norm is at most `tolerance`, or what is left to gain is lost to rounding.

    Where several processes sum up one function, `agree` gives all of them one's direction: they take the same steps even
    if their processors round differently.
    """
    rounding = torch.finfo(start.dtype).eps
    point, (value, gradient) = start, function(start)
    pairs: list[Pair] = []
    for _ in range(MAX_STEPS):
        direction = agree(-_inverse_hessian_times(gradient, pairs, precondition))
        slope, blur = float((gradient * direction).sum()), rounding * abs(value)
        if float(gradient.norm()) <= tolerance or -slope <= LOST * blur:
            break
        found = _search(function, point, direction, value, slope, blur)
        if found is None:
            break
        ahead, value, ahead_gradient = found
        step, change = ahead - point, ahead_gradient - gradient
        point, gradient = ahead, ahead_gradient
        if (product := (step * change).sum()) > 0:
            pairs = [*pairs[1 - PAIRS :], (step, change, product)]
    return point


def _search(
    function: Function, point: Tensor, direction: Tensor, value: float, slope: float, blur: float
) -> tuple[Tensor, float, Tensor] | None:
    """The end of the step with its value and gradient, by bisection between too short and too long; None: there is none."""
    shortest, longest, length = 0.0, math.inf, 1.0
    found = None
    for _ in range(MAX_TRIALS):
        trial = point + length * direction
        trial_value, trial_gradient = function(trial)
        if not trial_value <= value + ENOUGH * length * slope + blur:
            longest = length
        else:
            found = trial, trial_value, trial_gradient
            if float((trial_gradient * direction).sum()) >= FLATTER * slope:
                break
            shortest = length
        length = 2 * length if longest == math.inf else (shortest + longest) / 2
    return found


def _inverse_hessian_times(gradient: Tensor, pairs: list[Pair], precondition: Callable[[Tensor], Tensor]) -> Tensor:
    result = gradient.clone()
    shares: list[Tensor] = []
    for step, change, product in reversed(pairs):
        shares.append((step * result).sum() / product)
        result -= shares[-1] * change
    result = precondition(result)
    if pairs:
        _, change, product = pairs[-1]
        result *= product / (change * precondition(change)).sum()
    for (step, change, product), share in zip(pairs, reversed(shares), strict=True):
        result += step * (share - (change * result).sum() / product)
    return result
