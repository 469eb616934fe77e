"""Ways to train a network, the paper's and a strong one, as data, and the learning rate of each of their steps."""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from experiments.data.datasets import LARGE


@dataclass(frozen=True)
class Hyperparameters:
    """How a network is trained: SGD on the log-loss with weight decay (weight_decay/2)·‖w‖² on every parameter, or AdamW with
    its decay; the momentum is SGD's.

    The learning rate rises linearly over the warm-up epochs, then falls along a cosine to zero; or, with `milestones`
    (fractions of all steps), it stays and is multiplied by `factor` at each.
    """

    epochs: int
    batch: int
    rate: float
    weight_decay: float
    momentum: float = 0.9
    nesterov: bool = False
    warmup_epochs: int = 0
    milestones: tuple[float, ...] = ()
    factor: float = 1.0
    bfloat16: bool = False  # on a CPU; on a GPU always
    crop: int = 0  # shift by up to this many pixels, padded with zeros; left-right flips are always on
    optimiser: Literal["sgd", "adamw"] = "sgd"


_DEFAULTS = json.loads(json.dumps({each.name: each.default for each in fields(Hyperparameters) if each.default is not MISSING}))


def without_defaults(recorded: Any) -> Any:
    """Recorded hyperparameters as they compare: a field that came later leaves earlier records what they were."""
    if not isinstance(recorded, Mapping):
        return recorded
    return {name: value for name, value in recorded.items() if name not in _DEFAULTS or value != _DEFAULTS[name]}


PAPER_CIFAR = Hyperparameters(epochs=200, batch=128, rate=0.1, weight_decay=1e-4)
PAPER_IMAGENET = Hyperparameters(
    epochs=95, batch=256, rate=0.1, weight_decay=1e-4, warmup_epochs=5, milestones=(0.3, 0.6, 0.9), factor=0.1
)
# Uncertainty Baselines' recipe for MC dropout. Its penalty is 3e-4·‖w‖² without the half, so the decay is 6e-4.
MC_DROPOUT = Hyperparameters(
    epochs=200, batch=128, rate=0.05, weight_decay=6e-4, nesterov=True, warmup_epochs=1, milestones=(0.3, 0.6, 0.8),
    factor=0.2, crop=4,
)  # fmt: skip
# How people train such networks: crops, more decay, Nesterov's momentum. The warm-up is for group norm and attention.
STRONG = Hyperparameters(epochs=100, batch=128, rate=0.1, weight_decay=5e-4, nesterov=True, warmup_epochs=5, crop=4)
# By SGD most blocks of the small transformer change nothing; by AdamW at 1e-3 its loss becomes NaN after ten epochs.
STRONG_VIT = Hyperparameters(
    epochs=100, batch=128, rate=3e-4, weight_decay=0.05, warmup_epochs=5, crop=4, optimiser="adamw"
)  # fmt: skip
# Uncertainty Baselines' deterministic recipe for WRN-28-10. Its penalty is 2e-4·‖w‖² without the half, so the decay is 4e-4.
STRONG_WIDE = replace(MC_DROPOUT, rate=0.1, weight_decay=4e-4)


def choose_hyperparameters(dataset: str, *, dropout: float = 0.0) -> Hyperparameters:
    if dataset in LARGE:
        return PAPER_IMAGENET
    return MC_DROPOUT if dropout > 0 else PAPER_CIFAR


def learning_rates(hyper: Hyperparameters, steps_per_epoch: int) -> Tensor:
    """The learning rate of every step, float64 [steps].

    With T steps of which the first W warm up: rate·(t + 1)/W for t < W, then rate·(1 + cos(π·(t − W)/(T − W)))/2, or
    rate·factor^m with m the number of milestones f for which t >= f·T.
    """
    steps, warmup = hyper.epochs * steps_per_epoch, hyper.warmup_epochs * steps_per_epoch
    t = torch.arange(steps, dtype=torch.float64)
    if hyper.milestones:
        passed = sum((t >= fraction * steps).double() for fraction in hyper.milestones)
        rates = hyper.rate * hyper.factor**passed
    else:
        rates = hyper.rate * (1 + torch.cos(math.pi * (t - warmup) / max(steps - warmup, 1))) / 2
    return torch.where(t < warmup, hyper.rate * (t + 1) / max(warmup, 1), rates)
