"""Train one probe per block: by default by L-BFGS, its weight decay chosen on the hold-out.

For standardised features x_i, weights W [classes, width] and biases b, a probe minimises

    F(W, b) = mean_i loss(W x_i + b, y_i) + (decay / 2) ||W||²,
    dF/dW = mean_i d_i x_iᵀ + decay W,    dF/db = mean_i d_i,    d_i = dloss/dlogits;    log-loss: d_i = p_i - [c = y_i].

L-BFGS starts from the curvature c G + decay, with G = mean x xᵀ and c the mean of p (1 - p), and so needs a third of the
evaluations of plain L-BFGS. The decay is not a setting: it falls by tens from strong to almost none, each solution starting
the next, until the hold-out loss of the block's probe rises; only the best is solved to `settings.tolerance`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter

import torch
from torch import Tensor

from lates.network import Features
from lates.probes.lbfgs import minimise
from lates.probes.probe import TrainedProbe, Variables, fold, logits_of, mean_loss, unpack
from lates.probes.rows import StandardisedRows
from lates.probes.sgd import train_by_sgd
from lates.runtime import (
    Progress,
    Run,
    abbreviate,
    default_memory,
    full_precision,
    map_threads,
    split_rows,
    thread_count,
    warn_caller,
)
from lates.settings import DEFAULT, Settings
from lates.stack import MeanLoss, find_probe_loss

DECAYS = tuple(0.3 * 10.0**-k for k in range(7))
DECAY_WITHOUT_HOLDOUT = 3e-3
PATH_TOLERANCE = 1e-2  # for comparing decays: solving all of them accurately takes half as many evaluations more
GRAM_WIDTH = 4096  # of wider features the Gram matrix costs more to factorise than it saves


def train_probes(
    train: Features,
    holdout: Features | None = None,
    *,
    loss: str = "nll",
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
    settings: Settings = DEFAULT,
    memory: int | None = None,
) -> dict[str, TrainedProbe]:
    """Train one probe per block on the training split's features.

    `loss`: "nll" or "brier" ("soft_ece" is for the stack alone; its probes train to the log-loss). With a `holdout` each
    block's weight decay is the one best for it; without, it is fixed. `device` is by default where the hold-out is: training
    features that did not fit a GPU are on the host. Standardised copies of the features at work are kept while they take at
    most `memory` bytes (default: a share of what is free), otherwise made anew in every pass.
    """
    device = torch.device(device or (holdout or train).logits.device)
    memory = default_memory(device, train.processes.on_this_host()) if memory is None else memory
    return train_all(train, holdout, loss, settings, Run(device, seed, memory, train.processes, progress))


def train_all(train: Features, holdout: Features | None, loss: str, settings: Settings, run: Run) -> dict[str, TrainedProbe]:
    _check_splits(train, holdout or train)
    objective, probes = find_probe_loss(loss), {}
    for name in train.blocks:
        with full_precision(run.device), torch.no_grad():
            rows = validation = StandardisedRows(train, name, train, run.device, settings, run.memory)
            if holdout is not None:
                remaining = run.memory - rows.bytes_kept
                validation = StandardisedRows(holdout, name, train, run.device, settings, remaining)
            if settings.optimiser == "sgd":
                probes[name] = train_by_sgd(rows, validation, objective, run.seed)
            else:
                decays = DECAYS if holdout is not None else (DECAY_WITHOUT_HOLDOUT,)
                probes[name] = train_by_lbfgs(rows, validation, objective, decays, settings)
            del rows, validation  # their copies, before the next block makes its own
        run.report("training probes", len(probes), len(train.blocks))
    unseen = next((trained.probe.unseen for trained in probes.values()), None)  # the same for all
    if unseen is not None:
        classes = unseen.nonzero()[:, 0].tolist()
        warn_caller(
            f"{len(classes)} of {train.classes} classes have no training row ({abbreviate(classes)}): the probes leave "
            "them to the head. Add rows of these classes to train=."
        )
    return probes


def _check_splits(train: Features, holdout: Features) -> None:
    if holdout.classes != train.classes:
        raise ValueError(
            f"train has {train.classes} classes and holdout {holdout.classes}: they were extracted from different networks."
        )
    missing = [name for name in train.blocks if name not in holdout.blocks]
    if missing:
        raise ValueError(
            f"holdout lacks the blocks {', '.join(missing)} of train. Extract it with like=, the training features."
        )


def train_by_lbfgs(
    rows: StandardisedRows, validation: StandardisedRows, loss: MeanLoss, decays: Sequence[float], settings: Settings
) -> TrainedProbe:
    """Follow the path of decays loosely, then solve to `settings.tolerance` with the decay at which it ended.

    A loose solution may hide that its decay is too weak: if the accurate one is worse on the hold-out than the loose one of
    the decay before, that decay is tried too, and the best is taken.
    """
    variables = torch.zeros(rows.classes * (rows.width + 1), dtype=torch.float32, device=rows.device)
    gram = _gram(rows)
    first_norm = float(_value_and_gradient(rows, loss, 0.0, variables)[1].norm())

    def descend(start: Variables, decay: float, tolerance: float) -> tuple[Variables, float]:
        precondition = _preconditioner(gram, decay, _curvature(rows, start))
        function = partial(_value_and_gradient, rows, loss, decay)
        end = minimise(function, start, precondition, tolerance * first_norm, rows.processes.broadcast)
        return end, mean_loss(validation, loss, end)

    path: list[tuple[float, Variables, float]] = []
    for decay in decays:
        variables, reached = descend(variables, decay, max(PATH_TOLERANCE, settings.tolerance))
        if path and reached >= path[-1][-1]:
            break
        path.append((decay, variables, reached))
    accurate: list[tuple[float, Variables, float]] = []
    while path and (not accurate or not accurate[-1][-1] <= path[-1][-1]):
        decay, variables, _ = path.pop()
        accurate.append((decay, *descend(variables, decay, settings.tolerance)))
    decay, variables, reached = min(accurate, key=itemgetter(2))
    return fold(rows, variables, decay, reached)


def _value_and_gradient(rows: StandardisedRows, loss: MeanLoss, decay: float, variables: Variables) -> tuple[Tensor, Variables]:
    def sums_of_chunk(features: Tensor, labels: Tensor) -> Tensor:
        total, logit_gradient = loss.value_and_gradient(logits_of(variables, features), labels)
        return torch.cat([total[None], (logit_gradient.T @ features).flatten(), logit_gradient.sum(0)])

    sums = rows.sum(sums_of_chunk) / rows.total
    gradient, (weights, _) = sums[1:], unpack(variables, rows.width)
    unpack(gradient, rows.width)[0].add_(weights, alpha=decay)
    return sums[0] + decay / 2 * torch.linalg.vector_norm(weights, dtype=torch.float64).square(), gradient.float()


def _curvature(rows: StandardisedRows, variables: Variables) -> float:
    """The mean over rows and classes of p (1 - p), which scales the Gram matrix to the Hessian of the log-loss."""

    def variances(features: Tensor) -> Tensor:
        probabilities = logits_of(variables, features).softmax(1)
        return (probabilities * (1 - probabilities)).mean(1).sum()

    return max(float(rows.mean_over_sample(4096, variances)), 1e-6)


def _gram(rows: StandardisedRows) -> Tensor | None:
    if rows.width > GRAM_WIDTH:
        return None
    gram = rows.mean_over_sample(4 * rows.width + 1024, lambda part: part.T @ part)
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
    identity = torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
    inverse = torch.linalg.solve_triangular(factor, identity, upper=False).float()
    threads = thread_count(factor.numel(), factor.device)

    def precondition(gradient: Variables) -> Variables:
        """By the factor's inverse, on a GPU twelve times as fast as solving with the factor. However it is rounded, its
        square stays positive definite."""
        weight_gradient, bias_gradient = unpack(gradient, len(gram))
        parts = split_rows(len(weight_gradient), threads)
        parts = map_threads(lambda part: weight_gradient[part] @ inverse.T @ inverse, parts, factor.device)
        return torch.cat([torch.cat(parts).flatten(), bias_gradient / curvature])

    return precondition
