"""Weights for expected shift: the fitted ones, all multiplied by one number that changed copies of the hold-out choose.

Under shift a network is wrong more often, but hardly less confident. The number s <= 1 minimises the log-loss of softmax(s z)
on the hold-out and its copies, with z the logits of the stack: temperature scaling of the stack, for a single network a convex
problem that changes no prediction. Weights fitted to the copies would: they trade accuracy on the inputs as they are.
"""

from dataclasses import replace

from lates.runtime import warn_caller
from lates.settings import DEFAULT, Settings
from lates.stack.members import MemberRows
from lates.stack.objective import log_loss
from lates.stack.optimum import fit_optimum, fit_weights
from lates.stack.record import Stack, combine
from lates.stack.safeguards import without_outliers

SMALLEST_SCALE = 0.1
"""Below it the copies say that the stack knows next to nothing, and every prediction would be nearly uniform."""


def fit_expecting_shift(members: MemberRows, loss: str, settings: Settings, seed: int = 0) -> Stack:
    """As `fit_weights`, to the first pass of these rows, and then scaled to the log-loss on all passes."""
    plain = members.first_pass()
    stack = fit_weights(plain, loss, settings, seed)
    if not bool(stack.weights.any()):
        return stack
    if settings.prior > 0:  # as in the fit, which has warned of them
        members, plain = (without_outliers(rows, warn=False) for rows in (members, plain))
    samples = zip(members.samples, members.per_sample(stack.weights), strict=True)
    stacked = tuple((combine(sample, weights),) for sample, weights in samples)
    rows = replace(members, names=(("stack",),), samples=stacked)
    scale = min(float(fit_optimum(rows, "nll", replace(DEFAULT, prior=settings.prior)).weights[0]), 1.0)
    if scale < SMALLEST_SCALE:
        warn_caller(
            f"The changed copies of the hold-out ask for {scale:.2g} times the weights: on them the model is hardly better "
            "than chance. The weights stay as fitted. Pass views= that leave the classes recognisable; look for outliers."
        )
        return stack
    weights = scale * stack.weights
    return replace(stack, weights=weights, nll=log_loss(plain, weights), scale=scale)
