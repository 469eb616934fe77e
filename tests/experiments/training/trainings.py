"""Short trainings of small networks, shared by the tests of the loop, its checkpoints and its deaths."""

import pytest
import torch
from torch import nn

from experiments.training.checkpoints import Progress
from experiments.training.hyperparameters import Hyperparameters

SHORT = Hyperparameters(epochs=2, batch=100, rate=0.05, weight_decay=1e-3, nesterov=True, crop=2)
ADAMW = Hyperparameters(epochs=2, batch=100, rate=0.005, weight_decay=0.05, crop=2, optimiser="adamw")


def dropout_network() -> nn.Module:
    """Small, with batch norm and dropout: all kinds of state that a resumed run has to bring back."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2)
    return nn.Sequential(*convolution, nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 10))


def plain_network() -> nn.Module:
    """Without batch norm or dropout, so that a batch may be cut into parts."""
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 10)
    return nn.Sequential(*layers)


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def fail_if_trained(progress: Progress) -> None:
    pytest.fail(f"a finished run was trained again: {progress}")
