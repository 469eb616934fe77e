"""The weights of MC dropout's samples or of an ensemble.

For several draws s the prediction is the mean of softmax(R_s beta_s); the samples of one network share their weights.
Weights fitted to each network alone leave that mean underconfident, because averaging flattens; so they only start a
descent on the log-loss of the mean itself,

    F = mean_i -log( (1/S) sum_s p_sy ),    log p_sy = -logsumexp_c (e_s beta_s)_c    (e: excess over the label),
    dF/dbeta_s = mean_i r_is E_{p_is}[e_s],     r_is = p_sy / sum_t p_ty,

which is not convex. To it come the means over networks of prior and penalty.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lates.settings import Settings
from lates.stack.members import Chunk, MemberRows
from lates.stack.newton import descend
from lates.stack.objective import Objective, best_stack, best_temperature
from lates.stack.record import Stack
from lates.stack.safeguards import PredictionCounts


def fit_mean(members: MemberRows, settings: Settings) -> Stack:
    """Each network's convex fit, to the rows of all its draws, then the log-loss of the mean, from there.

    The descent starts from temperature scaling, the same fit of the heads alone, where that is better, and that one from the
    networks as they are: the stack never ends above temperature scaling, nor that above the networks.
    """
    heads_alone = all(len(names) == 1 for names in members.names)
    temperature = None if heads_alone else fit_mean(members.heads(), settings)
    objectives = [Objective.of(network, settings) for network in members.networks()]
    starts = [best_stack(objective, best_temperature(objective)) for objective in objectives]
    if settings.prior > 0:
        objectives = _with_common_errors(objectives, members)
    scales = torch.cat([objective.scales for objective in objectives])
    sizes = [len(names) for names in members.names]

    def value_and_gradient(point: Tensor) -> tuple[float, Tensor]:
        value, gradient = mean_log_loss(members, point / scales)
        points = zip(objectives, point.split(sizes), strict=True)
        penalties, slopes = zip(*(objective.penalties(part) for objective, part in points), strict=True)
        return value + sum(penalties) / len(sizes), gradient / scales + torch.cat(slopes) / len(sizes)

    def nll(point: Tensor) -> float:
        return mean_log_loss(members, point / scales)[0]

    heads = members.head_places
    without_probes = torch.zeros_like(scales)
    without_probes[heads] = scales[heads] * (1.0 if temperature is None else temperature.weights)
    convex = torch.cat([start.point for start in starts])
    first = min(convex, without_probes, key=lambda point: value_and_gradient(point)[0])
    end = descend(value_and_gradient, first, objectives[0].cap(first))
    end = replace(end, unbounded=any(start.unbounded for start in starts))
    reached, weights = nll(end.point), tuple((end.point / scales).tolist())
    return Stack.of(
        members,
        torch.cat([objective.deviations for objective in objectives]),
        end,
        settings,
        nll=reached,
        nll_network=nll(without_probes) if temperature is None else temperature.nll_network,
        nll_temperature=reached if temperature is None else temperature.nll,
        temperature_weights=weights if temperature is None else temperature.temperature_weights,
    )


def _with_common_errors(objectives: Sequence[Objective], members: MemberRows) -> list[Objective]:
    """An error is assumed for all networks if their mean, as they are, makes none."""
    before = PredictionCounts.of(members.heads(), torch.ones(len(members.names), dtype=torch.float64))
    perfect = before.right == before.rows and members.classes > 1
    errors = 1 / members.inputs() if perfect else 0.0
    return [replace(objective, prior=replace(objective.prior, errors=errors)) for objective in objectives]


def mean_log_loss(members: MemberRows, weights: Tensor) -> tuple[float, Tensor]:
    """The log-loss of the mean prediction, and its gradient in the weights of all networks; in one pass over the rows."""
    vectors, samples = members.split(weights), members.samples

    def value_and_gradient(chunks: list[Chunk]) -> Tensor:
        log_label, means = [], []
        for chunk, vector in zip(chunks, vectors, strict=True):
            logits = chunk.logits(vector)
            log_normaliser = logits.logsumexp(dim=1, keepdim=True)
            log_label.append(-log_normaliser[:, 0])
            means.append((chunk.excess * (logits - log_normaliser).exp_()).sum(dim=2))
        scores = torch.stack(log_label)
        value = (math.log(len(chunks)) - scores.logsumexp(dim=0)).sum()
        responsibilities = scores.softmax(dim=0)
        of_draws = [mean @ responsibility for mean, responsibility in zip(means, responsibilities, strict=True)]
        of_networks = [torch.stack(of_draws[i : i + samples]).sum(0) for i in range(0, len(chunks), samples)]
        return torch.cat([value[None], *of_networks])

    sums = members.sum_jointly(value_and_gradient) / members.rows()
    return float(sums[0]), sums[1:]
