"""One probe by quasi-Newton steps, its weight decay chosen on the way.

For standardised features x_i, weights W [classes, width] and biases b, a probe minimises

    F(W, b) = mean_i loss(W x_i + b, y_i) + (decay / 2) ||W||²,
    dF/dW = mean_i d_i x_iᵀ + decay W,    dF/db = mean_i d_i,    d_i = dloss/dlogits;    log-loss: d_i = p_i - [c = y_i].

Steps of L-BFGS start from the curvature c G + decay, with G = mean x xᵀ and c the mean of p (1 - p): three times fewer
evaluations than without. The decay is not a setting: it falls by tens from strong to almost none, each solution starting the
next, until the hold-out loss of the block's own probe rises; only the best is solved sharply.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter

import torch
from torch import Tensor

from lates.lbfgs import minimise
from lates.linear import TrainedProbe, Variables, fold, logits_of, mean_loss, unpack
from lates.losses import MeanLoss
from lates.settings import Settings
from lates.standardised import Rows
from lates.threads import in_threads, row_shares, thread_count, unaided

PATH_TOLERANCE = 1e-2
"""To compare decays: a third of the evaluations went into a last solution that was then put aside."""
GRAM_WIDTH = 4096
"""Wider features go without the curvature of their Gram matrix, whose factorisation would cost more than it saves."""


def train_by_lbfgs(rows: Rows, held: Rows, loss: MeanLoss, decays: Sequence[float], settings: Settings) -> TrainedProbe:
    """Go down the path of decays loosely, then to `settings.tolerance` with the decay at which it ended.

    A loose solution may hide that its decay is too weak: if the sharp one is worse on the hold-out than what the decay before
    had reached, that decay is tried too, and the best of these is taken.
    """
    variables = torch.zeros(rows.classes * (rows.width + 1), dtype=torch.float32, device=rows.device)
    gram = _gram(rows)
    first_norm = float(_value_and_gradient(rows, loss, variables, 0.0)[1].norm())

    def descend(start: Variables, decay: float, tolerance: float) -> tuple[Variables, float]:
        def objective(point: Variables) -> tuple[Tensor, Variables]:
            return _value_and_gradient(rows, loss, point, decay)

        precondition = _preconditioner(gram, decay, _curvature(rows, start))
        with unaided():  # what is worth it is shared among threads already
            end = minimise(objective, start, precondition, tolerance * first_norm, rows.team.first)
        return end, mean_loss(held, loss, end)

    path: list[tuple[float, Variables, float]] = []
    for decay in decays:
        variables, reached = descend(variables, decay, max(PATH_TOLERANCE, settings.tolerance))
        if path and reached >= path[-1][-1]:
            break
        path.append((decay, variables, reached))
    sharp: list[tuple[float, Variables, float]] = []
    while True:
        decay, variables, _ = path.pop()
        variables, reached = descend(variables, decay, settings.tolerance)
        sharp.append((decay, variables, reached))
        if not path or reached <= path[-1][-1]:
            decay, variables, reached = min(sharp, key=itemgetter(2))
            return fold(rows, variables, decay, reached)


def _slope(loss: MeanLoss, variables: Variables, features: Tensor, labels: Tensor) -> Tensor:
    """Sum of the losses of these rows and its gradient, packed: [value, gradient]."""
    total, slope = loss.slope(logits_of(variables, features), labels)
    return torch.cat([total[None], (slope.T @ features).flatten(), slope.sum(0)])


def _value_and_gradient(rows: Rows, loss: MeanLoss, variables: Variables, decay: float) -> tuple[Tensor, Variables]:
    sums = rows.sum(partial(_slope, loss, variables), len(variables) + 1) / rows.total
    gradient, (weights, _) = sums[1:], unpack(variables, rows.width)
    unpack(gradient, rows.width)[0].add_(weights, alpha=decay)
    return sums[0] + decay / 2 * torch.linalg.vector_norm(weights, dtype=torch.float64).square(), gradient.float()


def _curvature(rows: Rows, variables: Variables) -> float:
    """The mean over rows and classes of p (1 - p), which scales the Gram matrix to the log-loss' Hessian."""

    def variances(features: Tensor) -> Tensor:
        probabilities = logits_of(variables, features).softmax(1)
        return (probabilities * (1 - probabilities)).mean(1).sum()

    return max(float(rows.mean_over_sample(4096, variances)), 1e-6)


def _gram(rows: Rows) -> Tensor | None:
    if rows.width > GRAM_WIDTH:
        return None
    gram = rows.mean_over_sample(4 * rows.width + 1024, lambda part: part.T @ part, rows.width, rows.width)
    return gram if bool(gram.isfinite().all()) else None  # raw features may be too large to be squared in float32


def _preconditioner(gram: Tensor | None, decay: float, curvature: float) -> Callable[[Variables], Variables]:
    """(curvature · Gram + decay)⁻¹ on weights, 1 / curvature on biases."""
    if gram is None:
        return lambda gradient: gradient / (curvature + decay)
    damped, damping = curvature * gram, decay + 1e-6 * curvature
    damped.diagonal().add_(damping)
    factor, failed = torch.linalg.cholesky_ex(damped)
    while failed:  # where features depend on one another, rounding may leave eigenvalues below 0
        damping *= 10
        damped.diagonal().add_(damping)
        factor, failed = torch.linalg.cholesky_ex(damped)
    factor = factor.float()
    if factor.device.type == "cpu":
        weigh = partial(_solve, factor, thread_count(factor.numel(), factor.device))
    else:  # which takes twelve times as long to solve as to multiply
        identity = torch.eye(len(factor), dtype=torch.float32, device=factor.device)
        weigh = partial(_multiply, torch.linalg.solve_triangular(factor, identity, upper=False))

    def precondition(gradient: Variables) -> Variables:
        of_weights, of_biases = unpack(gradient, len(gram))
        return torch.cat([weigh(of_weights).flatten(), of_biases / curvature])

    return precondition


def _solve(factor: Tensor, threads: int, rows: Tensor) -> Tensor:
    def of_share(share: slice) -> Tensor:
        return torch.cholesky_solve(rows[share].T.contiguous(), factor).T

    return torch.cat(in_threads(of_share, row_shares(len(rows), threads)))


def _multiply(inverse: Tensor, rows: Tensor) -> Tensor:
    """The same by the factor's inverse; however that is rounded, its square stays positive definite."""
    return rows @ inverse.T @ inverse
