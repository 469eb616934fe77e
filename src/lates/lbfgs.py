"""Minimise a smooth function of many variables: limited-memory BFGS around a preconditioner.

Where `newton.py` solves few variables exactly in float64, this serves the thousands of a probe, in float32, to a tolerance.
After steps s_j, along which the gradient changed by y_j, the inverse Hessian H is the preconditioner P, scaled by c to the
latest pair, and corrected by each pair in turn,

    H <- (1 - s yᵀ / s·y) H (1 - y sᵀ / s·y) + s sᵀ / s·y.

It is never formed. With the pairs as rows of S and Y, oldest first, R the upper triangle of S Yᵀ and D its diagonal, all
corrections together are (Byrd, Nocedal and Schnabel 1994)

    H g = c (P g - (P Y)ᵀ a) + Sᵀ w,    a = R⁻¹ S g,    w = R⁻ᵀ ((D + c Y P Yᵀ) a - c Y P g),

so that a step costs one P g, from which P y follows by subtraction, and a few products with S and Y; the small systems are
solved on the host. A graphics card is to be kept busy, so the host asks it as seldom as it can: for the products, for the slope
along the direction, and for all that is to be known of a trial.

A step of length t along d = -H g is taken where f has fallen enough and its slope has flattened (the weak Wolfe conditions),

    f(x + t d) <= f(x) + 1e-4 t g·d,        g(x + t d)·d >= 0.9 g·d,

of which the second gives s·y > 0: H stays positive definite, and every direction goes down, whether f is convex or not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

PAIRS = 10
MAX_STEPS, MAX_TRIALS = 200, 30
ENOUGH, FLATTER = 1e-4, 0.9
LOST = 1e-3
"""Gradients are sharper than values: the descent goes on until a step would gain this share of a value's last digit."""

Function = Callable[[Tensor], tuple[Tensor, Tensor]]
"""point [variables] -> value [], gradient [variables]"""


@dataclass(frozen=True, eq=False)
class Place:
    """A point with the function's value and gradient there; `slope`: of the function along the direction that led to it."""

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
    """Go down from `start` until the gradient's norm is at most `tolerance`, or what is left to gain is lost to rounding.

    Where several processes sum up one function, `agree` gives all of them one's direction: they take the same steps even
    if their processors round differently.
    """
    rounding = torch.finfo(start.dtype).eps
    here = _look(function, start, torch.zeros_like(start))
    smooth = precondition(here.gradient)
    pairs = Pairs(start)
    for _ in range(MAX_STEPS):
        if here.norm <= tolerance:
            break
        direction = agree(-pairs.inverse_hessian_times(here.gradient, smooth))
        slope = float(torch.dot(here.gradient, direction))
        blur = rounding * abs(here.value)
        if -slope <= LOST * blur:
            break
        ahead = _search(function, here, direction, slope, blur)
        if ahead is None:
            break
        ahead_smooth = precondition(ahead.gradient)
        pairs.add(ahead.point - here.point, ahead.gradient - here.gradient, ahead_smooth - smooth)
        here, smooth = ahead, ahead_smooth
    return here.point


class Pairs:
    """The latest steps S, changes Y of the gradient, and P Y, each [PAIRS, variables], in slots that are used in turn.

    The products of a new pair with the others are `unread`, on their device, until a direction is asked for.
    """

    def __init__(self, like: Tensor) -> None:
        together = like.new_zeros(3, PAIRS, len(like))
        self.changes, self.steps, self.smooth_changes = together
        self.steps_and_smooth_changes = together[1:].flatten(0, 1)
        self.steps_by_changes, self.changes_by_smooth = np.zeros((2, PAIRS, PAIRS))
        self.unread: list[tuple[int, Tensor]] = []
        self.slots: list[int] = []
        self.next = 0

    def add(self, step: Tensor, change: Tensor, smooth_change: Tensor) -> None:
        """Put a pair in place of the oldest."""
        slot, self.next = self.next, (self.next + 1) % PAIRS
        self.steps[slot], self.changes[slot], self.smooth_changes[slot] = step, change, smooth_change
        products = torch.stack([self.steps @ change, self.changes @ step, self.changes @ smooth_change])
        self.unread.append((slot, products))

    def inverse_hessian_times(self, gradient: Tensor, smooth: Tensor) -> Tensor:
        """H g, given g and P g."""
        asked = torch.stack([self.steps @ gradient, self.changes @ smooth])
        products = torch.cat([*(rows for _, rows in self.unread), asked]).cpu().double().numpy()
        self._take_up(products[:-2])
        if not self.slots:
            return smooth
        at = np.array(self.slots)
        along, against = products[-2:, at]
        triangle, smooth_products = np.triu(self.steps_by_changes[at][:, at]), self.changes_by_smooth[at][:, at]
        shares = np.zeros((2, PAIRS))
        with np.errstate(all="ignore"):  # of a function that runs off to infinity: no step is found then
            scale = triangle[-1, -1] / smooth_products[-1, -1]
            a = np.linalg.solve(triangle, along)
            right = triangle.diagonal() * a + scale * (smooth_products @ a - against)
            w = np.linalg.solve(triangle.T[::-1, ::-1], right[::-1])[::-1]  # turned round, an upper triangle again
            shares[:, at] = w, -scale * a
        corrections = torch.from_numpy(shares.ravel()).to(smooth) @ self.steps_and_smooth_changes
        return float(scale) * smooth + corrections

    def _take_up(self, products: np.ndarray) -> None:
        """The unread products [3 · pairs, PAIRS]; a pair along which the slope did not rise is passed over."""
        of_pairs = products.reshape(-1, 3, PAIRS)
        for (slot, _), (of_steps, of_changes, of_smooth) in zip(self.unread, of_pairs, strict=True):
            self.steps_by_changes[:, slot], self.steps_by_changes[slot] = of_steps, of_changes
            self.changes_by_smooth[:, slot] = self.changes_by_smooth[slot] = of_smooth
            self.slots = [other for other in self.slots if other != slot]
            if self.steps_by_changes[slot, slot] > 0:
                self.slots.append(slot)
        self.unread.clear()


def _search(function: Function, here: Place, direction: Tensor, slope: float, blur: float) -> Place | None:
    """The end of the step, by bisection between too short and too long; None: there is none."""
    shortest, longest, length = 0.0, math.inf, 1.0
    found = None
    for _ in range(MAX_TRIALS):
        trial = _look(function, here.point + length * direction, direction)
        if not trial.value <= here.value + ENOUGH * length * slope + blur:
            longest = length
        else:
            found = trial
            if trial.slope >= FLATTER * slope:
                break
            shortest = length
        length = 2 * length if longest == math.inf else (shortest + longest) / 2
    return found


def _look(function: Function, point: Tensor, direction: Tensor) -> Place:
    value, gradient = function(point)
    known, norm, slope = torch.stack([value, gradient.norm(), torch.dot(gradient, direction)]).tolist()
    return Place(point, known, gradient, norm, slope)
