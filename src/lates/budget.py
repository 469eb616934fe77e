"""Spend a budget of parameters where the hold-out gains most.

A probe cut to r directions of its logits costs r (width + classes) + classes parameters, a dense one width · classes +
classes. Few blocks, well fed, beat many starved ones, so the shares are not fixed beforehand. All probes start dense; in
each round the stack is fitted on one half of the hold-out, and on the other half every direction j of every block k, with
logits z_kj and weight beta_k, is charged what the log-loss would rise without it, to second order,

    rise_kj = -beta_k mean_i (p_i - y_i)·z_ikj + (beta_k² / 2) mean_i Var_{c ~ p_i}(z_ikjc),

halves taken in turn. The tails of directions with the least rise per parameter go, a part of the excess at a time, the
stack is fitted anew, and so on until the rest fits. The outcome competes, by cross-validated log-loss, with the two simple
rules: an equal share for each block, and the last blocks alone.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lates.checks import level_of_the_caller
from lates.features import Features
from lates.holdout import Holdout
from lates.linear import Probe, TrainedProbe, full_precision
from lates.settings import DEFAULT, Settings
from lates.stack import combine, fit_holdout

KEEP_PER_ROUND = 0.7
"""A round keeps this share of the cost, so that weights can follow."""
SEARCHED_NUMBERS, SEARCHED_ROWS = 4_000_000, 1_000
"""Rows times classes of the hold-out that the search looks at, at most; but so many rows in any case. With 100 of them and 400
classes its plans had two to four times the log-loss on test rows that 1,000 led to; with more than these, hardly less."""

Ranks = dict[str, int]
"""block -> how many directions of its logits are kept; as many as classes: dense; 0: no probe."""


def fit_budget(
    trained: Mapping[str, TrainedProbe],
    holdout: Features,
    budget: float | None,
    *,
    settings: Settings = DEFAULT,
) -> dict[str, Probe]:
    """The probes to deploy: together at most `budget` times the network's parameters (None: no cap, all of them dense)."""
    check_budget(budget)
    dense = {name: probe.probe for name, probe in trained.items()}
    if budget is None or sum(probe.parameters for probe in dense.values()) <= budget * holdout.parameters:
        return dense
    with full_precision(next(iter(dense.values())).bias.device):
        return _cut_all(trained, choose_ranks(trained, holdout, int(budget * holdout.parameters), settings))


def check_budget(budget: float | None) -> None:
    if budget is not None and not budget >= 0:
        raise ValueError(
            f"budget={budget}: expected a share of the network's parameters, such as 0.01, or None for no cap."
        )


def choose_ranks(
    trained: Mapping[str, TrainedProbe], holdout: Features, limit: int, settings: Settings = DEFAULT
) -> Ranks:
    """The best plan, by cross-validated log-loss, that costs at most `limit` parameters.

    Where several processes hold the rows, all see the rows that the search looks at, and the first decides.
    """
    costs = {name: Cost(probe.probe.down.shape[1], len(probe.mean_logits)) for name, probe in trained.items()}
    smallest = min(cost.of(1) for cost in costs.values())
    plans = [equal_share(costs, limit)]
    if settings.allocation == "gain" and limit >= smallest and holdout.all_rows > 1:
        search = Search.of(trained, holdout)
        plans = sorted([prune(search, costs, limit), *plans, last_alone(costs, limit)], key=search.cross_validated)
    plan = holdout.team.gather(plans[0])[0]
    if not any(plan.values()):
        equally = settings.allocation == "equal"
        share = f" ({limit // len(costs)} for each block)" if equally else ""
        needed = smallest * len(costs) if equally else max(limit, smallest)
        reason, more = f"the smallest probe needs {smallest}", ""
        if not equally and limit >= smallest:
            reason = "the hold-out gains by no probe of that size"
            more = f"take more hold-out rows than {holdout.all_rows}, "
        warnings.warn(
            f"The budget allows {limit} parameters{share}; {reason}. No block gets a probe: this is temperature scaling. "
            f"For probes, {more}raise budget= above {needed / holdout.parameters:.2g} or lift it with None.",
            UserWarning,
            stacklevel=level_of_the_caller(),
        )
    return plan


@dataclass(frozen=True)
class Cost:
    """Parameters of a probe of some rank."""

    width: int
    classes: int

    def of(self, rank: int) -> int:
        low_rank, dense = rank * (self.width + self.classes), self.width * self.classes
        return (min(low_rank, dense) + self.classes) if rank else 0

    def affordable(self, limit: int) -> int:
        """The largest rank within `limit` parameters; as many as classes: dense."""
        if self.of(self.classes) <= limit:
            return self.classes
        return max(limit - self.classes, 0) // (self.width + self.classes)


def equal_share(costs: Mapping[str, Cost], limit: int) -> Ranks:
    return {name: cost.affordable(limit // len(costs)) for name, cost in costs.items()}


def last_alone(costs: Mapping[str, Cost], limit: int) -> Ranks:
    """The last block as rich as the budget allows, then the one before it with what is left, and so on."""
    ranks: Ranks = {}
    for name, cost in reversed(list(costs.items())):
        ranks[name] = cost.affordable(limit)
        limit -= cost.of(ranks[name])
    return {name: ranks[name] for name in costs}


def prune(search: "Search", costs: Mapping[str, Cost], limit: int) -> Ranks:
    """Drop the last directions of blocks, those worth least per parameter first, until the rest costs at most `limit`.

    Only last directions: were each judged by itself, the search would pick those that happen to please the hold-out.
    """
    ranks = {name: cost.classes for name, cost in costs.items()}
    while (spent := _total(costs, ranks)) > limit:
        rises = search.rises(ranks)
        goal = max(limit, int(KEEP_PER_ROUND * spent))
        while spent > goal:
            tails = [_cheapest_tail(name, ranks[name], rises[name], costs[name]) for name in ranks if ranks[name]]
            _, name, rank = min(tails)
            spent += costs[name].of(rank) - costs[name].of(ranks[name])
            ranks[name] = rank
    return ranks


def _cheapest_tail(name: str, rank: int, rises: Sequence[float], cost: Cost) -> tuple[float, str, int]:
    """(rise per parameter saved, block, rank after) for the tail of directions that is the least loss per parameter."""
    rise, best = 0.0, (float("inf"), name, 0)
    for shorter in range(rank - 1, -1, -1):
        rise += rises[shorter]
        saved = cost.of(rank) - cost.of(shorter)
        if saved > 0:
            best = min(best, (rise / saved, name, shorter))
    return best


@dataclass(frozen=True, eq=False)
class Search:
    """The hold-out as the search sees it: per block the logits in the probe's basis, [n, directions], and the head's.

    Rows are shuffled, with a seed of their own, so that the halves are alike however the loader orders its classes. Views of
    one row, which stand one pass apart unless the loader has an order of its own in each, are in the same half: even positions
    or odd ones.
    """

    rotated: dict[str, Tensor]
    bases: dict[str, Tensor]
    means: dict[str, Tensor]
    head: Tensor
    labels: Tensor

    @staticmethod
    def of(trained: Mapping[str, TrainedProbe], holdout: Features) -> "Search":
        device = next(iter(trained.values())).basis.device
        passes = holdout.passes if holdout.all_rows >= 2 * holdout.passes else 1
        once = holdout.all_rows // passes
        order = torch.randperm(once, generator=torch.Generator().manual_seed(0))
        order = order[: max(SEARCHED_NUMBERS // holdout.classes, SEARCHED_ROWS) // passes]
        order = order if passes == 1 else order[: len(order) // 2 * 2]
        rank = torch.full((once,), -1).scatter_(0, order, torch.arange(len(order)))[holdout.places % once]
        number_of_pass = holdout.places // once
        here = ((rank >= 0) & (number_of_pass < passes)).nonzero()[:, 0]
        position = 2 * (rank // 2 * passes + number_of_pass) + rank % 2
        position = position[here].to(device)

        def shuffled(values: Tensor, of_rows: Callable[[Tensor], Tensor]) -> Tensor:
            """What is made of the rows looked at, those here in their positions, those elsewhere added by the others."""
            made = of_rows(values[here.to(values.device)].to(device))
            return holdout.team.sum(made.new_zeros(passes * len(order), *made.shape[1:]).index_copy_(0, position, made))

        def rotated(probe: TrainedProbe) -> Callable[[Tensor], Tensor]:
            return lambda features: (probe.probe.logits(features) - probe.mean_logits) @ probe.basis

        return Search(
            {name: shuffled(holdout.blocks[name], rotated(probe)) for name, probe in trained.items()},
            {name: probe.basis for name, probe in trained.items()},
            {name: probe.mean_logits for name, probe in trained.items()},
            shuffled(holdout.logits, torch.clone),
            shuffled(holdout.labels, torch.clone),
        )

    def cross_validated(self, ranks: Ranks) -> float:
        """Log-loss on each half of the stack fitted on the other, averaged."""
        members = self._members(ranks)
        return sum(_nll(self._stacked(members, fold), self.labels[1 - fold :: 2]) for fold in (0, 1)) / 2

    def rises(self, ranks: Ranks) -> dict[str, list[float]]:
        """What the log-loss of each half would rise without each kept direction, the stack fitted on the other half."""
        members = self._members(ranks)
        total = {name: torch.zeros(rank, dtype=torch.float64) for name, rank in ranks.items()}
        for fold in (0, 1):
            weights = self._weights(members, fold)
            test = slice(1 - fold, None, 2)
            probabilities = combine([member[test] for member in members.values()], weights).softmax(1)
            error = probabilities.clone()
            labels = self.labels[test]
            error[torch.arange(len(labels), device=labels.device), labels] -= 1
            for (name, _), weight in zip(members.items(), weights.tolist(), strict=True):
                if name in ranks and weight > 0:
                    basis, amount = self.bases[name][:, : ranks[name]], self.rotated[name][test, : ranks[name]]
                    first = ((error @ basis) * amount).double().mean(0)
                    variance = probabilities @ basis.square() - (probabilities @ basis).square()
                    second = (amount.square() * variance).double().mean(0)
                    total[name][: len(first)] += (weight**2 / 2 * second - weight * first).cpu()
        return {name: rise.tolist() for name, rise in total.items()}

    def _members(self, ranks: Ranks) -> dict[str, Tensor]:
        members = {
            name: self.rotated[name][:, :rank] @ self.bases[name][:, :rank].T + self.means[name]
            for name, rank in ranks.items()
            if rank
        }
        return {**members, "": self.head}

    def _weights(self, members: Mapping[str, Tensor], fold: int) -> Tensor:
        train = tuple(member[fold::2] for member in members.values())
        return fit_holdout(Holdout(((train, self.labels[fold::2]),)), tuple(members)).weights

    def _stacked(self, members: Mapping[str, Tensor], fold: int) -> Tensor:
        return combine([member[1 - fold :: 2] for member in members.values()], self._weights(members, fold))


def _cut_all(trained: Mapping[str, TrainedProbe], ranks: Ranks) -> dict[str, Probe]:
    """The probes at their ranks; dense where that is no dearer."""
    probes: dict[str, Probe] = {}
    for name, rank in ranks.items():
        whole = trained[name].probe
        if rank:
            cut = trained[name].cut(rank)
            probes[name] = whole if whole.parameters <= cut.parameters else cut
    return probes


def _total(costs: Mapping[str, Cost], ranks: Ranks) -> int:
    return sum(costs[name].of(rank) for name, rank in ranks.items())


def _nll(logits: Tensor, labels: Tensor) -> float:
    return float(torch.nn.functional.cross_entropy(logits.double(), labels))
