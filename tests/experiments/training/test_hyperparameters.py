"""Recipes are the paper's, and their learning rates follow them."""

import pytest
import torch

from experiments.training.hyperparameters import (
    MC_DROPOUT,
    STRONG,
    STRONG_WIDE,
    Hyperparameters,
    learning_rates,
)


def test_the_strong_recipes_are_as_published() -> None:
    assert (STRONG.epochs, STRONG.weight_decay, STRONG.nesterov, STRONG.crop) == (100, 5e-4, True, 4)
    assert (STRONG_WIDE.epochs, STRONG_WIDE.rate, STRONG_WIDE.weight_decay, STRONG_WIDE.crop) == (200, 0.1, 4e-4, 4)
    rates = learning_rates(STRONG_WIDE, 10)
    assert [float(rates[10 * epoch]) for epoch in (1, 60, 120, 160)] == pytest.approx([0.1, 0.02, 0.004, 0.0008])


def test_cosine_agrees_with_torchs_own() -> None:
    hyper = Hyperparameters(epochs=3, batch=1, rate=0.3, weight_decay=0)
    optimiser = torch.optim.SGD([torch.zeros(1)], lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=30)
    for rate in learning_rates(hyper, 10):
        assert schedule.get_last_lr()[0] == pytest.approx(float(rate), abs=1e-12)
        optimiser.step()
        schedule.step()


def test_milestones_count_from_the_first_step_and_warm_up_is_linear() -> None:
    rates = learning_rates(MC_DROPOUT, 10)
    assert rates[:10].tolist() == pytest.approx([0.005 * k for k in range(1, 11)])
    for epoch, factor in [(1, 1), (59, 1), (60, 0.2), (119, 0.2), (120, 0.04), (160, 0.008), (199, 0.008)]:
        assert rates[epoch * 10] == pytest.approx(0.05 * factor), epoch
