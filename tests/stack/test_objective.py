"""The objective's derivatives are those of autograd, penalties included: with wrong ones solvers arrive too, only later."""

import pytest
import torch
from torch import Tensor

from lates.settings import Settings
from lates.stack.losses import LOSSES, NLL
from lates.stack.members import MemberRows
from lates.stack.objective import Objective, log_loss, penalised_loss
from tests.problems import noisy_views
from tests.stack.oracles import penalised

PENALTIES = [(0.0, 0.0), (0.7, 0.0), (0.0, 2.0), (0.7, 2.0)]
"""regularise, prior"""


def case(members: int, regularise: float, prior: float, perfect: bool) -> tuple[list[Tensor], Tensor, Objective, Tensor]:
    """Logits, labels, their objective and weights away from its minimum; the head may be right in every row."""
    logits, labels = noisy_views(60, 5, members)
    labels = logits[-1].argmax(dim=1) if perfect else labels
    rows, choices = MemberRows.of([logits], labels), Settings(regularise=regularise, prior=prior)
    (objective,) = Objective.of_networks(rows, choices)
    return logits, labels, objective, torch.linspace(0.3, 0.9, members, dtype=torch.float64)


@pytest.mark.parametrize("perfect", [False, True])
@pytest.mark.parametrize(("regularise", "prior"), PENALTIES)
@pytest.mark.parametrize("members", [1, 5])
def test_expansion_matches_autograd(members: int, regularise: float, prior: float, perfect: bool) -> None:
    logits, labels, objective, point = case(members, regularise, prior, perfect)

    def value_at(at: Tensor) -> Tensor:
        return penalised(NLL, logits, labels, at, regularise, prior)

    here = objective.expand(point)
    torch.testing.assert_close(here.hessian, torch.autograd.functional.hessian(value_at, point))
    torch.testing.assert_close(here.gradient, torch.autograd.functional.jacobian(value_at, point))
    assert here.value == pytest.approx(float(value_at(point)), abs=1e-12)
    plain = float(NLL(torch.stack(logits, dim=2) @ point, labels))
    assert log_loss(objective.members, point) == pytest.approx(plain, abs=1e-12)


@pytest.mark.parametrize("perfect", [False, True])
@pytest.mark.parametrize(("regularise", "prior"), PENALTIES)
@pytest.mark.parametrize("name", LOSSES)
def test_gradient_of_any_loss_matches_autograd(name: str, regularise: float, prior: float, perfect: bool) -> None:
    logits, labels, objective, point = case(3, regularise, prior, perfect)
    at = point.clone().requires_grad_()
    expected = penalised(LOSSES[name], logits, labels, at, regularise, prior)
    value, gradient = penalised_loss(objective.members, [objective], LOSSES[name], point)
    assert value == pytest.approx(expected.item(), abs=1e-12)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, at)[0])
