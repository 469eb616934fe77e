"""Weights beta >= 0 over member logits: the layer stack softmax(R beta), fitted on the hold-out.

One member is temperature scaling.

For the log-loss, with R of shape [n, classes, members] and z = R beta,

    minimise over beta >= 0    mean_i [ logsumexp_c z_ic - z_i,y_i ] + (lambda / 2) ||beta||^2,    lambda = c / sqrt(n),
    gradient  g_k  = mean_i ( sum_c p_ic R_ick - R_i,y_i,k ) + lambda beta_k,
    Hessian   H_kl = mean_i Cov_{c ~ p_i}( R_ick, R_icl ) + lambda [k = l],

is convex and solved exactly, in the scaled variables beta_k s_k, where s_k is the rms of member k's class-centred
logits (its *deviation*), so that a member's scale matters neither for the path nor for the tolerance. The solver goes
from the network as it is to the best temperature, and then on to all members; every step lowers the objective, hence

    objective(stack) <= objective(temperature) <= objective(network).

No minimiser exists where some v >= 0 lowers no hold-out margin and raises one (every label right, say): the loss falls
for ever along v. The descent then stops where the gradient has vanished, at the latest at beta_k s_k = 1000, and the
result is `bounded` and not `certified`. With lambda > 0 there is always a minimiser.

Where the hold-out is silent, weights stay where they began, at 0 for a probe and 1 for the head: for members that are
constant in every row, and for all members if there is one class only. Classes the hold-out lacks are classes that were
never right. If there are fewer rows than members the hold-out can hardly bound the weights: set `regularise`.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lates.checks import (
    as_tensor,
    check_finite,
    check_form,
    check_labels,
    level_of_the_caller,
    warn_if_probabilities,
)
from lates.holdout import Holdout, Members, Reduce, in_this_process
from lates.losses import LOSSES, find_loss
from lates.newton import Minimum, kkt_residual
from lates.objective import Objective, local_optimum, log_loss_optimum
from lates.threads import unaided

Array = Tensor | np.ndarray

SOLVERS = ("exact", "sgd")
SGD_BATCH, SGD_RATE, SGD_EPOCHS = 128, 0.005, 50
FEW_ROWS = 100
"""At so many rows, in the demo with ten classes, the fit's gain on other rows could be anything down to a loss; at 300 most of
it was there, at 1,000 all (docs/limits.md)."""


@dataclass(frozen=True, eq=False)
class Stack:
    """The fitted weights and what is known about them.

    weights     beta [members], float64; the head is the last
    names       one for each member
    loss        what was minimised, and `regularise`, the c of its penalty (c / sqrt(n)) / 2 · ||beta||²
    objective   the penalised loss on the hold-out, and `nll`, the hold-out's plain log-loss
    residual    how far, at most, the optimality conditions are from being met, in the scaled variables: max_k |min(b_k, g_k)|
    certified   the weights are the global minimum: log-loss, residual at most 1e-10, and a minimum exists
    bounded     the hold-out does not bound the weights, or too faintly for float64 to tell: they stopped at the cap, or, of
                the log-loss, where the gradient vanished; of another loss, that may be a local minimum, and is not told
    steps       of the search that came to the end, all that went over all rows of all members
    early_steps those before, which cost less: over some of the rows, or of the head alone
    deviations  rms of each member's class-centred logits on the hold-out [members]
    """

    weights: Tensor
    names: tuple[str, ...]
    loss: str
    regularise: float
    objective: float
    nll: float
    residual: float
    certified: bool
    bounded: bool
    steps: int
    early_steps: int
    deviations: Tensor

    @property
    def contributions(self) -> dict[str, float]:
        """Each member's share of the weights' sum; all 0 where all weights are 0."""
        total = float(self.weights.sum())
        return self._named(self.weights / total if total > 0 else torch.zeros_like(self.weights))

    @property
    def spread(self) -> dict[str, float]:
        """Weight times deviation: what each member adds to the logits, whatever its own scale."""
        return self._named(self.weights * self.deviations)

    @property
    def temperature(self) -> float:
        """1 / weight of the head, inf where that is 0. Only a stack of one member has a temperature."""
        if len(self.weights) > 1:
            raise AttributeError(
                f"A stack of {len(self.weights)} members has no single temperature; use weights or contributions, "
                "or fit the head alone."
            )
        weight = float(self.weights[0])
        return 1 / weight if weight > 0 else float("inf")

    def _named(self, values: Tensor) -> dict[str, float]:
        return dict(zip(self.names, values.tolist(), strict=True))


def fit_stack(
    members: Array | Sequence[Array] | Mapping[str, Array],
    labels: Array,
    *,
    loss: str = "nll",
    regularise: float = 0.0,
    solver: Literal["exact", "sgd"] = "exact",
    seed: int = 0,
    start: Tensor | None = None,
    reduce: Reduce | None = None,
) -> Stack:
    """Fit the weights of members on hold-out labels [n].

    members     logits as one array [n, classes, members], a sequence of [n, classes] or a mapping name -> [n, classes];
                the head is the last. Logs of probabilities are logits; all must be finite. Nothing of their size is copied.
    loss        "nll", solved exactly; "brier" or "soft_ece", which are not convex: a descent from the optimum of the
                log-loss, never ending worse than there; "soft_ece" lets the hold-out's log-loss rise by at most 1 %.
    regularise  c of the penalty (c / sqrt(n)) / 2 · ||beta||².
    solver      "exact", or "sgd", the paper's: projected SGD from (0, …, 0, 1), batch 128, rate 0.005, 50 epochs,
                shuffled by `seed`.
    start       weights known to be good, a warm start of the exact solver.
    reduce      sums a tensor over all processes, where each passes its own rows; the exact solver only.
    """
    _check_choices(loss, solver, start, reduce)
    check_regularise(regularise)
    names, logits, labels = check_members(members, labels, least_rows=1 if reduce is None else 0)
    if start is not None:
        _check_start(start, len(names))
    holdout = Holdout(((logits, labels),), reduce or in_this_process)
    if solver == "sgd":
        stack = _projected_sgd(holdout, names, loss, regularise, seed)
    else:
        stack = fit_holdout(holdout, names, loss=loss, regularise=regularise, start=start)
    warn_of_doubts(int(holdout.reduce(torch.tensor([len(labels)]))), [stack.weights])
    return stack


def warn_of_doubts(rows: int, weights: Sequence[Tensor]) -> None:
    """Warn of a fit that means little: to few rows, or one that found nothing, all weights [members] of all stacks 0."""
    doubts: list[str] = []
    if rows < FEW_ROWS:
        doubts.append(
            f"The weights are fitted to {rows} rows, where chance decides: use about 1,000, at least {FEW_ROWS}, that trained "
            "nothing."
        )
    if not any(bool(of_stack.any()) for of_stack in weights):
        doubts.append(
            f"All weights are 0, so that every prediction is uniform: on these {rows} rows no logits agree with the labels. "
            "See whether label c means column c of the logits, whether rows and labels are in one order, and whether the "
            "labels are more than one class."
        )
    for doubt in doubts:
        warnings.warn(doubt, UserWarning, stacklevel=level_of_the_caller())


def combine(members: Members, weights: Tensor) -> Tensor:
    """The stack's logits, sum_k weight_k member_k: [n, classes]. Members of weight 0 are not touched."""
    total = torch.zeros_like(members[-1])
    for member, weight in zip(members, weights.tolist(), strict=True):
        if weight != 0:
            total += weight * member
    return total


def fit_holdout(
    holdout: Holdout, names: tuple[str, ...], *, loss: str = "nll", regularise: float = 0.0, start: Tensor | None = None
) -> Stack:
    """`fit_stack`'s exact solver, on rows that were checked before; they may come in several parts."""
    objective = Objective.of(holdout, regularise)
    end = log_loss_optimum(objective, start)
    certified = loss == "nll" and not end.bounded
    if loss != "nll":
        end = local_optimum(objective, LOSSES[loss], end)
    return _described(objective, end, names, loss, regularise, certified)


@unaided()
def _projected_sgd(holdout: Holdout, names: tuple[str, ...], loss: str, regularise: float, seed: int) -> Stack:
    """The paper's solver, on the weights themselves: beta <- max(0, beta - 0.005 · gradient over 128 rows).

    Thousands of small steps: beside three others of their kind on two cores, with two threads each, they took eighty times as
    long as alone.
    """
    objective = Objective.of(holdout, regularise)
    ((members, labels),) = holdout.parts
    weights = torch.zeros(len(names), dtype=torch.float64)
    weights[-1] = 1.0
    generator = torch.Generator().manual_seed(seed)
    steps = 0
    for _ in range(SGD_EPOCHS):
        for batch in torch.randperm(len(labels), generator=generator).split(SGD_BATCH):
            rows = tuple(member[batch.to(member.device)] for member in members), labels[batch.to(labels.device)]
            part = Objective(Holdout((rows,)), len(batch), torch.ones_like(weights), objective.penalty)
            _, gradient = part.loss_and_gradient(LOSSES[loss], weights)
            weights = (weights - SGD_RATE * gradient).clamp(min=0)
            steps += 1
    point = weights * objective.scales
    value, gradient = objective.loss_and_gradient(LOSSES[loss], point)
    end = Minimum(point, value, kkt_residual(point, gradient), steps, bounded=False, hessian=torch.empty(0, 0))
    return _described(objective, end, names, loss, regularise, certified=False)


def _described(
    objective: Objective, end: Minimum, names: tuple[str, ...], loss: str, regularise: float, certified: bool
) -> Stack:
    return Stack(
        weights=end.point / objective.scales,
        names=names,
        loss=loss,
        regularise=regularise,
        objective=end.value,
        nll=end.value - objective.penalty_at(end.point) if loss == "nll" else objective.nll(end.point),
        residual=end.residual,
        certified=certified,
        bounded=end.bounded,
        steps=end.steps,
        early_steps=end.early_steps,
        deviations=objective.deviations,
    )


def default_names(members: int) -> tuple[str, ...]:
    """Names of members that have none: "0", "1", …, "head"."""
    return (*map(str, range(members - 1)), "head")


def check_members(
    members: Array | Sequence[Array] | Mapping[str, Array], labels: Array, least_rows: int = 1
) -> tuple[tuple[str, ...], tuple[Tensor, ...], Tensor]:
    """Names, logits and labels of members in any of their three forms, each checked."""
    if isinstance(members, Mapping):
        names, given = tuple(members), list(members.values())
    else:
        if isinstance(members, Array):
            stacked = as_tensor(members, "members")
            if stacked.ndim != 3:
                raise ValueError(
                    f"members have shape {list(stacked.shape)}; expected [n, classes, members]. "
                    "For the head alone pass logits[:, :, None] or [logits]."
                )
            given = list(stacked.unbind(dim=2))
        else:
            given = list(members)
        names = default_names(len(given))
    if not given:
        raise ValueError("There are no members; expected at least the head's logits [n, classes].")
    logits = tuple(
        check_form(member, f'logits of member "{name}"', least_rows).detach()
        for name, member in zip(names, given, strict=True)
    )
    shape = logits[-1].shape
    for name, member in zip(names, logits, strict=True):
        if member.shape != shape:
            raise ValueError(
                f'Member "{name}" has shape {list(member.shape)}, but the head "{names[-1]}" has {list(shape)}; '
                "all members need the same rows and classes."
            )
        check_finite(member, f'logits of member "{name}"')
        warn_if_probabilities(member, f'logits of member "{name}"')
    return names, logits, check_labels(labels, *shape)


def _check_choices(loss: str, solver: str, start: Tensor | None, reduce: Reduce | None) -> None:
    find_loss(loss)
    if solver not in SOLVERS:
        raise ValueError(f'Unknown solver "{solver}". Solvers: {", ".join(SOLVERS)}.')
    if solver == "sgd" and (start is not None or reduce is not None):
        raise ValueError('solver="sgd" takes neither start nor reduce; use solver="exact".')


def check_regularise(regularise: float) -> None:
    if not 0 <= regularise < math.inf:
        raise ValueError(f"regularise is {regularise}; expected a number >= 0 (0: no penalty).")


def _check_start(start: Tensor, members: int) -> None:
    if start.shape != (members,) or not bool((start.isfinite() & (start >= 0)).all()):
        raise ValueError(f"start is {start.tolist()}; expected {members} finite weights >= 0, one for each member.")
