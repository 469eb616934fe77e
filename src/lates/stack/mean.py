"""The weights of MC dropout's samples or of an ensemble.

For several draws s the prediction is the mean of softmax(R_s beta_s); the samples of one
network share their weights. Weights fitted to each network alone leave that mean underconfident, because averaging
flattens; so they only start a descent on the log-loss of the mean itself,

    F = mean_i -log( (1/S) sum_s p_sy ),    log p_sy = -logsumexp_c (e_s beta_s)_c    (e: excess over the label),
    dF/dbeta_s = mean_i r_is E_{p_is}[e_s],     r_is = p_sy / sum_t p_ty,

which is not convex. To it come the means over networks of prior and penalty.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from lates.stack.doubts import Outcomes
from lates.stack.holdout import Holdout, Members, Reduce, combined, excess_chunks, in_this_process, rows_per_chunk
from lates.stack.newton import descend
from lates.stack.objective import Objective, best_stack, best_temperature
from lates.stack.record import Stack, member_names


def fit_mean(
    logits: Sequence[Members],
    names: Sequence[tuple[str, ...]],
    labels: Tensor,
    samples: int,
    regularise: float,
    prior: float,
    reduce: Reduce,
    passes: int,
) -> Stack:
    """Fit the weights of several draws' members, of which `samples` successive ones are of one network, to their mean."""
    options = {"regularise": regularise, "prior": prior, "reduce": reduce, "passes": passes}
    heads, names_of_heads = [members[-1:] for members in logits], [of_draw[-1:] for of_draw in names]
    temperature = _fit_mean(heads, names_of_heads, labels, samples, **options)
    return _fit_mean(logits, names, labels, samples, **options, rival=temperature)


def _fit_mean(
    logits: Sequence[Members],
    names: Sequence[tuple[str, ...]],
    labels: Tensor,
    samples: int,
    regularise: float,
    prior: float,
    reduce: Reduce,
    passes: int,
    rival: Stack | None = None,
) -> Stack:
    """Each network's convex fit, to the rows of all its samples, then the log-loss of the mean, from there.

    The descent starts from the `rival`, temperature scaling (default: the networks as they are), where that is better, so
    that the stack never ends above temperature scaling, nor that above the networks. Prior and penalty are the means over
    the networks'.
    """
    parts = [(members, labels) for members in logits]
    holdouts = [Holdout(tuple(parts[i : i + samples]), reduce, passes) for i in range(0, len(parts), samples)]
    objectives = [Objective.of(holdout, regularise, prior) for holdout in holdouts]
    starts = [best_stack(objective, best_temperature(objective)) for objective in objectives]
    if prior > 0:
        objectives = _with_common_errors(objectives, logits, labels, reduce)
    sizes, rows = [len(objective.deviations) for objective in objectives], objectives[0].rows // samples
    deviations = torch.cat([objective.deviations for objective in objectives])
    scales = torch.cat([objective.scales for objective in objectives])

    def nll(point: Tensor) -> float:
        return mean_log_loss(logits, labels, (point / scales).split(sizes), reduce)[0]

    def value_and_gradient(point: Tensor) -> tuple[float, Tensor]:
        value, gradient = mean_log_loss(logits, labels, (point / scales).split(sizes), reduce)
        points = zip(objectives, point.split(sizes), strict=True)
        penalties, slopes = zip(*(objective.penalties(own) for objective, own in points), strict=True)
        return value + sum(penalties) / len(sizes), gradient / scales + torch.cat(slopes) / len(sizes)

    heads = torch.tensor(list(accumulate(sizes))) - 1
    without_probes = torch.zeros_like(scales)
    without_probes[heads] = scales[heads] * (1.0 if rival is None else rival.weights)
    convex = torch.cat([start.point for start in starts])
    first = min(convex, without_probes, key=lambda point: value_and_gradient(point)[0])
    end = descend(value_and_gradient, first, objectives[0].cap(first))
    weights, reached = end.point / scales, nll(end.point)
    return Stack(
        weights=weights,
        names=member_names(names[::samples]),
        deviations=deviations,
        loss="nll",
        rows=rows,
        classes=logits[0][-1].shape[1],
        nll=reached,
        nll_network=nll(without_probes) if rival is None else rival.nll_network,
        nll_temperature=reached if rival is None else rival.nll,
        temperature_weights=tuple(weights.tolist()) if rival is None else rival.temperature_weights,
        certified=False,
        unbounded=any(start.unbounded for start in starts),
        prior=prior,
        regularise=regularise,
        objective=end.value,
        residual=end.residual,
        steps=end.steps,
    )


def _with_common_errors(
    objectives: Sequence[Objective], logits: Sequence[Members], labels: Tensor, reduce: Reduce
) -> list[Objective]:
    """An error is assumed for all networks if their mean, as they are, makes none."""
    heads = [members[-1:] for members in logits]
    outcomes = Outcomes.of(heads, labels, [torch.ones(1, dtype=torch.float64)] * len(heads), reduce)
    perfect = outcomes.right == outcomes.rows and len(outcomes.labels) > 1
    errors = 1 / objectives[0].holdout.inputs() if perfect else 0.0
    return [replace(objective, prior=replace(objective.prior, errors=errors)) for objective in objectives]


def mean_log_loss(
    draws: Sequence[Members], labels: Tensor, weights: Sequence[Tensor], reduce: Reduce = in_this_process
) -> tuple[float, Tensor]:
    """The log-loss of the mean prediction, and its gradient in the weights, one vector [members] for each network,
    concatenated; in one pass over the rows."""
    samples = len(draws) // len(weights)
    rows = rows_per_chunk([member for draw in draws for member in draw])
    value, gradients = 0.0, [torch.zeros(len(vector), dtype=torch.float64) for vector in weights]
    for chunks in zip(*(excess_chunks(draw, labels, rows) for draw in draws), strict=True):
        log_label, means = [], []
        for place, chunk in enumerate(chunks):
            logits = combined(chunk, weights[place // samples])
            log_normaliser = logits.logsumexp(dim=1, keepdim=True)
            log_label.append(-log_normaliser[:, 0].cpu())
            means.append((chunk[0] * (logits - log_normaliser).exp_()).sum(dim=2).cpu())
        scores = torch.stack(log_label)
        value += float((math.log(len(draws)) - scores.logsumexp(dim=0)).sum())
        for place, (mean, responsibility) in enumerate(zip(means, scores.softmax(dim=0), strict=True)):
            gradients[place // samples] += mean @ responsibility
    sums = reduce(torch.cat([torch.tensor([len(labels), value], dtype=torch.float64), *gradients]))
    return float(sums[1] / sums[0]), sums[2:] / sums[0]
