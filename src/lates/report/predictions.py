"""One pass over a test set -> the logits of each method.

The three methods come from the same forward pass: the head's logits z are the network, z times the weight of temperature
scaling is the baseline, and sum_k weight_k logits_k is LATES. With several draws each is the log of the mean probability.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from lates.model import CalibratedModel
from lates.network import HEAD, IGNORED, count_batches, device_of, mean_log_probability, read_batches
from lates.runtime import Progress, check_labels, check_logits

T = TypeVar("T")

NETWORK, TEMPERATURE, LATES = "network", "temperature", "lates"


@dataclass(frozen=True, eq=False)
class Predictions:
    """Of n rows, on the CPU: labels [n], and method -> logits [n, classes]."""

    labels: Tensor
    logits: dict[str, Tensor]

    def by_method(self, metric: Callable[[Tensor, Tensor], T]) -> dict[str, T]:
        """A function of logits and labels, for each method."""
        return {method: metric(logits, self.labels) for method, logits in self.logits.items()}


def methods_of(calibrated: CalibratedModel) -> tuple[str, ...]:
    """Network, temperature scaling, LATES; without LATES if the calibrated model is temperature scaling itself."""
    weights = [calibrated.weights[name] for name in calibrated.member_names]
    of_temperature = torch.tensor(calibrated.fit.temperature_weights, dtype=torch.float32)  # as the model keeps its own
    if weights == of_temperature.tolist():
        return NETWORK, TEMPERATURE
    return NETWORK, TEMPERATURE, LATES


def read_predictions(
    calibrated: CalibratedModel, loader: Iterable[Any], name: str, *, seed: int, progress: Progress | None = None
) -> Predictions:
    """Read the loader once. MC dropout samples from `seed`, so that a report is reproducible."""
    methods, names = methods_of(calibrated), iter(calibrated.member_names)
    stacks = [
        torch.tensor([calibrated.weights[next(names)] for _ in (*network.voting, HEAD)], dtype=torch.float64)
        for network in calibrated.networks
    ]
    labels: list[Tensor] = []
    logits: dict[str, list[Tensor]] = {method: [] for method in methods}
    total = count_batches(loader)
    calibrated = copy.copy(calibrated)  # the same networks; only the generator is its own
    calibrated.generator = torch.Generator().manual_seed(seed)
    for done, (inputs, given) in enumerate(read_batches(loader, device_of(calibrated), name), start=1):
        draws = calibrated.members(inputs)
        draws = [draws] if isinstance(draws, Tensor) else draws
        kept = given != IGNORED
        if len(draws[0]) != len(given):
            raise ValueError(f"A {name} batch has {len(given)} labels, but the network gave {len(draws[0])} rows.")
        if not kept.any():
            continue
        draws = [draw[kept].cpu().double() for draw in draws]  # not every device has float64
        labels.append(check_labels(given[kept], int(kept.sum()), calibrated.fit.classes))
        for method, values in zip(methods, _combine(calibrated, draws, stacks), strict=False):
            logits[method].append(check_logits(values, f"the {name} logits").float())
        if progress is not None:
            progress(f"reading {name}", done, total)
    if not labels:
        raise ValueError(f"No row is left in {name}: every label is {IGNORED}, which marks rows to ignore.")
    return Predictions(torch.cat(labels), {method: torch.cat(parts) for method, parts in logits.items()})


def _combine(
    calibrated: CalibratedModel, draws: Sequence[Tensor], stacks: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [n, classes] of network, temperature scaling and LATES, from every network's draws [n, classes, members]."""
    network, scaled, stacked = [], [], []
    for place, draw in enumerate(draws):
        which = place // calibrated.samples
        network.append(draw[..., -1])
        scaled.append(draw[..., -1] * calibrated.fit.temperature_weights[which])
        stacked.append(draw @ stacks[which])
    return _mean(network), _mean(scaled), _mean(stacked)


def _mean(logits: Sequence[Tensor]) -> Tensor:
    return logits[0] if len(logits) == 1 else mean_log_probability(logits)
