"""One pass over a test set -> the logits of each method, and which members were correct.

The three methods come from the same forward pass: the head's logits z are the network, z times the weight of temperature
scaling is the baseline, and sum_k weight_k logits_k is LATES. With several draws each is the log of the mean probability.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lates.model import CalibratedModel
from lates.network import HEAD, IGNORED, count_batches, device_of, mean_log_probability, read_batches
from lates.runtime import Progress, check_labels, check_logits

NETWORK, TEMPERATURE, LATES = "network", "temperature", "lates"


@dataclass(frozen=True, eq=False)
class Predictions:
    """Of n rows, on the CPU. `logits`: method -> [n, classes]; `correct`: member -> [n], whether its top class is the label."""

    labels: Tensor
    logits: dict[str, Tensor]
    correct: dict[str, Tensor]

    @property
    def classes(self) -> int:
        return next(iter(self.logits.values())).shape[1]


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
    members = [[next(names) for _ in (*network.voting, HEAD)] for network in calibrated.networks]
    labels: list[Tensor] = []
    logits: dict[str, list[Tensor]] = {method: [] for method in methods}
    correct: dict[str, list[Tensor]] = {member: [] for names in members for member in names}
    total = count_batches(loader)
    calibrated = copy.copy(calibrated)  # the same networks; only the generator is its own
    calibrated.generator = torch.Generator().manual_seed(seed)
    for done, batch in enumerate(read_batches(loader, device_of(calibrated), name), start=1):
        draws = calibrated.members(batch.inputs)
        draws = [draws] if isinstance(draws, Tensor) else draws
        kept = batch.labels != IGNORED
        if len(draws[0]) != batch.rows:
            raise ValueError(f"A {name} batch has {batch.rows} labels, but the network gave {len(draws[0])} rows.")
        if not kept.any():
            continue
        draws = [draw[kept].cpu().double() for draw in draws]  # not every device has float64
        kept_labels = check_labels(batch.labels[kept], int(kept.sum()), calibrated.fit.classes)
        by_network = [draws[i : i + calibrated.samples] for i in range(0, len(draws), calibrated.samples)]
        for method, values in _combine(calibrated, by_network, members).items():
            if method in logits:
                logits[method].append(check_logits(values, f"the {name} logits").float())
        for names, of_network in zip(members, by_network, strict=True):
            for place, member in enumerate(names):
                top = _mean([draw[..., place] for draw in of_network]).argmax(1)
                correct[member].append(top == kept_labels)
        labels.append(kept_labels)
        if progress is not None:
            progress(f"reading {name}", done, total)
    if not labels:
        raise ValueError(f"No row is left in {name}: every label is {IGNORED}, which marks rows to ignore.")
    return Predictions(
        torch.cat(labels), {m: torch.cat(v) for m, v in logits.items()}, {m: torch.cat(v) for m, v in correct.items()}
    )


def _combine(
    calibrated: CalibratedModel, by_network: Sequence[Sequence[Tensor]], members: Sequence[Sequence[str]]
) -> dict[str, Tensor]:
    """method -> logits [n, classes] from each network's draws [n, classes, members]."""
    weights = calibrated.weights
    network, scaled, stacked = [], [], []
    for draws, names, baseline in zip(by_network, members, calibrated.fit.temperature_weights, strict=True):
        stack = torch.tensor([weights[name] for name in names], dtype=torch.float64)
        network += [draw[..., -1] for draw in draws]
        scaled += [draw[..., -1] * baseline for draw in draws]
        stacked += [draw @ stack for draw in draws]
    return {NETWORK: _mean(network), TEMPERATURE: _mean(scaled), LATES: _mean(stacked)}


def _mean(logits: Sequence[Tensor]) -> Tensor:
    return logits[0] if len(logits) == 1 else mean_log_probability(logits)
