"""The log-loss of a mean prediction, and the weights of MC dropout and of ensembles that lower it."""

import numpy as np
import pytest
import torch
from torch import Tensor

from lates.runtime import default_names
from lates.settings import DEFAULT, Settings
from lates.stack import MemberRows, Objective, Stack, combine, fit_stack, fit_weights
from lates.stack.losses import NLL
from lates.stack.newton import TOLERANCE, Minimum
from lates.stack.objective import log_loss, penalised_loss
from tests.problems import dropout_samples, noisy_views
from tests.stack.oracles import penalised

Draw = dict[str, Tensor]


def named(samples: list[list[Tensor]]) -> list[Draw]:
    return [dict(zip(default_names(len(members)), members, strict=True)) for members in samples]


def plain_mean_nll(draws: list[Draw], labels: Tensor, weights: list[Tensor]) -> Tensor:
    logits = [torch.stack([*draw.values()], dim=2) @ own for draw, own in zip(draws, weights, strict=True)]
    return -torch.stack([each.softmax(1) for each in logits]).mean(dim=0).gather(1, labels[:, None]).log().mean()


def fit_draws(draws: list[Draw], labels: Tensor, samples: int, settings: Settings = DEFAULT) -> Stack:
    return fit_weights(MemberRows.of(draws, labels, samples_per_network=samples), "nll", settings)


def fit_pooled(members: MemberRows, settings: Settings) -> Minimum:
    """The convex fit to the rows of all draws of one network."""
    (objective,) = Objective.of_networks(members, settings)
    return objective.minimise(members.initial_weights)


@pytest.mark.parametrize("samples", [3, 1])
def test_mean_log_loss_and_its_gradient_match_autograd(samples: int) -> None:
    drawn, labels = dropout_samples(60, 4, samples=3)
    draws = named(drawn)
    weights = [torch.rand(2, dtype=torch.float64).requires_grad_() for _ in range(3 // samples)]
    expected = plain_mean_nll(draws, labels, weights * samples)
    members, point = MemberRows.of(draws, labels, samples_per_network=samples), torch.cat(weights).detach()
    objectives = Objective.of_networks(members, Settings(prior=0))
    value, gradient = penalised_loss(members, objectives, NLL, point)
    assert [value, log_loss(members, point)] == pytest.approx([expected.item()] * 2, abs=1e-12)
    torch.testing.assert_close(gradient, torch.cat(torch.autograd.grad(expected, weights)))


def test_pooled_samples_are_fitted_as_rows_of_one_holdout() -> None:
    samples, labels = dropout_samples(200, 4, samples=3)
    stacked = [torch.cat([members[k] for members in samples]) for k in range(2)]
    pooled = MemberRows.of(samples, labels, samples_per_network=3)
    for regularise, prior in ((0.0, 0.0), (1.0, 2.0)):  # n in c / sqrt(n) and in the prior stays the number of inputs
        together = fit_stack(stacked, labels.repeat(3), regularise=np.sqrt(3) * regularise, prior=3 * prior)
        apart = fit_pooled(pooled, Settings(regularise=regularise, prior=prior))
        assert apart.residual <= TOLERANCE
        assert apart.point.tolist() == pytest.approx(together.weights.tolist(), abs=1e-9)


def test_weights_fitted_to_the_mean_of_samples_leave_it_no_longer_underconfident() -> None:
    samples, labels = dropout_samples(2000, 5, samples=8)
    draws = named(samples)
    pooled = fit_pooled(MemberRows.of(draws, labels, samples_per_network=8), DEFAULT).point
    fit = fit_draws(draws, labels, 8)
    assert fit.names == ("0", "head")
    assert float(fit.weights.sum()) > 1.1 * float(pooled.sum())
    assert fit.residual < 1e-7
    assert fit.nll == pytest.approx(float(plain_mean_nll(draws, labels, [fit.weights] * 8)), abs=1e-12)
    assert fit.nll < float(plain_mean_nll(draws, labels, [pooled] * 8)) - 0.005
    assert fit.nll <= fit.nll_temperature <= fit.nll_network
    (scaled,) = fit.temperature_weights
    heads = [torch.tensor([0.0, scaled], dtype=torch.float64)] * 8
    assert fit.nll_temperature == pytest.approx(float(plain_mean_nll(draws, labels, heads)), abs=1e-12)


@pytest.mark.parametrize("all_right", [False, True])
@pytest.mark.parametrize(("regularise", "prior"), [(0.0, 0.0), (1.0, 2.0)])
def test_ensemble_has_weights_for_each_network_which_may_differ_in_members(
    regularise: float, prior: float, all_right: bool
) -> None:
    first, labels = noisy_views(500, 4, 3, seed=1)
    second = [member + torch.randn(500, 4, generator=torch.Generator().manual_seed(5)) for member in first[1:]]
    if all_right:  # the mean of both, though neither is by itself
        labels = (first[-1].softmax(1) + second[-1].softmax(1)).argmax(1)
    draws = named([first, second])
    fit = fit_draws(draws, labels, 1, Settings(regularise=regularise, prior=prior))
    assert fit.names == ("0/0", "0/1", "0/head", "1/0", "1/head")
    assert len(fit.temperature_weights) == 2
    assert fit.nll == pytest.approx(float(plain_mean_nll(draws, labels, [*fit.weights.split([3, 2])])), abs=1e-12)
    penalties = [
        float(penalised(NLL, members, labels, own, regularise, prior, all_right) - NLL(combine(members, own), labels))
        for members, own in zip((first, second), fit.weights.split([3, 2]), strict=True)
    ]
    assert fit.objective == pytest.approx(fit.nll + sum(penalties) / 2, abs=1e-12)


@pytest.mark.parametrize("samples", [1, 2])
def test_scale_of_a_member_does_not_matter_for_the_mean(samples: int) -> None:
    drawn, labels = dropout_samples(200, 4, samples=2)
    factors = [1000.0, 0.01]
    scaled = [[factor * member for factor, member in zip(factors, sample, strict=True)] for sample in drawn]
    settings = Settings(prior=0)
    plain, other = (fit_draws(named(each), labels, samples, settings) for each in (drawn, scaled))
    networks = 2 // samples
    restored = other.weights * torch.tensor(factors * networks, dtype=torch.float64)
    # The networks as they are, from which one of the starts is chosen, do depend on the scale.
    torch.testing.assert_close(restored, plain.weights, rtol=1e-5, atol=1e-6)


def test_copies_of_one_network_are_an_ordinary_stack() -> None:
    logits, labels = noisy_views(300, 4, 3)
    draw = named([logits])[0]
    for regularise in (0.0, 1.0):
        settings = Settings(regularise=regularise)
        alone = fit_draws([draw], labels, 1, settings)
        assert alone.certified
        assert torch.equal(alone.weights, fit_stack(draw, labels, regularise=regularise).weights)
        twice = fit_draws([draw, draw], labels, 2, settings)
        assert twice.weights.tolist() == pytest.approx(alone.weights.tolist(), abs=1e-5)
        assert (twice.nll, twice.nll_temperature) == pytest.approx((alone.nll, alone.nll_temperature), abs=1e-6)


def test_bad_draws_are_refused() -> None:
    samples, labels = dropout_samples(20, 3, samples=2)
    draws = named(samples)
    with pytest.raises(ValueError, match="The networks have 3, 2 classes; they need the same"):
        fit_draws([draws[0], {name: member[:, :2] for name, member in draws[1].items()}], labels, 1)
    with pytest.raises(ValueError, match='loss="brier" is for single networks'):
        fit_weights(MemberRows.of(draws, labels), "brier", DEFAULT)
    draws[1]["head"][3, 1] = torch.nan
    with pytest.raises(ValueError, match='member "head" hold NaN in row 3'):
        fit_draws(draws, labels, 1)
