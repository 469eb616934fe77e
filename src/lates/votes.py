"""The weights of all members of all draws: one stack for a plain network, the log-loss of the mean for several draws."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from lates.holdout import Holdout, Reduce, in_this_process
from lates.losses import find_loss
from lates.mixture import MeanFit, fit_pooled, mean_log_loss, refine_mean
from lates.sampling import Draws
from lates.settings import Settings
from lates.stack import Stack, fit_holdout, fit_stack, warn_of_doubts

Members = Mapping[str, Tensor]
"""name -> logits [n, classes], the head last"""

Weights = tuple[Tensor, ...]
"""For each network of the draws its weights [members]"""


@dataclass(frozen=True)
class Fit:
    """What the fit found on the hold-out: its log-loss before, with temperature scaling, and after.

    `temperature_weights` is temperature scaling itself, the rival: 1 / temperature, one for each network.
    """

    loss: str
    rows: int
    classes: int
    nll_network: float
    nll_temperature: float
    nll: float
    certified: bool
    bounded: bool
    temperature_weights: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Votes:
    """Per network its weights and its members' deviations [members], float64, and what is known of the fit."""

    weights: Weights
    deviations: Weights
    fit: Fit


def fit_votes(
    members: Sequence[Members],
    labels: Tensor,
    draws: Draws,
    loss: str,
    settings: Settings,
    seed: int = 0,
    reduce: Reduce | None = None,
) -> Votes:
    """Fit the weights on the hold-out, given each draw's members. Samples of one network share their weights.

    Where each process passes its own rows, `reduce` sums a tensor over all processes.
    """
    check_loss(loss, several=len(members) > 1)
    heads = [_head(draw) for draw in members]
    logits = [tuple(draw.values()) for draw in heads]
    if len({head.shape for (head,) in logits}) > 1:
        raise ValueError(
            f"The networks have {', '.join(str(head.shape[1]) for (head,) in logits)} classes; they need the same."
        )
    rows = int((reduce or in_this_process)(torch.tensor([len(labels)])))
    classes = logits[0][0].shape[1]
    network, _ = mean_log_loss(logits, labels, [torch.ones(1, dtype=torch.float64) for _ in logits], reduce)
    if len(members) == 1:
        regularise, solver = settings.regularise, settings.solver
        stack = fit_stack(members[0], labels, loss=loss, regularise=regularise, solver=solver, seed=seed, reduce=reduce)
        scaling = _fit_alone(heads[0], labels, regularise, reduce)
        known = (network, scaling.nll, stack.nll, stack.certified, stack.bounded)
        fit = Fit(loss, rows, classes, *known, _numbers((scaling.weights,)))
        return Votes((stack.weights,), (stack.deviations,), fit)
    alone = tuple(torch.ones(1, dtype=torch.float64) for _ in draws.networks)
    _, scaled = _fit_mean(heads, labels, draws, settings, alone, reduce)
    without_probes = tuple(
        functional.pad(weight, (len(draw) - 1, 0))
        for weight, draw in zip(scaled.weights, members[:: draws.samples], strict=True)
    )
    starts, stacked = _fit_mean(members, labels, draws, settings, without_probes, reduce)
    bounded = any(start.bounded for start in starts)
    known = (network, scaled.nll, stacked.nll, False, bounded)
    fit = Fit(loss, rows, classes, *known, _numbers(scaled.weights))
    warn_of_doubts(rows, stacked.weights)
    return Votes(stacked.weights, tuple(start.deviations for start in starts), fit)


def check_loss(loss: str, several: bool) -> None:
    """Refuse unknown losses, and for the mean of several draws all but the log-loss."""
    find_loss(loss)
    if several and loss != "nll":
        raise ValueError(f'loss="{loss}" is for single networks; MC dropout and ensembles are fitted to loss="nll".')


def _fit_mean(
    members: Sequence[Members],
    labels: Tensor,
    draws: Draws,
    settings: Settings,
    known: Weights,
    reduce: Reduce | None,
) -> tuple[list[Stack], MeanFit]:
    """Convex fits (MC dropout: all samples' rows pooled; ensembles: each network by itself), then the mean's log-loss.

    The convex fits leave the mean underconfident; its own log-loss, not convex, is lowered from there, or from the `known`
    weights where those are better. So the stack never ends above the temperature, nor the temperature above the network.
    """
    logits = [tuple(draw.values()) for draw in members]
    shared, regularise = len(draws.networks) == 1, settings.regularise
    if shared:
        starts = [fit_pooled(logits, labels, regularise=regularise, reduce=reduce)]
    else:
        starts = [_fit_alone(draw, labels, regularise, reduce) for draw in members]
    rows = int((reduce or in_this_process)(torch.tensor([len(labels)])))

    def objective(weights: Weights) -> float:
        penalty = sum(float(weight @ weight) for weight in weights) / len(weights)
        value, _ = mean_log_loss(logits, labels, draws.repeat(weights), reduce)
        return value + regularise / math.sqrt(rows) / 2 * penalty

    best = min((tuple(start.weights for start in starts), known), key=objective)
    return starts, refine_mean(logits, labels, best, shared=shared, regularise=regularise, reduce=reduce)


def _fit_alone(draw: Members, labels: Tensor, regularise: float, reduce: Reduce | None) -> Stack:
    """The log-loss optimum of one draw by itself, a step on the way: what it is made from is checked elsewhere."""
    holdout = Holdout(((tuple(draw.values()), labels),), reduce or in_this_process)
    return fit_holdout(holdout, tuple(draw), regularise=regularise)


def _head(draw: Members) -> Members:
    """A draw reduced to its head: what temperature scaling sees."""
    name = list(draw)[-1]
    return {name: draw[name]}


def _numbers(heads: Weights) -> tuple[float, ...]:
    """Weights [1] of heads that vote alone, as numbers."""
    return tuple(float(weight) for weight in heads)
