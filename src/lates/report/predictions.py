"""One reading of a test set -> what each method says of every row, and which members were right.

The three methods come from the same forward pass: the head's logits z are the network, z times temperature scaling's weight
is its rival, and sum_k weight_k logits_k is LATES. With several draws each is the log of the mean probability.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lates.batches import IGNORED, count_batches, read_batches
from lates.checks import check_labels, check_logits
from lates.model import CalibratedModel
from lates.progress import Progress
from lates.sampling import mean_log_probability
from lates.taps import device_of

NETWORK, TEMPERATURE, LATES = "network", "temperature", "lates"


@dataclass(frozen=True, eq=False)
class Predictions:
    """Of n rows, on the CPU. `logits`: method -> [n, classes]; `right`: member -> [n], whether its top class is the label."""

    labels: Tensor
    logits: dict[str, Tensor]
    right: dict[str, Tensor]

    @property
    def rows(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        return next(iter(self.logits.values())).shape[1]


def methods_of(calibrated: CalibratedModel) -> tuple[str, ...]:
    """Network, temperature scaling, LATES; without LATES where the calibrated model is temperature scaling itself."""
    voting = [calibrated.weights[name] for name in calibrated.member_names]
    if voting == [_single(w) for w in calibrated.fit.temperature_weights]:
        return NETWORK, TEMPERATURE
    return NETWORK, TEMPERATURE, LATES


def read_predictions(
    calibrated: CalibratedModel, loader: Iterable[Any], name: str, *, seed: int, progress: Progress | None = None
) -> Predictions:
    """Read the loader once. MC dropout draws from `seed`, so that a report can be had twice."""
    methods, members = methods_of(calibrated), _members_by_network(calibrated)
    labels: list[Tensor] = []
    logits: dict[str, list[Tensor]] = {method: [] for method in methods}
    right: dict[str, list[Tensor]] = {member: [] for names in members for member in names}
    total = count_batches(loader)
    with _drawing_anew(calibrated, seed):
        for done, batch in enumerate(read_batches(loader, device_of(calibrated), name), start=1):
            draws = calibrated.members(batch.inputs)
            draws = [draws] if isinstance(draws, Tensor) else draws
            kept = batch.labels != IGNORED
            if len(draws[0]) != batch.rows:
                raise ValueError(f"A {name} batch has {batch.rows} labels, but the network gave {len(draws[0])} rows.")
            if not kept.any():
                continue
            draws = [draw[kept].cpu().double() for draw in draws]  # not every device knows float64
            own = check_labels(batch.labels[kept], int(kept.sum()), calibrated.fit.classes)
            by_network = [draws[i : i + calibrated.samples] for i in range(0, len(draws), calibrated.samples)]
            for method, values in _combine(calibrated, by_network, members).items():
                if method in logits:
                    logits[method].append(check_logits(values, f"the {name} logits").float())
            for names, of_network in zip(members, by_network, strict=True):
                for place, member in enumerate(names):
                    top = _mean([draw[..., place] for draw in of_network]).argmax(1)
                    right[member].append(top == own)
            labels.append(own)
            if progress is not None:
                progress(f"reading {name}", done, total)
    if not labels:
        raise ValueError(f"No row is left in {name}: every label is {IGNORED}, which marks rows to ignore.")
    return Predictions(
        torch.cat(labels), {m: torch.cat(v) for m, v in logits.items()}, {m: torch.cat(v) for m, v in right.items()}
    )


def _combine(
    calibrated: CalibratedModel, by_network: Sequence[Sequence[Tensor]], members: Sequence[Sequence[str]]
) -> dict[str, Tensor]:
    """method -> logits [n, classes] from each network's draws [n, classes, members]."""
    weights = calibrated.weights
    network, scaled, stacked = [], [], []
    for draws, names, rival in zip(by_network, members, calibrated.fit.temperature_weights, strict=True):
        votes = torch.tensor([weights[name] for name in names], dtype=torch.float64)
        network += [draw[..., -1] for draw in draws]
        scaled += [draw[..., -1] * rival for draw in draws]
        stacked += [draw @ votes for draw in draws]
    return {NETWORK: _mean(network), TEMPERATURE: _mean(scaled), LATES: _mean(stacked)}


def _mean(logits: Sequence[Tensor]) -> Tensor:
    return logits[0] if len(logits) == 1 else mean_log_probability(logits)


def _members_by_network(calibrated: CalibratedModel) -> list[list[str]]:
    """The names of the members that are computed, network by network; each network's list ends with its head."""
    every = list(calibrated.weights)
    networks = len(calibrated.voters)
    computed = set(calibrated.member_names)
    prefixes = [f"{place}/" if networks > 1 else "" for place in range(networks)]
    return [[name for name in every if name.startswith(prefix) and name in computed] for prefix in prefixes]


@contextmanager
def _drawing_anew(calibrated: CalibratedModel, seed: int) -> Iterator[None]:
    """Inside, the model draws from a generator of its own; afterwards it goes on where it was."""
    before = calibrated.generator
    calibrated.generator = torch.Generator().manual_seed(seed)
    try:
        yield
    finally:
        calibrated.generator = before


def _single(value: float) -> float:
    """Rounded to float32, in which a model keeps its weights."""
    return float(torch.tensor(value, dtype=torch.float32))


def read_sets(test: Iterable[Any] | Mapping[str, Iterable[Any]]) -> dict[str, Iterable[Any]]:
    """name -> loader, the plain test set first; a loader by itself is called "test"."""
    sets = {str(name): loader for name, loader in test.items()} if isinstance(test, Mapping) else {"test": test}
    if not sets:
        raise ValueError("No test set came: expected a loader, or a mapping name -> loader with at least one.")
    return sets
