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

Of several samples s the prediction is the mean of softmax(R_s beta_s); MC dropout's samples share their weights, an ensemble's
networks have their own. Weights fitted to each network alone leave that mean underconfident, because averaging flattens. So
they only start a descent on the log-loss of the mean itself, which is not convex; nor are the Brier score and the soft ECE.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lates.runtime import on_one_core
from lates.settings import Settings
from lates.stack.losses import LOSSES, NLL, Loss, find_loss
from lates.stack.members import MemberRows
from lates.stack.newton import TOLERANCE, Minimum, descend, kkt_residual
from lates.stack.objective import Objective, log_loss, penalised_loss
from lates.stack.record import Stack, member_names
from lates.stack.safeguards import check_fit, check_spread, without_outliers

NLL_RISE = 0.01  # relative: as much as the soft ECE may raise the log-loss
SGD_BATCH, SGD_RATE, SGD_EPOCHS = 128, 0.005, 50


def check_loss(loss: str, several: bool = False) -> None:
    """Refuse unknown losses, and for the mean of several samples all but the log-loss."""
    find_loss(loss)
    if several and loss != "nll":
        raise ValueError(f'loss="{loss}" is for single networks; MC dropout and ensembles are fitted to loss="nll".')


def fit_weights(members: MemberRows, loss: str, settings: Settings, seed: int = 0) -> Stack:
    """As `fit_stack`, for members that were checked before, of one sample or of several, whose mean is the prediction."""
    check_loss(loss, several=len(members.samples) > 1)
    if settings.prior > 0:
        members = without_outliers(members)
    return check_fit(fit_optimum(members, loss, settings, seed), members)


def fit_optimum(members: MemberRows, loss: str, settings: Settings, seed: int = 0) -> Stack:
    """As `fit_weights`, without safeguards."""
    objectives, heads = Objective.of_networks(members, settings), members.heads()
    names, deviations = member_names(members.names), torch.cat([each.deviations for each in objectives])
    check_spread(names, deviations)
    of_heads, initial = [each.of_head() for each in objectives], heads.initial_weights
    temperature = _minimise(heads, of_heads, NLL, initial)
    if settings.solver == "sgd" and len(members.samples) == 1:
        # on one core: in thousands of small steps several threads would only wait for one another
        end = on_one_core(_projected_sgd, objectives[0], LOSSES[loss], seed, device=members.device)
    elif loss == "nll" and heads.names == members.names:
        end = temperature
    else:
        end = _minimise(members, objectives, LOSSES[loss], members.heads_alone(temperature.point))
    return Stack(
        weights=end.point,
        names=names,
        deviations=deviations,
        loss=loss,
        rows=members.rows,
        classes=members.classes,
        nll=_log_loss(members, objectives, end.point, end.value if loss == "nll" else math.nan),
        nll_network=_log_loss(heads, of_heads, initial, temperature.start),
        nll_temperature=_log_loss(heads, of_heads, temperature.point, temperature.value),
        temperature_weights=tuple(temperature.point.tolist()),
        certified=len(members.samples) == 1 and loss == "nll" and not end.unbounded and end.residual <= TOLERANCE,
        unbounded=end.unbounded,
        prior=float(settings.prior),
        regularise=float(settings.regularise),
        objective=end.value,
        residual=end.residual,
        steps=end.steps,
    )


def _log_loss(members: MemberRows, objectives: Sequence[Objective], weights: Tensor, value: float) -> float:
    """The log-loss of the prediction. Of one sample the objective's value less the prior is that too, which saves a pass over
    the rows, up to a sixth of a fit; beside a large prior it would lack digits."""
    if len(members.samples) == 1 and not math.isnan(value):
        prior = objectives[0].prior
        added = prior.expand(weights).value
        if abs(added) < 1:
            return (value - added) / (1 + prior.errors)
    return log_loss(members, weights)


def _minimise(members: MemberRows, objectives: Sequence[Objective], loss: Loss, start: Tensor) -> Minimum:
    """From these weights to the minimum of each network's own log-loss and, where that is not the loss of the prediction, on
    to a local minimum of that: never above where the second descent began, nor, of several samples, above the start."""
    parts = zip(objectives, members.of_networks(start), strict=True)
    convex = [objective.minimise(part) for objective, part in parts]
    several = len(members.samples) > 1
    if loss is NLL and not several:
        return convex[0]
    best_apart, scales = torch.cat([end.point for end in convex]), torch.cat([each.scales for each in objectives])
    highest = (1 + NLL_RISE) * log_loss(members, best_apart) if loss.name == "soft_ece" else math.inf

    def value_and_gradient(scaled: Tensor) -> tuple[float, Tensor]:
        weights = scaled / scales
        if highest < math.inf and log_loss(members, weights) > highest:
            return math.inf, torch.zeros_like(weights)
        value, gradient = penalised_loss(members, objectives, loss, weights)
        return value, gradient / scales

    first = scales * best_apart
    if several:
        first = min(first, scales * start, key=lambda scaled: value_and_gradient(scaled)[0])
    end = descend(value_and_gradient, first, first.clamp(min=objectives[0].largest_weight))
    steps, unbounded = sum(each.steps for each in convex), any(each.unbounded for each in convex)
    return replace(end, point=end.point / scales, unbounded=end.unbounded or unbounded, steps=steps + end.steps)


def _projected_sgd(objective: Objective, loss: Loss, seed: int) -> Minimum:
    """The paper's solver: beta <- max(0, beta - 0.005 · gradient over 128 rows)."""
    members, weights, steps = objective.members, objective.members.initial_weights, 0
    generator = torch.Generator().manual_seed(seed)
    for _ in range(SGD_EPOCHS):
        for places in torch.randperm(len(members.labels), generator=generator).split(SGD_BATCH):
            batch = members.select(places)
            of_batch = replace(objective, members=batch, pooled_rows=len(places))
            weights = (weights - SGD_RATE * penalised_loss(batch, [of_batch], loss, weights)[1]).clamp(min=0)
            steps += 1
    value, gradient = penalised_loss(members, [objective], loss, weights)
    residual = kkt_residual(weights * objective.scales, gradient / objective.scales)
    return Minimum(weights, value, residual, steps, unbounded=False)
