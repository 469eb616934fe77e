"""Weights for expected shift: the fitted ones, all multiplied by one number that changed copies of the hold-out choose.

Under shift a network is wrong more often, but hardly less confident. The number s minimises the log-loss of softmax(s z) on
the hold-out and its copies, with z the logits of the stack: temperature scaling of the stack, a convex problem. It lowers the
confidence, and cannot change a prediction of a single network. Weights fitted to the copies would: they trade accuracy on the
inputs as they are.
"""

from dataclasses import replace

from lates.settings import DEFAULT, Settings
from lates.stack.holdout import Holdout
from lates.stack.mean import mean_log_loss
from lates.stack.record import Stack, combine
from lates.stack.safeguards import without_outliers
from lates.stack.stack import fit_optimum


def rescale(stack: Stack, holdout: Holdout, settings: Settings) -> Stack:
    """The stack, fitted to the first pass of these rows, scaled to the log-loss on all passes. Certificate and residual stay
    those of the fit."""
    if not bool(stack.weights.any()):
        return stack
    draws = zip(holdout.draws, holdout.split(stack.weights), strict=True)
    stacked = tuple((combine(members, weights),) for members, weights in draws)
    rows = replace(holdout, names=(("stack",),), draws=stacked)
    rows = without_outliers(rows) if settings.prior > 0 else rows
    scale = float(fit_optimum(rows, "nll", replace(DEFAULT, prior=settings.prior)).weights[0])
    weights = scale * stack.weights
    nll, _ = mean_log_loss(holdout.first_pass(), weights)
    return replace(stack, weights=weights, nll=nll, scale=scale)
