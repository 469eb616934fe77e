"""One pass over a test set -> the logits of each method.

The three methods come from the same forward pass: the head's logits z are the network, z times the weight of temperature
scaling is the baseline, and sum_k weight_k logits_k is LATES. Of several samples each is the log of the mean probability.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from lates.model import CalibratedModel
from lates.network import HEAD, IGNORED, count_batches, device_of, mean_log_probability, read_batches
from lates.runtime import Progress, check_labels, check_logits, shown

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
    pairs = [weights[:, 1:].float().T for weights in _method_weights(calibrated)]  # float32, as the model keeps its own
    differ = any(not torch.equal(temperature, stacked) for temperature, stacked in pairs)
    return (NETWORK, TEMPERATURE, LATES) if differ else (NETWORK, TEMPERATURE)


def read_predictions(
    calibrated: CalibratedModel, sets: Mapping[str, Iterable[Any]], *, seed: int = 0, progress: bool | Progress = True
) -> dict[str, Predictions]:
    """Read each test set once. MC dropout samples from `seed`, anew for each set, so that a report is reproducible."""
    with shown(progress) as report:
        return {name: _read_set(copy.copy(calibrated), loader, name, seed, report) for name, loader in sets.items()}


def _read_set(
    calibrated: CalibratedModel, loader: Iterable[Any], name: str, seed: int, progress: Progress | None
) -> Predictions:
    """`calibrated` is a shallow copy: the same networks; only the generator is its own."""
    methods, weights = methods_of(calibrated), _method_weights(calibrated)
    labels: list[Tensor] = []
    logits: dict[str, list[Tensor]] = {method: [] for method in methods}
    total = count_batches(loader)
    calibrated.generator = torch.Generator().manual_seed(seed)
    for done, (inputs, given) in enumerate(read_batches(loader, device_of(calibrated), name), start=1):
        samples = calibrated.members(inputs)
        samples = [samples] if isinstance(samples, Tensor) else samples
        kept = given != IGNORED
        if len(samples[0]) != len(given):
            raise ValueError(f"A {name} batch has {len(given)} labels, but the network gave {len(samples[0])} rows.")
        if not kept.any():
            continue
        labels.append(check_labels(given[kept], int(kept.sum()), calibrated.fit.classes))
        # float64 on the CPU, as not every device has it; [n, methods, classes] of each sample
        combined = [
            (sample[kept].cpu().double() @ weights[index // calibrated.samples]).mT for index, sample in enumerate(samples)
        ]
        values = combined[0] if len(combined) == 1 else mean_log_probability(combined)
        for index, method in enumerate(methods):
            logits[method].append(check_logits(values[:, index], f"the {name} logits").float())
        if progress is not None:
            progress(f"reading {name}", done, total)
    if not labels:
        raise ValueError(f"No row is left in {name}: every label is {IGNORED}, which marks rows to ignore.")
    return Predictions(torch.cat(labels), {method: torch.cat(parts) for method, parts in logits.items()})


def _method_weights(calibrated: CalibratedModel) -> list[Tensor]:
    """For each network [members, methods]: every method is a weighted sum of the members, of which the head is the last."""
    names, weights = iter(calibrated.member_names), []
    for network, temperature in zip(calibrated.networks, calibrated.fit.temperature_weights, strict=True):
        stacked = torch.tensor([calibrated.weights[next(names)] for _ in (*network.voting, HEAD)], dtype=torch.float64)
        head = torch.zeros_like(stacked)
        head[-1] = 1
        weights.append(torch.stack([head, temperature * head, stacked], dim=1))
    return weights
