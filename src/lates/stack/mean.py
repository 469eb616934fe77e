"""The weights of a network, of the samples of MC dropout, or of an ensemble: what the algorithm fits on the hold-out.

One draw is an ordinary stack. For several draws s the prediction is the mean of softmax(R_s beta_s); the samples of one
network share their weights. Weights fitted to each network alone leave that mean underconfident, because averaging
flattens; so they only start a descent on the log-loss of the mean itself,

    F = mean_i -log( (1/S) sum_s p_sy ),    log p_sy = -logsumexp_c (e_s beta_s)_c    (e: excess over the label),
    dF/dbeta_s = mean_i r_is E_{p_is}[e_s],     r_is = p_sy / sum_t p_ty,

which is not convex. To it come the means over networks of prior and penalty.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from lates.runtime import check_members
from lates.settings import Settings
from lates.stack.doubts import Outcomes, ordinary_rows, settle
from lates.stack.holdout import Holdout, Members, Reduce, combined, excess_chunks, in_this_process, rows_per_chunk
from lates.stack.losses import find_loss
from lates.stack.newton import descend
from lates.stack.objective import Objective, best_stack, best_temperature
from lates.stack.record import Stack, member_names
from lates.stack.stack import fit_stack

Draw = Mapping[str, Tensor]
"""The members of one draw: name -> logits [n, classes], the head last."""


def fit_members(
    draws: Sequence[Draw],
    labels: Tensor,
    samples: int,
    loss: str,
    settings: Settings,
    seed: int = 0,
    reduce: Reduce | None = None,
    passes: int = 1,
) -> Stack:
    """Fit the weights of all members on hold-out labels [n]; `samples` successive draws are of one network.

    `reduce` sums a tensor over all processes, where each passes its shard of the rows; the paper's SGD is for one process.
    `passes` is how many rows each input has.
    """
    check_loss(loss, several=len(draws) > 1)
    prior, regularise = float(settings.prior), float(settings.regularise)
    if len(draws) == 1:
        sgd = settings.solver == "sgd"
        return fit_stack(
            draws[0], labels, loss=loss, prior=prior, regularise=regularise, solver=settings.solver, seed=seed,
            reduce=None if sgd else reduce, passes=passes,
        )  # fmt: skip
    labels = _check_draws(draws, labels, reduce)
    reduce = reduce or in_this_process
    names, logits = [tuple(draw) for draw in draws], [tuple(draw.values()) for draw in draws]
    if prior > 0 and (kept := ordinary_rows(logits, names, labels, reduce, passes)) is not None:
        logits = [tuple(member[kept.to(member.device)] for member in members) for members in logits]
        labels = labels[kept.to(labels.device)]
    fit = partial(
        _fit_mean,
        labels=labels,
        samples=samples,
        regularise=regularise,
        prior=prior,
        reduce=reduce,
        passes=passes,
    )
    heads = [members[-1:] for members in logits]
    temperature = fit(heads, [own[-1:] for own in names])
    stack = fit(logits, names, rival=temperature)
    return settle(stack, logits, labels, samples, reduce, passes)


def check_loss(loss: str, several: bool) -> None:
    """Refuse unknown losses, and for the mean of several draws all but the log-loss."""
    find_loss(loss)
    if several and loss != "nll":
        raise ValueError(f'loss="{loss}" is for single networks; MC dropout and ensembles are fitted to loss="nll".')


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


def _check_draws(draws: Sequence[Draw], labels: Tensor, reduce: Reduce | None) -> Tensor:
    """The labels, if they and all logits are sound; draws need the same rows and classes."""
    classes = [list(draw.values())[-1].shape[-1] for draw in draws]
    if len(set(classes)) > 1:
        raise ValueError(f"The networks have {', '.join(map(str, classes))} classes; they need the same.")
    checked = [check_members(draw, labels, least_rows=0 if reduce else 1) for draw in draws]
    return checked[0][2]
