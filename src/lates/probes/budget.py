"""Spend a budget of parameters where the hold-out gains most.

A probe cut to r directions of its logits costs r (width + classes) + classes parameters, a dense one width · classes +
classes. A few good probes beat many poor ones, so the shares are not fixed beforehand. All probes start dense; in each
round the stack is fitted on one half of the hold-out, and on the other half every direction j of every block k, with logits
z_kj and weight beta_k, is charged what the log-loss would rise without it, to second order,

    rise_kj = -beta_k mean_i (p_i - y_i)·z_ikj + (beta_k² / 2) mean_i Var_{c ~ p_i}(z_ikjc),

halves taken in turn. The last directions of blocks with the least rise per parameter go, a part of the excess at a time, the
stack is fitted again, and so on until the rest fits. The result competes, by cross-validated log-loss, with two simple
rules: an equal share for each block, and the last blocks alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from lates.network import HEAD, Features, Pooling
from lates.probes.probe import Probe, TrainedProbe, holdout_accuracies
from lates.runtime import check_budget, full_precision, warn_caller
from lates.settings import DEFAULT, Settings
from lates.stack import MemberRows, Objective, combine

NOTABLE_GAIN = 0.01
"""A gain, as a fraction of the log-loss, below which a larger budget is not suggested."""
KEEP_PER_ROUND = 0.7
"""The share of the cost that a round keeps, so that weights can adapt."""
SEARCHED_NUMBERS, SEARCHED_ROWS = 4_000_000, 1_000
"""Rows times classes of the hold-out that the search uses, at most, but at least 1,000 rows. With 100 rows and 400 classes its
plans had two to four times the log-loss on test rows; with more than 1,000, hardly less."""

Ranks = dict[str, int]
"""block -> how many directions of its logits are kept; as many as classes: dense; 0: no probe"""
Curve = list[tuple[float, float]]
"""(parameters added as a fraction of the network's, cross-validated hold-out log-loss): of temperature scaling, of the plan
chosen, of larger ones that the search passed on its way; empty where nothing was searched"""


@dataclass(frozen=True)
class ChosenProbes:
    """The probes of one network to deploy, what other budgets would give, the hold-out accuracy of every dense probe and of
    the head, and how each block becomes the features that its probe reads."""

    probes: dict[str, Probe]
    curve: Curve
    accuracies: dict[str, float]
    poolings: dict[str, Pooling]


def fit_budget(
    trained: Mapping[str, TrainedProbe], holdout: Features, budget: float | str | None, *, settings: Settings = DEFAULT
) -> dict[str, Probe]:
    """The probes to deploy: together at most `budget` times the network's parameters (None: no limit, all of them dense)."""
    return choose_probes(trained, holdout, check_budget(budget), settings).probes


def choose_probes(
    trained: Mapping[str, TrainedProbe], holdout: Features, budget: float | None, settings: Settings
) -> ChosenProbes:
    """As `fit_budget`, with what is known about the probes."""
    accuracies, curve = holdout_accuracies(trained, holdout), []
    probes = {name: probe.probe for name, probe in trained.items()}
    if budget is not None and sum(dense.parameters for dense in probes.values()) > budget * holdout.parameters:
        with full_precision(next(iter(probes.values())).bias.device):
            ranks, curve = choose_ranks(trained, holdout, int(budget * holdout.parameters), settings)
            cut = {name: trained[name].cut(rank) for name, rank in ranks.items() if rank}
        probes = {name: min(probes[name], probe, key=lambda probe: probe.parameters) for name, probe in cut.items()}
        if curve:
            _warn_of_lost_gain(curve, budget)
    if settings.cap is not None:
        probes = {name: _capped(probe, settings.cap, holdout, name) for name, probe in probes.items()}
    return ChosenProbes(probes, curve, accuracies, holdout.poolings)


def _capped(probe: Probe, share: float, holdout: Features, name: str) -> Probe:
    """The probe, whose logits become no larger than on this share of the hold-out rows."""
    here = probe.logits(holdout.blocks[name]).square().mean(1).sqrt()
    sizes = torch.cat(holdout.processes.gather(here.cpu()))
    return replace(probe, cap=sizes.kthvalue(math.ceil(share * len(sizes))).values.to(probe.bias))


def choose_ranks(
    trained: Mapping[str, TrainedProbe], holdout: Features, limit: int, settings: Settings = DEFAULT
) -> tuple[Ranks, Curve]:
    """The best plan, by cross-validated log-loss, that costs at most `limit` parameters, and what others would give.

    Where rows are sharded over processes, all see the rows that the search uses, and rank 0 decides.
    """
    costs = {name: Cost(probe.probe.down.shape[1], len(probe.mean_logits)) for name, probe in trained.items()}
    smallest = min(cost.parameters(1) for cost in costs.values())
    plan, curve = equal_share(costs, limit), []
    if settings.allocation == "gain" and limit >= smallest and holdout.all_rows > holdout.passes:
        search = Search.of(trained, holdout, settings)
        pruned, larger = prune(search, costs, limit)
        losses = [(search.cross_validated(ranks), ranks) for ranks in (pruned, plan, last_alone(costs, limit))]
        loss, plan = min(losses, key=itemgetter(0))
        head_alone = search.cross_validated(dict.fromkeys(costs, 0))
        curve = [(0, head_alone), (_total(costs, plan), loss), *reversed(larger)]
        curve = [(cost / holdout.parameters, loss) for cost, loss in curve]
    plan, curve = holdout.processes.gather((plan, curve))[0]
    if not any(plan.values()):
        _warn_of_no_probes(limit, smallest, len(costs), holdout, settings)
    return plan, curve


def _total(costs: Mapping[str, "Cost"], ranks: Ranks) -> int:
    return sum(costs[name].parameters(rank) for name, rank in ranks.items())


def _warn_of_lost_gain(curve: Curve, budget: float) -> None:
    """Where the budget leaves most of a gain that is worth having."""
    (_, head_alone), (_, chosen), *larger = curve
    needed, best = min(larger, key=itemgetter(1))
    if head_alone - best > NOTABLE_GAIN * head_alone and chosen - best > (head_alone - best) / 2:
        warn_caller(
            f"budget={budget:g} leaves most of the gain behind: a hold-out log-loss of {chosen:.4f}, with temperature scaling "
            f"{head_alone:.4f}, with budget={f'{needed:.2g}' if needed <= 1 else None} {best:.4f}."
        )


def _warn_of_no_probes(limit: int, smallest: int, blocks: int, holdout: Features, settings: Settings) -> None:
    equally, reason, more = settings.allocation == "equal", f"the smallest probe needs {smallest}", ""
    share = f" ({limit // blocks} for each block)" if equally else ""
    needed = smallest * blocks if equally else max(limit, smallest)
    if not equally and limit >= smallest:
        reason = "the hold-out gains by no probe of that size"
        more = f"take more training rows, or more hold-out rows than {holdout.all_rows}, "
    larger = needed / holdout.parameters
    raised = f"raise budget= above {larger:.2g}, or lift it with None" if larger < 1 else "lift it with budget=None"
    warn_caller(
        f"The budget allows {limit} parameters{share}; {reason}. No block gets a probe: this is temperature scaling. "
        f"For probes, {more}{raised}."
    )


@dataclass(frozen=True)
class Cost:
    """Parameters of a probe of some rank."""

    width: int
    classes: int

    def parameters(self, rank: int) -> int:
        low_rank, dense = rank * (self.width + self.classes), self.width * self.classes
        return (min(low_rank, dense) + self.classes) if rank else 0

    def affordable(self, limit: int) -> int:
        """The largest rank within `limit` parameters; as many as classes: dense."""
        if self.parameters(self.classes) <= limit:
            return self.classes
        return max(limit - self.classes, 0) // (self.width + self.classes)


def equal_share(costs: Mapping[str, Cost], limit: int) -> Ranks:
    return {name: cost.affordable(limit // len(costs)) for name, cost in costs.items()}


def last_alone(costs: Mapping[str, Cost], limit: int) -> Ranks:
    """The largest rank for the last block, then for the one before it with what is left, and so on."""
    ranks: Ranks = {}
    for name, cost in reversed(list(costs.items())):
        ranks[name] = cost.affordable(limit)
        limit -= cost.parameters(ranks[name])
    return {name: ranks[name] for name in costs}


def prune(search: "Search", costs: Mapping[str, Cost], limit: int) -> tuple[Ranks, list[tuple[int, float]]]:
    """Drop the last directions of blocks, those worth least per parameter first, until the rest costs at most `limit`.

    Only last directions: if each could be dropped, the search would overfit to the hold-out. Besides, the parameters and the
    log-loss of the larger plans on the way.
    """
    ranks, larger = {name: cost.classes for name, cost in costs.items()}, []
    while (spent := _total(costs, ranks)) > limit:
        loss, rises = search.rises(ranks)
        larger.append((spent, loss))
        goal = max(limit, int(KEEP_PER_ROUND * spent))
        while spent > goal:
            tails = [_cheapest_tail(name, ranks[name], rises[name], costs[name]) for name in ranks if ranks[name]]
            _, name, rank = min(tails)
            spent += costs[name].parameters(rank) - costs[name].parameters(ranks[name])
            ranks[name] = rank
    return ranks, larger


def _cheapest_tail(name: str, rank: int, rises: Sequence[float], cost: Cost) -> tuple[float, str, int]:
    """(rise per parameter saved, block, rank after) for the tail of directions that is the least loss per parameter."""
    rise, best = 0.0, (float("inf"), name, 0)
    for shorter in range(rank - 1, -1, -1):
        rise += rises[shorter]
        saved = cost.parameters(rank) - cost.parameters(shorter)
        if saved > 0:
            best = min(best, (rise / saved, name, shorter))
    return best


@dataclass(frozen=True, eq=False)
class Search:
    """The hold-out as the search sees it: `rotated`, the logits of each block in its probe's basis [n, directions], and the
    head's.

    Which `half` [n] a row belongs to, 0 or 1, is drawn by a fixed seed, so that the halves are alike however the loader
    orders its classes. Views of one row, which stand one pass apart unless the loader shuffles in each, are in the same half.
    """

    trained: Mapping[str, TrainedProbe]
    rotated: dict[str, Tensor]
    head: Tensor
    labels: Tensor
    half: Tensor
    settings: Settings = DEFAULT
    passes: int = 1

    @staticmethod
    def of(trained: Mapping[str, TrainedProbe], holdout: Features, settings: Settings = DEFAULT) -> "Search":
        device = next(iter(trained.values())).basis.device
        inputs = holdout.all_rows // holdout.passes
        order = torch.randperm(inputs, generator=torch.Generator().manual_seed(0))
        order = order[: max(SEARCHED_NUMBERS // holdout.classes, SEARCHED_ROWS) // holdout.passes]
        half = torch.full((inputs,), -1).scatter_(0, order, torch.arange(len(order)) % 2)[holdout.positions % inputs]
        used = (half >= 0).nonzero()[:, 0]

        def from_all(here: Tensor) -> Tensor:
            return torch.cat([part.to(device) for part in holdout.processes.gather(here.cpu())])

        def rotated(name: str, probe: TrainedProbe) -> Tensor:
            return from_all((probe.probe.logits(holdout.blocks[name][used]) - probe.mean_logits) @ probe.basis)

        head, labels, half = (from_all(values[used]) for values in (holdout.logits, holdout.labels, half))
        by_block = {name: rotated(name, probe) for name, probe in trained.items()}
        return Search(trained, by_block, head, labels, half, settings, holdout.passes)

    def cross_validated(self, ranks: Ranks) -> float:
        """Log-loss on each half of the stack fitted on the other, averaged."""
        return self.rises(ranks)[0]

    def rises(self, ranks: Ranks) -> tuple[float, dict[str, list[float]]]:
        """The cross-validated log-loss, and by how much that of each half would rise without each direction."""
        members = {name: self._cut(name, rank) for name, rank in ranks.items() if rank} | {HEAD: self.head}
        loss = 0.0
        total = {name: torch.zeros(rank, dtype=torch.float64) for name, rank in ranks.items()}
        for fitted, scored in (self.half == 0, self.half == 1), (self.half == 1, self.half == 0):
            sample, labels = tuple(member[fitted] for member in members.values()), self.labels[scored]
            rows = MemberRows((tuple(members),), (sample,), self.labels[fitted], self.passes)
            (objective,) = Objective.of_networks(rows, self.settings)
            weights = objective.minimise(rows.initial_weights).point
            logits = combine([member[scored] for member in members.values()], weights)
            loss += float(cross_entropy(logits.double(), labels)) / 2
            probabilities = logits.softmax(1)
            error = probabilities - one_hot(labels, logits.shape[1])
            for name, weight in zip(members, weights.tolist(), strict=True):
                if name in ranks and weight > 0:
                    basis, amount = (
                        self.trained[name].basis[:, : ranks[name]],
                        self.rotated[name][scored, : ranks[name]],
                    )
                    first = ((error @ basis) * amount).double().mean(0)
                    variance = probabilities @ basis.square() - (probabilities @ basis).square()
                    second = (amount.square() * variance).double().mean(0)
                    total[name][: len(first)] += (weight**2 / 2 * second - weight * first).cpu()
        return loss, {name: rise.tolist() for name, rise in total.items()}

    def _cut(self, name: str, rank: int) -> Tensor:
        return self.rotated[name][:, :rank] @ self.trained[name].basis[:, :rank].T + self.trained[name].mean_logits
