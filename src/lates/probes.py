"""One linear map per block, from features to logits.

For standardised features x_i = (f_i - centre) / deviation, weights W [classes, width] and biases b, a probe minimises

    F(W, b) = mean_i loss(W x_i + b, y_i) + (decay / 2) ||W||²,
    dF/dW = mean_i d_i x_iᵀ + decay W,    dF/db = mean_i d_i,    d_i = dloss/dlogits;    log-loss: d_i = p_i - [c = y_i].

Quasi-Newton steps (L-BFGS) start from the curvature c G + decay, with G = mean x xᵀ and c the mean of p (1 - p): three
times fewer evaluations than without. The decay is not a setting: it falls by tens from strong to almost none, each solution
starting the next, until the hold-out loss of the block's own probe rises; only the best is solved sharply. Standardisation
is folded into the weights at the end, so that a deployed probe reads raw features.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter, itemgetter

import torch
from torch import Tensor
from torch.nn.functional import pad

from lates.blocks import HEAD
from lates.features import Features
from lates.lbfgs import minimise
from lates.losses import Loss, find_loss
from lates.memory import default_memory
from lates.progress import Progress
from lates.rows import RowStore
from lates.settings import DEFAULT, Settings
from lates.standardised import Rows, keep_what_fits, rows_at_once

DECAYS = tuple(0.3 * 10.0**-k for k in range(7))
DECAY_WITHOUT_HOLDOUT = 3e-3
PATH_TOLERANCE = 1e-2
"""To compare decays: a third of the evaluations went into a last solution that was then put aside."""
GRAM_WIDTH = 4096
"""Wider features go without the curvature of their Gram matrix, whose factorisation would cost more than it saves."""
PRODUCTS = attrgetter("cuda.matmul", "mkldnn.matmul")
"""Where torch keeps how coarsely matrices of float32 may be multiplied."""
SGD_RATE, SGD_MOMENTUM, SGD_BATCH, SGD_EPOCHS, SGD_HALVING = 0.01, 0.9, 128, 50, 10
SGD_TAKEN = 32
"""Batches whose features are gathered at once: a graphics card would spend most of its time on the gathering of each."""


@dataclass(frozen=True, eq=False)
class Probe:
    """logits = up (down f) + bias for raw features f [n, width]; a dense probe has no `up`.

    down [rank, width] (dense: [classes, width]), up [classes, rank] or None, bias [classes].
    """

    down: Tensor
    up: Tensor | None
    bias: Tensor

    @property
    def parameters(self) -> int:
        return self.down.numel() + self.bias.numel() + (0 if self.up is None else self.up.numel())

    def logits(self, features: Tensor) -> Tensor:
        """[n, width] -> [n, classes], in chunks, where the probe is."""
        rows = rows_at_once(features.shape[1], len(self.bias), self.bias.device)
        with full_precision(self.bias.device):
            return torch.cat([self._logits(chunk.to(self.bias)) for chunk in features.split(rows)])

    def _logits(self, features: Tensor) -> Tensor:
        if self.up is None:
            return torch.addmm(self.bias, features, self.down.T)
        return torch.addmm(self.bias, features @ self.down.T, self.up.T)


@dataclass(frozen=True, eq=False)
class TrainedProbe:
    """A dense probe and what is needed to cut it to low rank.

    probe       as trained, standardisation folded in
    mean_logits [classes] over the training features
    basis       [classes, min(classes, width)]: directions of decreasing variance of the logits over the training features
    decay       weight decay that the hold-out chose
    loss        on the hold-out (training split where there is none)
    """

    probe: Probe
    mean_logits: Tensor
    basis: Tensor
    decay: float
    loss: float

    def cut(self, rank: int) -> Probe:
        """The probe of that rank whose logits change least on the training features, in mean square; their mean stays."""
        kept = self.basis[:, :rank]
        off_mean = self.mean_logits - self.probe.bias
        return Probe(kept.T @ self.probe.down, kept, self.mean_logits - kept @ (kept.T @ off_mean))


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
    block's weight decay is the one best for it; without, it is fixed. Standardised copies of one block's features are kept
    while they take at most `memory` bytes (default: a share of what is free), otherwise made anew in every reading.
    """
    if holdout is not None and holdout.classes != train.classes:
        raise ValueError(
            f"train has {train.classes} classes and holdout {holdout.classes}: they were extracted from different networks."
        )
    missing = [] if holdout is None else [name for name in train.blocks if name not in holdout.blocks]
    if missing:
        raise ValueError(
            f"holdout lacks the blocks {', '.join(missing)} of train. Extract it with like=, the training features."
        )
    objective = find_loss("nll" if loss == "soft_ece" else loss)
    target = torch.device(device) if device is not None else train.logits.device
    lbfgs = settings.optimiser == "lbfgs"
    if memory is None:
        memory = default_memory(target, train.team.neighbours())
    probes: dict[str, TrainedProbe] = {}
    for names in [[name] for name in train.blocks] if lbfgs else _alike_in_width(train):
        with full_precision(target):
            rows = {name: Rows.of(train, name, target, train, settings) for name in names}
            held = rows
            if holdout is not None:
                held = {name: Rows.of(holdout, name, target, train, settings) for name in names}
            keep_what_fits([*rows.values(), *held.values()], memory)
            if lbfgs:
                (name,) = names
                decays = DECAYS if holdout is not None else (DECAY_WITHOUT_HOLDOUT,)
                probes[name] = _train_by_lbfgs(rows[name], held[name], objective, decays, settings)
            else:
                probes |= _train_by_sgd(rows, held, objective, seed)
        if progress is not None:
            progress("training probes", len(probes), len(train.blocks))
    return {name: probes[name] for name in train.blocks}


def member_logits(probes: Mapping[str, Probe], rows: Features, *, memory: int | None = None) -> dict[str, Tensor]:
    """The logits [n, classes] of each probe on these rows, and the head's.

    Above `memory` bytes (default: no limit) the probes' go to memory-mapped temporary files.
    """
    if not probes:
        return {HEAD: rows.logits}
    widest = max(rows.blocks[name].shape[1] for name in probes)
    step = rows_at_once(widest, rows.classes, next(iter(probes.values())).bias.device)
    with RowStore(sys.maxsize if memory is None else memory) as store:
        for start in range(0, max(rows.rows, 1), step):
            here = slice(start, start + step)
            store.append({name: probe.logits(rows.blocks[name][here]) for name, probe in probes.items()})
        return {**store.collect(), HEAD: rows.logits}


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Gradients on, inference mode, autocast and coarse products off, whatever the caller has set around the calibration.

    Products in TensorFloat-32 cost more than they save: the descent of a probe needs more steps to get through their noise.
    """
    products = PRODUCTS(torch.backends)
    before = [backend.fp32_precision for backend in products]
    try:
        for backend in products:
            backend.fp32_precision = "ieee"
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        for backend, precision in zip(products, before, strict=True):
            backend.fp32_precision = precision


Variables = Tensor
"""Weights and biases of one probe in one tensor [classes, width + 1], the bias last."""


def _train_by_lbfgs(rows: Rows, held: Rows, loss: Loss, decays: Sequence[float], settings: Settings) -> TrainedProbe:
    """Go down the path of decays loosely, then to `settings.tolerance` with the decay at which it ended.

    A loose solution may hide that its decay is too weak: if the sharp one is worse on the hold-out than what the decay before
    had reached, that decay is tried too, and the best of these is taken.
    """
    variables = torch.zeros(rows.classes, rows.width + 1, dtype=torch.float32, device=rows.device)
    gram = _gram(rows)
    first_norm = float(_value_and_gradient(rows, loss, variables, 0.0)[1].norm())

    def descend(start: Variables, decay: float, tolerance: float) -> tuple[Variables, float]:
        def objective(point: Variables) -> tuple[float, Variables]:
            return _value_and_gradient(rows, loss, point, decay)

        precondition = _preconditioner(gram, decay, _curvature(rows, start))
        end = minimise(objective, start, precondition, tolerance * first_norm, rows.team.first)
        return end, _mean_loss(held, loss, end)

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
            return _folded(rows, variables, decay, reached)


def _alike_in_width(train: Features) -> list[list[str]]:
    """Blocks in groups whose widths differ by less than a factor of two."""
    groups: dict[int, list[str]] = {}
    for name, features in train.blocks.items():
        groups.setdefault(features.shape[1].bit_length(), []).append(name)
    return list(groups.values())


def _train_by_sgd(
    together: Mapping[str, Rows], held: Mapping[str, Rows], loss: Loss, seed: int
) -> dict[str, TrainedProbe]:
    """The paper's: rate 0.01 halved every 10 of 50 epochs, momentum 0.9, batch 128. An epoch is one view of each image.

    The blocks step side by side in batched matrix products: a graphics card would otherwise wait for the host at each of
    a hundred thousand tiny steps. Zeros fill the features up to the widest block's, and a last feature of 1 carries the
    bias; weights that only zeros feed stay 0.
    """
    blocks = list(together.values())
    rows, width = blocks[0], max(block.width for block in blocks)
    variables = torch.zeros(len(blocks), rows.classes, width + 1, dtype=torch.float32, device=rows.device)
    velocity = torch.zeros_like(variables)
    labels = rows.labels.to(rows.device, copy=True)  # none of inference mode
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(SGD_EPOCHS):
        rate = SGD_RATE * 0.5 ** (epoch // SGD_HALVING)
        order = torch.randperm(len(rows), generator=generator)[: len(rows) // rows.passes].to(rows.device)
        for taken in order.split(SGD_BATCH * SGD_TAKEN):
            several = torch.stack([_filled(block.take(taken), width) for block in blocks])
            for features, batch in zip(several.split(SGD_BATCH, dim=1), taken.split(SGD_BATCH), strict=True):
                logits = (features @ variables.mT).flatten(0, 1).requires_grad_()
                total = loss.statistics(logits, labels[batch].repeat(len(blocks))).sum()
                (slope,) = torch.autograd.grad(total, logits)
                gradient = slope.unflatten(0, features.shape[:2]).mT @ features / len(batch)
                velocity.mul_(SGD_MOMENTUM).add_(gradient)
                variables.sub_(velocity, alpha=rate)
    probes: dict[str, TrainedProbe] = {}
    for (name, block), found in zip(together.items(), variables, strict=True):
        own = torch.cat([found[:, : block.width], found[:, width:]], dim=1)
        probes[name] = _folded(block, own, 0.0, _mean_loss(held[name], loss, own))
    return probes


def _filled(features: Tensor, width: int) -> Tensor:
    """[n, less or equal] -> [n, width + 1]: zeros, then a one."""
    return pad(pad(features, (0, width - features.shape[1])), (0, 1), value=1.0)


def _slope(features: Tensor, labels: Tensor, loss: Loss, variables: Variables) -> Tensor:
    """Sum of the losses of these rows and its gradient, packed: [value, gradient row by row]."""
    logits = torch.addmm(variables[:, -1], features, variables[:, :-1].T).requires_grad_()
    total = loss.statistics(logits, labels).sum()
    (slope,) = torch.autograd.grad(total, logits)
    gradient = torch.cat([slope.T @ features, slope.sum(0)[:, None]], dim=1)
    return torch.cat([total.detach()[None], gradient.flatten()])


def _value_and_gradient(rows: Rows, loss: Loss, variables: Variables, decay: float) -> tuple[float, Variables]:
    sums = rows.sum((_slope(*chunk, loss, variables) for chunk in rows), variables.numel() + 1) / rows.total
    gradient, weights = sums[1:].view_as(variables), variables[:, :-1].double()
    gradient[:, :-1] += decay * weights
    return float(sums[0] + decay / 2 * weights.square().sum()), gradient.float()


def _mean_loss(rows: Rows, loss: Loss, variables: Variables) -> float:
    def total(features: Tensor, labels: Tensor) -> Tensor:
        return loss.statistics(torch.addmm(variables[:, -1], features, variables[:, :-1].T), labels).sum()

    return float(rows.sum(total(*chunk) for chunk in rows)) / rows.total


def _curvature(rows: Rows, variables: Variables) -> float:
    """The mean over rows and classes of p (1 - p), which scales the Gram matrix to the log-loss' Hessian."""

    def variances(features: Tensor) -> Tensor:
        probabilities = torch.addmm(variables[:, -1], features, variables[:, :-1].T).softmax(1)
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
    # Two products with the factor's inverse: a graphics card takes twelve times as long to solve with the factor itself;
    # and however the inverse is rounded, rootᵀ root stays positive definite.
    identity = torch.eye(len(factor), dtype=torch.float32, device=factor.device)
    root = torch.linalg.solve_triangular(factor.float(), identity, upper=False)

    def solve(gradient: Variables) -> Variables:
        weights = gradient[:, :-1] @ root.T @ root
        return torch.cat([weights, gradient[:, -1:] / curvature], dim=1)

    return solve


def _folded(rows: Rows, variables: Variables, decay: float, loss: float) -> TrainedProbe:
    """Weights for raw features, shifted so that logits sum to 0 over classes, with the directions in which they vary."""
    centred = variables.double() - variables.double().mean(0, keepdim=True)
    weights, biases = centred[:, :-1], centred[:, -1]
    mean, basis = _directions(rows, weights)
    raw = weights / rows.scale
    probe = Probe(raw.float(), None, (biases - raw @ rows.centre).float())
    return TrainedProbe(probe, (biases + mean).float(), basis.float(), decay, loss)


def _directions(rows: Rows, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [classes] of the logits W x, biases apart, and the directions in which they vary, most first.

    Their covariance is W C Wᵀ, with C that of the features. Where there are fewer features than classes it is never formed:
    of W = Q R, with orthonormal columns in Q, the directions are Q times the eigenvectors of R C Rᵀ.
    """
    narrow = weights.float() if rows.classes <= rows.width else None
    numbers = min(rows.classes, rows.width)

    def moments(features: Tensor) -> Tensor:
        values = (features if narrow is None else features @ narrow.T).double()
        return torch.cat([values.sum(0)[None], values.T @ values])

    sums = rows.sum((moments(features) for features, _ in rows), numbers + 1, numbers) / rows.total
    mean, covariance = sums[0], sums[1:] - torch.outer(sums[0], sums[0])
    if narrow is not None:
        basis = torch.linalg.eigh(covariance).eigenvectors
    else:
        orthonormal, factor = torch.linalg.qr(weights)
        mean, basis = weights @ mean, orthonormal @ torch.linalg.eigh(factor @ covariance @ factor.T).eigenvectors
    return mean, rows.team.first(basis.flip(1))  # signs are free, but the same for all
