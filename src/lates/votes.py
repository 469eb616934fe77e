"""The weights of all members of all draws: one stack for a plain network, the log-loss of the mean for several draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from lates.mixture import MeanFit, fit_pooled, refine_mean
from lates.sampling import Draws, mean_log_probability
from lates.settings import Settings
from lates.stack import Stack, fit_stack

Members = Mapping[str, Tensor]
"""name -> logits [n, classes], the head last"""


@dataclass(frozen=True)
class Fit:
    """What the fit found on the hold-out: its log-loss before, with temperature scaling, and after."""

    loss: str
    rows: int
    classes: int
    nll_network: float
    nll_temperature: float
    nll: float
    certified: bool
    bounded: bool


@dataclass(frozen=True, eq=False)
class Votes:
    """Per network its weights and its members' deviations [members], float64, and what is known of the fit."""

    weights: tuple[Tensor, ...]
    deviations: tuple[Tensor, ...]
    fit: Fit


def fit_votes(members: Sequence[Members], labels: Tensor, draws: Draws, loss: str, settings: Settings) -> Votes:
    """Fit the weights on the hold-out, given each draw's members. Samples of one network share their weights.

    Several draws start from convex fits (MC dropout: all samples' rows pooled; ensembles: each network by itself), which
    leave the mean underconfident, and then lower the log-loss of the mean itself; so does their temperature.
    """
    if len(members) == 1:
        stack = fit_stack(members[0], labels, loss=loss, regularise=settings.regularise, solver=settings.solver)
        weights, deviations, nll, certified = (stack.weights,), (stack.deviations,), stack.nll, stack.certified
        bounded = stack.bounded
        temperature = fit_stack(_heads(members)[0], labels, regularise=settings.regularise).nll
    elif loss != "nll":
        raise ValueError(f'loss="{loss}" is for single networks; MC dropout and ensembles are fitted to loss="nll".')
    else:
        starts, mean = _fit_mean(members, labels, draws, settings)
        weights, deviations, nll, certified = mean.weights, tuple(start.deviations for start in starts), mean.nll, False
        bounded = any(start.bounded for start in starts)
        temperature = _fit_mean(_heads(members), labels, draws, settings)[1].nll
    heads = [list(draw.values())[-1].double() for draw in members]
    network = float(functional.cross_entropy(mean_log_probability(heads), labels.to(heads[0].device)))
    fit = Fit(loss, len(labels), heads[0].shape[1], network, temperature, nll, certified, bounded)
    return Votes(weights, deviations, fit)


def _fit_mean(
    members: Sequence[Members], labels: Tensor, draws: Draws, settings: Settings
) -> tuple[list[Stack], MeanFit]:
    logits = [tuple(draw.values()) for draw in members]
    shared = len(draws.networks) == 1
    if shared:
        starts = [fit_pooled(logits, labels, regularise=settings.regularise)]
    else:
        starts = [fit_stack(draw, labels, regularise=settings.regularise) for draw in members]
    begin = [start.weights for start in starts]
    return starts, refine_mean(logits, labels, begin, shared=shared, regularise=settings.regularise)


def _heads(members: Sequence[Members]) -> list[Members]:
    """Each draw reduced to its head: what temperature scaling sees."""
    return [{name: draw[name] for name in list(draw)[-1:]} for draw in members]
