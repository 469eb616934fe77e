"""Weights beta >= 0 over member logits: the layer stack softmax(R beta), fitted on the hold-out. One member is temperature
scaling. For the log-loss, with R of shape [n, classes, members] and z = R beta,

    minimise over beta >= 0    mean_i [ logsumexp_c z_ic - z_i,y_i ] + prior(beta) + (lambda / 2) ||beta||^2

is convex and solved exactly by Newton's method, in the scaled variables beta_k s_k, where s_k is the rms of member k's
class-centred logits (its *deviation*), so that a member's scale matters neither for the path nor for the tolerance. The
prior (prior.py) keeps the weights of few rows at the network as it is; lambda = c / sqrt(n), c = `regularise`, is
Proposition 1's. The solver goes from the network as it is to the best temperature, and then on to all members. Every step
lowers the objective:

    objective(stack) <= objective(temperature) <= objective(network).

Without prior and penalty no minimiser exists where some v >= 0 lowers no hold-out margin and raises one (every label right,
say): the loss falls forever along v. The descent then stops where the gradient has vanished, at the latest at
beta_k s_k = 1000, and the result is `unbounded` and not `certified`.

Weights about which the hold-out says nothing stay where they began, at 0 for a probe and 1 for the head: those of members
that are constant in every row, and all if there is one class only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import torch

from lates.runtime import Array, single_threaded
from lates.settings import DEFAULT, Settings
from lates.stack.losses import LOSSES, Loss, find_loss
from lates.stack.mean import fit_mean
from lates.stack.members import MemberRows, Reduce
from lates.stack.newton import Minimum, kkt_residual
from lates.stack.objective import Objective, best_stack, best_temperature, local_optimum
from lates.stack.record import Stack
from lates.stack.safeguards import check_fit, without_outliers

SGD_BATCH, SGD_RATE, SGD_EPOCHS = 128, 0.005, 50


def fit_stack(
    members: Array | Sequence[Array] | Mapping[str, Array],
    labels: Array,
    *,
    loss: str = "nll",
    prior: float = DEFAULT.prior,
    regularise: float = 0.0,
    solver: Literal["exact", "sgd"] = "exact",
    seed: int = 0,
    reduce: Reduce | None = None,
    passes: int = 1,
    row_weights: Array | None = None,
) -> Stack:
    """Fit the weights of members on hold-out labels [n].

    members     logits as one array [n, classes, members], a sequence of [n, classes] or a mapping name -> [n, classes];
                the head is the last. Logs of probabilities are logits; all must be finite. Nothing of their size is copied.
    loss        "nll", solved exactly; "brier" or "soft_ece", which are not convex: a descent from the optimum of the
                log-loss, never ending worse than there; "soft_ece" lets the hold-out's log-loss rise by at most 1 %.
    prior       how strongly few rows keep the weights at the network as it is, in wrong rows (see `Settings`). 0: not at all,
                and neither is a row left out, nor are probes dropped where they make the hold-out's accuracy clearly worse.
    regularise  c of the penalty (c / sqrt(n)) / 2 · ||beta||².
    solver      "exact", or "sgd", the paper's: projected SGD from (0, …, 0, 1), batch 128, rate 0.005, 50 epochs,
                shuffled by `seed`.
    reduce      sums a tensor over all processes, where each passes its shard of the rows; the exact solver only.
    passes      how many rows each input has, such as views of it.
    row_weights how much each row counts in the loss [n], at least 0; only their ratios matter. The exact solver only.
    """
    if row_weights is not None and (solver == "sgd" or reduce is not None):
        raise ValueError(
            'row_weights are for solver="exact" in one process; neither solver="sgd" nor reduce takes them.'
        )
    if solver == "sgd" and reduce is not None:
        raise ValueError('solver="sgd" is for one process and takes no reduce; use solver="exact".')
    settings = replace(DEFAULT, prior=prior, regularise=regularise, solver=solver)
    check_loss(loss)
    rows = MemberRows.of([members], labels, passes=passes, reduce=reduce, row_weights=row_weights)
    return fit_weights(rows, loss, settings, seed)


def check_loss(loss: str, several: bool = False) -> None:
    """Refuse unknown losses, and for the mean of several draws all but the log-loss."""
    find_loss(loss)
    if several and loss != "nll":
        raise ValueError(f'loss="{loss}" is for single networks; MC dropout and ensembles are fitted to loss="nll".')


def fit_weights(members: MemberRows, loss: str, settings: Settings, seed: int = 0) -> Stack:
    """As `fit_stack`, for members that were checked before, of one draw or of several, whose mean is the prediction."""
    check_loss(loss, several=len(members.draws) > 1)
    if settings.prior > 0:
        members = without_outliers(members)
    return check_fit(fit_optimum(members, loss, settings, seed), members)


def fit_optimum(members: MemberRows, loss: str, settings: Settings, seed: int = 0) -> Stack:
    """As `fit_weights`, without safeguards."""
    if len(members.draws) > 1:
        return fit_mean(members, settings)
    objective = Objective.of(members, settings)
    temperature = best_temperature(objective)
    if settings.solver == "sgd":
        end = _projected_sgd(objective, LOSSES[loss], seed)
    else:
        end = best_stack(objective, temperature)
        if loss != "nll":
            end = local_optimum(objective, LOSSES[loss], end)
    return Stack.of(members, objective.deviations, end, temperature.point, loss, settings)


@single_threaded()
def _projected_sgd(objective: Objective, loss: Loss, seed: int) -> Minimum:
    """The paper's solver: beta <- max(0, beta - 0.005 · gradient over 128 rows). In thousands of small steps several threads
    would only wait for one another."""
    members, weights, steps = objective.members, objective.members.networks_alone, 0
    generator = torch.Generator().manual_seed(seed)
    for _ in range(SGD_EPOCHS):
        for batch in torch.randperm(len(members.labels), generator=generator).split(SGD_BATCH):
            _, gradient = replace(objective, members=members.select(batch), rows=len(batch)).loss_and_gradient(
                loss, weights
            )
            weights = (weights - SGD_RATE * gradient).clamp(min=0)
            steps += 1
    value, gradient = objective.loss_and_gradient(loss, weights)
    return Minimum(
        weights, value, kkt_residual(weights * objective.scales, gradient / objective.scales), steps, unbounded=False
    )
