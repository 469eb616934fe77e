"""The weights of MC dropout's samples or of an ensemble.

For several draws s the prediction is the mean of softmax(R_s beta_s); the samples of one network share their weights.
Weights fitted to each network alone leave that mean underconfident, because averaging flattens; so they only start a
descent on the log-loss of the mean itself,

    F = mean_i -log( (1/S) sum_s p_sy ),    log p_sy = -logsumexp_c (e_s beta_s)_c    (e: excess over the label),
    dF/dbeta_s = mean_i r_is E_{p_is}[e_s],     r_is = p_sy / sum_t p_ty,

which is not convex. To it come the means over networks of prior and penalty.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lates.settings import Settings
from lates.stack.members import MemberRows
from lates.stack.newton import Minimum
from lates.stack.objective import Objective, best_stack, best_temperature, descend_scaled, mean_log_loss
from lates.stack.record import Stack
from lates.stack.safeguards import PredictionCounts


def fit_mean(members: MemberRows, settings: Settings) -> Stack:
    """Temperature scaling from the networks as they are, then all members from there: neither ends above its start."""
    objectives = [Objective.of(network, settings) for network in members.networks()]
    heads, of_heads = members.heads(), [objective.of_head() for objective in objectives]
    temperature = _descend(heads, of_heads, heads.networks_alone)
    end = temperature if heads.names == members.names else _descend(members, objectives, temperature.point)
    deviations = torch.cat([objective.deviations for objective in objectives])
    return Stack.of(members, deviations, end, temperature.point, "nll", settings)


def _descend(members: MemberRows, objectives: Sequence[Objective], heads: Tensor) -> Minimum:
    """From each network's convex fit, to the rows of all its draws, or from these weights of the heads where that is better."""
    starts = [best_stack(objective, best_temperature(objective)) for objective in objectives]
    if objectives[0].prior.strength > 0:
        objectives = _with_common_errors(objectives, members)

    def value_and_gradient(weights: Tensor) -> tuple[float, Tensor]:
        value, gradient = mean_log_loss(members, weights)
        parts = weights.split([len(names) for names in members.names])
        penalties, slopes = zip(*(of.penalties(part) for of, part in zip(objectives, parts, strict=True)), strict=True)
        return value + sum(penalties) / len(objectives), gradient + torch.cat(slopes) / len(objectives)

    convex = torch.cat([start.point for start in starts])
    first = min(convex, members.heads_alone(heads), key=lambda weights: value_and_gradient(weights)[0])
    scales = torch.cat([objective.scales for objective in objectives])
    end = descend_scaled(value_and_gradient, first, scales, objectives[0].cap)
    return replace(end, unbounded=any(start.unbounded for start in starts))


def _with_common_errors(objectives: Sequence[Objective], members: MemberRows) -> list[Objective]:
    """An error is assumed for all networks if their mean, as they are, makes none."""
    before = PredictionCounts.of(members, members.networks_alone)
    perfect = before.right == before.rows and members.classes > 1
    errors = 1 / members.inputs if perfect else 0.0
    return [replace(objective, prior=replace(objective.prior, errors=errors)) for objective in objectives]
