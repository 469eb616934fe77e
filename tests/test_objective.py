"""The objective's derivatives, by each of the ways in which solvers ask for them, are those of autograd, penalty and all.

Solvers find the minimum by a wrong step too, only later: that they find it proves none of these.
"""

import math

import pytest
import torch
from torch import Tensor

from lates.holdout import Holdout
from lates.losses import LOSSES, Loss, nll
from lates.objective import Objective
from tests.problems import noisy_views


def case(members: int, regularise: float) -> tuple[list[Tensor], Tensor, Objective, Tensor]:
    """Logits, labels, their objective and scaled weights away from its minimum."""
    logits, labels = noisy_views(60, 5, members)
    objective = Objective.of(Holdout(((logits, labels),)), regularise)
    return logits, labels, objective, torch.linspace(0.3, 0.9, members, dtype=torch.float64)


def penalised(
    name: str, logits: list[Tensor], labels: Tensor, objective: Objective, regularise: float, point: Tensor
) -> Tensor:
    """The definition: loss(sum_k beta_k R_k) + (c / sqrt(n)) / 2 · ||beta||², where beta_k = point_k / deviation_k."""
    weights = point / objective.deviations
    combined = torch.stack(logits, dim=2) @ weights
    return LOSSES[name](combined, labels) + regularise / math.sqrt(len(labels)) / 2 * weights @ weights


@pytest.mark.parametrize("regularise", [0.0, 0.7])
@pytest.mark.parametrize("members", [1, 2, 5])
def test_value_gradient_and_hessian_are_those_of_autograd(members: int, regularise: float) -> None:
    logits, labels, objective, point = case(members, regularise)

    def value_at(at: Tensor) -> Tensor:
        return penalised("nll", logits, labels, objective, regularise, at)

    value, gradient, hessian = (
        value_at(point),
        torch.autograd.functional.jacobian(value_at, point),
        torch.autograd.functional.hessian(value_at, point),
    )
    here = objective.expand(point)
    torch.testing.assert_close(here.hessian, hessian)
    for found in (here.gradient, objective.value_and_gradient(point)[1]):
        torch.testing.assert_close(found, gradient)
    for found in (here.value, objective.value_and_gradient(point)[0], objective.value(point)):
        assert found == pytest.approx(float(value), abs=1e-12)
    weights = point / objective.deviations
    assert objective.nll(point) == pytest.approx(float(nll(torch.stack(logits, dim=2) @ weights, labels)), abs=1e-12)


@pytest.mark.parametrize("regularise", [0.0, 0.7])
def test_the_three_derivatives_of_one_weight_are_those_of_autograd(regularise: float) -> None:
    logits, labels, objective, point = case(1, regularise)
    at = point.clone().requires_grad_()
    expected = [penalised("nll", logits, labels, objective, regularise, at)]
    for _ in range(3):
        expected.append(torch.autograd.grad(expected[-1].sum(), at, create_graph=True)[0])
    torch.testing.assert_close(objective.derivatives_of_one(point), tuple(of_one.detach() for of_one in expected[1:]))


@pytest.mark.parametrize("regularise", [0.0, 0.7])
@pytest.mark.parametrize("name", LOSSES)
def test_any_loss_s_gradient_is_that_of_autograd(name: str, regularise: float) -> None:
    logits, labels, objective, point = case(3, regularise)
    at = point.clone().requires_grad_()
    expected = penalised(name, logits, labels, objective, regularise, at)
    value, gradient = objective.loss_and_gradient(LOSSES[name], point)
    assert value == pytest.approx(expected.item(), abs=1e-12)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, at)[0])


def test_a_mean_over_rows_takes_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, objective, point = case(3, 0.0)
    first_passes: list[str] = []
    statistics = Holdout.statistics

    def counted(holdout: Holdout, loss: Loss, weights: Tensor) -> Tensor:
        first_passes.append(loss.name)
        return statistics(holdout, loss, weights)

    monkeypatch.setattr(Holdout, "statistics", counted)
    for loss in LOSSES.values():
        objective.loss_and_gradient(loss, point)
    assert first_passes == ["soft_ece"]


@pytest.mark.parametrize(
    ("point", "step", "expected"),
    [
        ([0, 0, 0], [1, 1 + 1e-8, 1e-9], "recedes"),  # to the accuracy of a step, along (1, 1, 0)
        ([2, 2, 0], [0, 0, 1e-5], "recedes"),
        ([0, 0, 0], [1, 1, -1], "turns"),
        ([0, 0, 0], [1, 0, 0], "turns"),
        ([1, 2, 3], [1e-5, 1e-5, -1e-5], "settled"),
    ],
)
def test_a_direction_without_end_is_told_from_a_step_that_turns_and_one_that_settles(
    point: list[float], step: list[float], expected: str
) -> None:
    """Margins of three rows by three members, of which the first two together, and they alone, lower none."""
    margins = torch.tensor([[2, -1, 0], [-1, 2, 0], [1, -1, -5]], dtype=torch.float64)
    members = tuple(torch.stack([margin, torch.zeros(3)], dim=1) for margin in margins.T)
    holdout = Holdout(((members, torch.zeros(3, dtype=torch.int64)),))
    objective = Objective(holdout, 3, torch.ones(3, dtype=torch.float64), penalty=0.0)
    assert objective.trend(*torch.tensor([point, step], dtype=torch.float64)) == expected
