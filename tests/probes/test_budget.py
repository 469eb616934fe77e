import math
import re
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader

import lates
from lates.network import Ensemble
from lates.probes.budget import Cost, Search, choose_ranks, equal_share, fit_budget, last_alone, prune
from lates.probes.probe import Probe
from lates.stack.losses import NLL
from tests.conftest import Problem
from tests.networks import extract_samples
from tests.problems import draw_labels

Both = tuple[lates.Features, lates.Features]
Trained = dict[str, lates.TrainedProbe]


@pytest.fixture(scope="module")
def trained(features: Both) -> Trained:
    return lates.train_probes(*features)


def costs_of(trained: Trained) -> dict[str, Cost]:
    return {name: Cost(probe.probe.down.shape[1], 10) for name, probe in trained.items()}


def parameters(probes: dict[str, Probe]) -> int:
    return sum(part.numel() for probe in probes.values() for part in (probe.down, probe.up, probe.bias) if part is not None)


@hypothesis_settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(budget=st.floats(0, 0.1), allocation=st.sampled_from(["gain", "equal"]))
def test_budget_is_never_exceeded(features: Both, trained: Trained, budget: float, allocation: str) -> None:
    settings = replace(lates.DEFAULT, allocation=allocation)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        probes = fit_budget(trained, features[1], budget, settings=settings)
    assert parameters(probes) <= budget * features[1].parameters
    assert all(probe.parameters == parameters({name: probe}) for name, probe in probes.items())
    assert list(probes) == [name for name in trained if name in probes]


@pytest.mark.parametrize("rows", [2, 3, 40])
def test_views_of_one_row_are_in_one_half(problem: Problem, trained: Trained, rows: int) -> None:
    images, labels = next(iter(problem.holdout))
    batch = [(images[:rows], labels[:rows])]
    passes = lates.extract(problem.model, batch, list(trained), views=lambda images: 1.5 * images, passes=3)
    single = lates.extract(problem.model, batch, list(trained))
    plain = replace(passes, logits=single.logits.repeat(3, 1))  # so that views of one row have equal logits
    search = Search.of(trained, plain)
    first, second = ({tuple(row) for row in search.head[search.half == half].tolist()} for half in (0, 1))
    assert (len(first), len(second)) == (rows - rows // 2, rows // 2)
    assert not first & second


def test_shuffling_loader_repeats_its_order_over_the_holdout(problem: Problem) -> None:
    dataset = problem.holdout.dataset
    loader = DataLoader(dataset, batch_size=16, shuffle=True)
    (features,) = extract_samples(
        Ensemble((problem.model,)), loader, [], views=lambda images: 2 * images, passes=3, copies_for="holdout_views"
    )
    first, second, third = features.labels.view(3, -1)
    assert torch.equal(first, second)
    assert torch.equal(first, third)
    assert not torch.equal(first, torch.cat([labels for _, labels in DataLoader(dataset, batch_size=16)]))


@pytest.mark.parametrize("budget", [0.005, 0.01, 0.02, 0.05])
def test_plan_is_no_worse_than_the_simple_rules(features: Both, trained: Trained, budget: float) -> None:
    holdout, costs = features[1], costs_of(trained)
    limit = int(budget * holdout.parameters)
    search = Search.of(trained, holdout)
    chosen = search.cross_validated(choose_ranks(trained, holdout, limit)[0])
    for rule in (equal_share(costs, limit), last_alone(costs, limit)):
        assert sum(costs[name].parameters(rank) for name, rank in rule.items()) <= limit
        assert chosen <= search.cross_validated(rule)
    head_alone = search.cross_validated(dict.fromkeys(trained, 0))
    assert chosen < head_alone or (chosen == head_alone and budget == 0.005), "where one direction may gain nothing"


def search_of_signals(signals: dict[str, tuple[float, ...]]) -> Search:
    """Blocks of six directions, of which the first, of these strengths, make the truth; the others are faint noise."""
    generator = torch.Generator().manual_seed(0)
    rotated = {name: torch.randn(2000, 6, generator=generator) for name in signals}
    truth = torch.zeros(2000, 6)
    for name, strengths in signals.items():
        count = len(strengths)
        rotated[name] *= torch.tensor([*strengths, *[0.2] * (6 - count)])
        truth[:, :count] += rotated[name][:, :count]
    head = truth + 4 * torch.randn(2000, 6, generator=generator)
    probe = Probe(torch.eye(6), None, torch.zeros(6))
    trained = dict.fromkeys(signals, lates.TrainedProbe(probe, torch.zeros(6), torch.eye(6), decay=0.0, loss=0.0))
    return Search(trained, rotated, head, draw_labels(truth, generator), torch.arange(2000) % 2)


PRUNED = {
    "directions without signal go": ({"idle": (), "one": (2,), "three": (2, 2, 2)}, {}, (0, 1, 3)),
    "a weak direction before a strong one stays": ({"late": (0.5, 2), "even": (1, 1)}, {}, (2, 1)),
    "the dearer of equal directions goes": ({"dear": (2, 2), "cheap": (2, 2)}, {"dear": 60, "cheap": 8}, (0, 2)),
}
"""signals, widths (default: 20), ranks"""


@pytest.mark.parametrize("case", PRUNED)
def test_prune_drops_what_is_worth_least_per_parameter(case: str) -> None:
    signals, widths, expected = PRUNED[case]
    costs = {name: Cost(widths.get(name, 20), 6) for name in signals}
    limit = sum(cost.parameters(rank) for cost, rank in zip(costs.values(), expected, strict=True))
    ranks, _ = prune(search_of_signals(signals), costs, limit)
    assert tuple(ranks.values()) == expected


def test_cross_validated_loss_is_that_of_stacks_fitted_on_the_other_half(features: Both, trained: Trained) -> None:
    holdout = features[1]
    search = Search.of(trained, holdout)
    ranks = {"stages.0": 3, "stages.1": 0, "stages.2": 10}
    members = [
        trained["stages.0"].cut(3).logits(holdout.blocks["stages.0"]),
        trained["stages.2"].probe.logits(holdout.blocks["stages.2"]),
        holdout.logits,
    ]
    order = torch.randperm(holdout.rows, generator=torch.Generator().manual_seed(0))
    losses: list[float] = []
    for fitted, tested in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        stack = lates.fit_stack([member[fitted] for member in members], holdout.labels[fitted])
        logits = sum(float(w) * member[tested] for w, member in zip(stack.weights, members, strict=True))
        assert isinstance(logits, Tensor)
        losses.append(lates.metrics.nll(logits, holdout.labels[tested]))
    assert search.cross_validated(ranks) == pytest.approx(sum(losses) / 2, abs=1e-5)


def second_order_rise(logits: Tensor, removed: Tensor, labels: Tensor) -> Tensor:
    """f'(0) + f''(0) / 2 of f(t) = NLL(logits - t removed), by automatic differentiation."""
    t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(NLL(logits - t * removed, labels), t, create_graph=True)
    (second,) = torch.autograd.grad(first, t)
    return (first + second / 2).detach()


def test_rises_match_the_second_order_change_of_the_loss(features: Both, trained: Trained) -> None:
    search = Search.of(trained, features[1])
    members = [search.rotated[name] @ own.basis.T + own.mean_logits for name, own in trained.items()] + [search.head]
    _, rises = search.rises(dict.fromkeys(trained, 10))
    for place, name in enumerate(trained):
        expected = torch.zeros(10, dtype=torch.float64)
        for fitted, tested in ((search.half == 0, search.half == 1), (search.half == 1, search.half == 0)):
            weights = lates.fit_stack([member[fitted] for member in members], search.labels[fitted]).weights
            logits = torch.stack(members, dim=2)[tested].double() @ weights
            for j in range(10):
                removed = weights[place] * search.rotated[name][tested, j, None] * trained[name].basis[:, j]
                expected[j] += second_order_rise(logits, removed, search.labels[tested])
        torch.testing.assert_close(torch.tensor(rises[name]).double(), expected, atol=1e-5, rtol=1e-4)


def test_halves_are_alike_for_an_alternating_holdout(features: Both, trained: Trained) -> None:
    """Sorted so that every other row is of the lower classes, even and odd rows would see disjoint classes."""
    holdout = features[1]
    order = holdout.labels.argsort()
    half = holdout.rows // 2
    alternating = torch.stack([order[:half], order[half : 2 * half]], dim=1).flatten()
    mixed = replace(
        holdout,
        blocks={name: rows[alternating] for name, rows in holdout.blocks.items()},
        logits=holdout.logits[alternating],
        labels=holdout.labels[alternating],
    )
    ranks, _ = choose_ranks(trained, holdout, 500)
    plain, other = Search.of(trained, holdout), Search.of(trained, mixed)
    assert other.cross_validated(ranks) == pytest.approx(plain.cross_validated(ranks), abs=0.03)


def test_probes_stay_dense_where_the_budget_allows_them_with_their_biases(features: Both, trained: Trained) -> None:
    dense = sum(probe.probe.down.numel() + 10 for probe in trained.values())
    exact = dense / features[1].parameters
    for budget in (None, 1.0, exact * 1.0001):
        probes = fit_budget(trained, features[1], budget)
        assert {name: probe.up for name, probe in probes.items()} == dict.fromkeys(trained)
    assert parameters(fit_budget(trained, features[1], exact * 0.9999)) < dense


def test_probes_that_gain_nothing_are_left_out_with_the_reason(features: Both, trained: Trained) -> None:
    """Probes that say the opposite of what they learned can only harm."""
    opposite = {
        name: replace(own, probe=Probe(-own.probe.down, None, -own.probe.bias), mean_logits=-own.mean_logits)
        for name, own in trained.items()
    }
    with pytest.warns(UserWarning, match=r"the hold-out gains by no probe of that size\. No block gets a probe"):
        assert fit_budget(opposite, features[1], 0.01) == {}


@pytest.mark.parametrize(("allocation", "budget"), [("gain", 0.001), ("equal", 0.001), ("equal", 0.006), ("gain", 0.0)])
def test_budget_too_small_warns_and_leaves_the_head_alone(
    features: Both, trained: Trained, allocation: str, budget: float
) -> None:
    settings = replace(lates.DEFAULT, allocation=allocation)
    with pytest.warns(UserWarning, match=r"the smallest probe needs 68\. No block gets a probe: this is temperature") as told:
        assert fit_budget(trained, features[1], budget, settings=settings) == {}
    enough = 1.05 * float(re.findall(r"raise budget= above ([\d.e-]+)", str(told[0].message))[0])  # it is printed to two digits
    with warnings.catch_warnings(record=True, action="always") as told:
        probes = fit_budget(trained, features[1], enough, settings=settings)
    assert probes or "the hold-out gains by no probe" in str(told[0].message), "it is allowed, whether it gains or not"


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_holdout_of_few_rows_is_enough_to_spend_a_budget(features: Both, trained: Trained, rows: int) -> None:
    holdout = features[1]
    few = replace(
        holdout,
        blocks={name: values[:rows] for name, values in holdout.blocks.items()},
        logits=holdout.logits[:rows],
        labels=holdout.labels[:rows],
    )
    assert parameters(fit_budget(trained, few, 0.02)) <= 0.02 * holdout.parameters


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (-0.1, "budget=-0.1: expected a share from 0 to 1.$"),
        (float("nan"), "budget=nan: expected a share from 0 to 1.$"),
        (5, "budget=5: expected a share from 0 to 1. Did you mean 5 % = 0.05?"),
        ("5", "budget=5: expected a share from 0 to 1. Did you mean 5 % = 0.05?"),
        ("a lot", 'budget="a lot": expected a share, such as 0.05 or "5%".'),
    ],
)
def test_budget_that_is_no_share_is_refused(features: Both, trained: Trained, budget: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        fit_budget(trained, features[1], budget)


@given(width=st.integers(1, 500), classes=st.integers(1, 200), limit=st.integers(0, 50_000))
def test_affordable_rank_is_the_largest_that_fits(width: int, classes: int, limit: int) -> None:
    cost = Cost(width, classes)
    rank = cost.affordable(limit)
    assert cost.parameters(rank) <= limit
    assert rank == classes or cost.parameters(rank + 1) > limit


def test_curve_goes_from_temperature_scaling_over_the_plan_to_dense_probes(features: Both, trained: Trained) -> None:
    holdout, costs = features[1], costs_of(trained)
    limit = int(0.02 * holdout.parameters)
    ranks, curve = choose_ranks(trained, holdout, limit)
    search = Search.of(trained, holdout)
    fractions, losses = zip(*curve, strict=True)
    parameters = tuple(round(fraction * holdout.parameters) for fraction in fractions)
    assert list(parameters) == sorted(parameters)
    assert parameters[:2] == (0, sum(costs[name].parameters(rank) for name, rank in ranks.items()))
    assert parameters[1] <= limit < parameters[2]
    assert parameters[-1] == sum(cost.parameters(cost.classes) for cost in costs.values())
    assert losses[:2] == (search.cross_validated(dict.fromkeys(trained, 0)), search.cross_validated(ranks))


def test_budget_that_leaves_most_of_the_gain_is_warned_about(features: Both, trained: Trained) -> None:
    smallest = min(cost.parameters(1) for cost in costs_of(trained).values()) / features[1].parameters
    with pytest.warns(UserWarning, match=r"budget=0\.\d+ leaves most of the gain behind: .* with budget=[\d.]+ 1\.\d+"):
        fit_budget(trained, features[1], 1.5 * smallest)


def test_capped_probes_give_no_larger_logits_than_most_hold_out_rows(features: Both, trained: Trained) -> None:
    """And the same ones below that size."""
    rows = features[1]
    plain = fit_budget(trained, rows, None)
    capped = fit_budget(trained, rows, None, settings=replace(lates.DEFAULT, cap=0.9))
    for name, probe in plain.items():
        inputs = torch.cat([rows.blocks[name], 100 * rows.blocks[name]])
        before, after = (each.logits(inputs) for each in (probe, capped[name]))
        sizes = before.square().mean(1).sqrt()
        limit = sizes[: rows.rows].kthvalue(math.ceil(0.9 * rows.rows)).values
        torch.testing.assert_close(after, before * (limit / sizes).clamp(max=1)[:, None])
