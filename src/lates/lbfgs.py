"""Minimise a smooth function of many variables: limited-memory BFGS around a preconditioner.

Where `newton.py` solves few variables exactly in float64, this serves the thousands of a probe, in float32, to a tolerance.
After steps s_j, along which the gradient changed by y_j, the inverse Hessian H is the preconditioner P, scaled by c to the
latest pair, and corrected by each pair in turn,

    H <- (1 - s yᵀ / s·y) H (1 - y sᵀ / s·y) + s sᵀ / s·y.

It is never formed. With the pairs as rows of S and Y, oldest first, R the upper triangle of S Yᵀ and D its diagonal, all
corrections together are (Byrd, Nocedal and Schnabel 1994)

    H g = c (P g - (P Y)ᵀ a) + Sᵀ w,    a = R⁻¹ S g,    w = R⁻ᵀ ((D + c Y P Yᵀ) a - c Y P g),

so that a step costs one P g, from which P y follows by subtraction, and a few products with S and Y: the small systems are
solved on the host, and a graphics card is asked once, not for each pair.

A step of length t along d = -H g is taken where f has fallen enough and its slope has flattened (the weak Wolfe conditions),

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
    smooth = precondition(gradient)
    pairs = Pairs(start)
    for _ in range(MAX_STEPS):
        direction = agree(-pairs.inverse_hessian_times(gradient, smooth))
        slope, norm = torch.stack([(gradient * direction).sum(), gradient.norm()]).tolist()
        blur = rounding * abs(value)
        if norm <= tolerance or -slope <= LOST * blur:
            break
        found = _search(function, point, direction, value, slope, blur)
        if found is None:
            break
        ahead, value, ahead_gradient = found
        ahead_smooth = precondition(ahead_gradient)
        pairs.add(ahead - point, ahead_gradient - gradient, ahead_smooth - smooth)
        point, gradient, smooth = ahead, ahead_gradient, ahead_smooth
    return point


class Pairs:
    """The latest steps S, changes Y of the gradient, and P Y, each [PAIRS, variables], in slots that are used in turn."""

    def __init__(self, like: Tensor) -> None:
        self.steps, self.changes, self.smooth_changes = (like.new_zeros(PAIRS, like.numel()) for _ in range(3))
        self.steps_by_changes, self.changes_by_smooth = torch.zeros(2, PAIRS, PAIRS, dtype=torch.float64)
        self.slots: list[int] = []
        self.next = 0

    def add(self, step: Tensor, change: Tensor, smooth_change: Tensor) -> None:
        """Remember a pair in place of the oldest, unless the slope did not rise along it."""
        slot, self.next = self.next, (self.next + 1) % PAIRS
        self.steps[slot], self.changes[slot] = step.flatten(), change.flatten()
        self.smooth_changes[slot] = smooth_change.flatten()
        rows = (
            self.steps @ self.changes[slot],
            self.changes @ self.steps[slot],
            self.changes @ self.smooth_changes[slot],
        )
        products = torch.stack(rows).double().cpu()
        self.steps_by_changes[:, slot], self.steps_by_changes[slot] = products[0], products[1]
        self.changes_by_smooth[:, slot] = self.changes_by_smooth[slot] = products[2]
        self.slots = [other for other in self.slots if other != slot]
        if self.steps_by_changes[slot, slot] > 0:
            self.slots.append(slot)

    def inverse_hessian_times(self, gradient: Tensor, smooth: Tensor) -> Tensor:
        """H g, given g and P g."""
        if not self.slots:
            return smooth
        at = torch.tensor(self.slots)
        known = torch.stack([self.steps @ gradient.flatten(), self.changes @ smooth.flatten()]).double().cpu()
        along, against = known[:, at]
        triangle, smooth_products = self.steps_by_changes[at][:, at].triu(), self.changes_by_smooth[at][:, at]
        scale = triangle[-1, -1] / smooth_products[-1, -1]
        a = torch.linalg.solve_triangular(triangle, along[:, None], upper=True)[:, 0]
        right = triangle.diagonal() * a + scale * (smooth_products @ a - against)
        w = torch.linalg.solve_triangular(triangle.T, right[:, None], upper=False)[:, 0]
        shares = torch.zeros(2, PAIRS, dtype=torch.float64)
        shares[:, at] = torch.stack([-scale * a, w])
        by_changes, by_steps = shares.to(smooth)
        corrections = by_changes @ self.smooth_changes + by_steps @ self.steps
        return float(scale) * smooth + corrections.view_as(smooth)


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
