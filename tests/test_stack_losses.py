"""Other losses and the paper's solver: never worse than where they began, close to the exact optimum."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from lates.losses import brier, soft_ece
from lates.stack import combine, fit_stack
from tests.problems import noisy_views


@pytest.mark.parametrize("loss", ["brier", "soft_ece"])
@pytest.mark.parametrize("regularise", [0.0, 0.5])
def test_losses_that_are_not_convex_never_end_worse_than_the_log_loss_optimum(loss: str, regularise: float) -> None:
    value = {"brier": brier, "soft_ece": soft_ece}[loss]
    for seed in range(3):
        logits, labels = noisy_views(400, 5, 4, seed=seed)
        start = fit_stack(logits, labels, regularise=regularise)
        stack = fit_stack(logits, labels, loss=loss, regularise=regularise)
        penalty = regularise / np.sqrt(400) / 2

        def objective(weights: Tensor, logits: list[Tensor], labels: Tensor, penalty: float = penalty) -> float:
            return float(value(combine(logits, weights), labels) + penalty * weights @ weights)

        assert stack.objective == pytest.approx(objective(stack.weights, logits, labels), abs=1e-12)
        assert stack.objective < objective(start.weights, logits, labels)
        assert not stack.certified
        if loss == "soft_ece":
            assert stack.nll <= 1.01 * start.nll


def test_brier_ends_at_a_stationary_point_that_lbfgsb_cannot_improve() -> None:
    logits, labels = noisy_views(600, 4, 3)
    stack = fit_stack(logits, labels, loss="brier")
    assert stack.residual < 1e-7

    def value(weights: np.ndarray) -> float:
        return float(brier(combine(logits, torch.from_numpy(weights)), labels))

    better = minimize(value, stack.weights.numpy(), method="L-BFGS-B", bounds=[(0, None)] * 3)
    assert stack.objective <= better.fun + 1e-9


def test_the_paper_s_sgd_comes_close_and_depends_on_its_seed_alone() -> None:
    logits, labels = noisy_views(1500, 5, 3, sharpness=0.7)
    exact, sgd = fit_stack(logits, labels), fit_stack(logits, labels, solver="sgd", seed=1)
    assert exact.nll <= sgd.nll <= 1.03 * exact.nll
    assert not sgd.certified
    assert sgd.steps == 50 * 12
    assert torch.equal(sgd.weights, fit_stack(logits, labels, solver="sgd", seed=1).weights)
    assert not torch.equal(sgd.weights, fit_stack(logits, labels, solver="sgd", seed=2).weights)
