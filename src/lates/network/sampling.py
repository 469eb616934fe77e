"""Networks whose prediction is a mean: MC dropout, ensembles.

The mean is one of probabilities, log (1/S) sum_s softmax(z_s): averaging logits would answer another question.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from lates.network.recorder import DROPOUTS, RecordedNetwork, device_of, switch_to_evaluation
from lates.runtime import check_integer, check_seed, seeded_globally

T = TypeVar("T")


class MCDropout(nn.Module):
    """A network predicted with dropout on, `samples` times, batch norm and all else in evaluation.

    forward returns the log of the mean probability [n, classes], which are valid logits. Every call draws new masks from
    `generator`; `generator.manual_seed(…)` makes calls repeatable. The global random state is not touched.
    """

    def __init__(self, model: nn.Module, samples: int = 10, seed: int = 0) -> None:
        super().__init__()
        self.samples = check_integer(samples, "samples", least=1)
        if not any(_dropout_rate(part) > 0 for part in model.modules()):
            raise ValueError(
                "This model has no dropout layer (such as nn.Dropout) with a rate above 0, so every sample would be the same."
            )
        self.network = switch_to_evaluation(RecordedNetwork(model, {}), dropout=True)
        self.generator = torch.Generator().manual_seed(check_seed(seed))

    def forward(self, *inputs: Any, **named_inputs: Any) -> Tensor:
        with drawing_from(self.generator, device_of(self.network)):
            return mean_log_probability([self.network(*inputs, **named_inputs)[0] for _ in range(self.samples)])

    def train(self, mode: bool = True) -> "MCDropout":
        """Does nothing: dropout stays on and the rest in evaluation."""
        return self


def mc_dropout(model: nn.Module, samples: int = 10, *, seed: int = 0) -> MCDropout:
    """Predict with dropout on: the mean of `samples` predictions. Pass the result to `calibrate` like any model.

    >>> sampled = lates.mc_dropout(model, samples=10)
    >>> calibrated = lates.calibrate(sampled, train=train_loader, holdout=holdout_loader)
    """
    return MCDropout(model, samples, seed)


@dataclass(frozen=True)
class Ensemble:
    """The networks behind a prediction. A plain model is an ensemble of one; MC dropout has one network and `samples` of its
    predictions, each with other units dropped."""

    networks: tuple[nn.Module, ...]
    samples: int = 1
    dropout: bool = False

    def per_sample(self, items: Sequence[T]) -> list[T]:
        """The item of each network, once for each of its samples."""
        return [item for item in items for _ in range(self.samples)]


def read_ensemble(model: nn.Module | Sequence[nn.Module]) -> Ensemble:
    if isinstance(model, MCDropout):
        return Ensemble((model.network.network,), model.samples, dropout=True)
    if isinstance(model, nn.Module):
        return Ensemble((model,))
    if not isinstance(model, Sequence) or not model or not all(isinstance(part, nn.Module) for part in model):
        raise TypeError(f"Expected an nn.Module, mc_dropout(…) or a list of nn.Modules; got {type(model).__name__}.")
    if any(isinstance(part, MCDropout) for part in model):
        raise TypeError("An ensemble of MC-dropout networks is not supported; pass plain networks, or one mc_dropout(…).")
    return Ensemble(tuple(model))


def mean_log_probability(logits: Sequence[Tensor]) -> Tensor:
    """log of the mean of softmax over several logits [n, classes]."""
    stacked = torch.stack([values.log_softmax(-1) for values in logits])
    return stacked.logsumexp(0) - math.log(len(logits))


def drawing_from(generator: torch.Generator, device: torch.device) -> AbstractContextManager[None]:
    """Within, the global generators start from a seed drawn from `generator`; afterwards they are as before."""
    return seeded_globally(int(torch.randint(2**62, (1,), generator=generator)), device)


def _dropout_rate(module: nn.Module) -> float:
    """Of a dropout layer, or of one of PyTorch's own layers that apply dropout themselves; 0 for all else."""
    rate = getattr(module, "p", getattr(module, "dropout", 0.0))
    return rate if isinstance(module, DROPOUTS) and isinstance(rate, float | int) else 0.0
