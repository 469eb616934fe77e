"""All methods on all test sets: predictions -> scores and block means."""

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import torch
from torch import Tensor

import lates
from experiments.data.corruptions import corrupt
from experiments.data.datasets import ImageSet
from experiments.evaluation.clock import OutOfTimeError
from experiments.evaluation.image_blocks import NATURAL_GROUP, Blocks, block_means, group_of
from experiments.evaluation.measured_sets import Measured, MeasuredSets, Measurement

CLEAN, NATURAL = "clean", NATURAL_GROUP
METRICS: tuple[str, ...] = (
    "ece", "ece_floor", "nll", "brier", "brier_paper", "accuracy", "auc", "auc_keras", "classwise_ece", "aurc",
    "auc_best_temperature", "ece_smooth",
)  # fmt: skip
"""What is measured; NaN is a number that does not exist."""
PER_CLASS = ("ece_floor", "classwise_ece", "auc", "auc_keras")
"""Those that take a pass for each class, or many draws: most of the time of all."""
BEST_AUC = "auc_best_temperature"
CORRUPTION_SEED = 0
"""Every network meets the same corrupted images."""
KEPT_BYTES = 8 << 30
"""Corrupted sets are kept for the next cell up to this size: all 95 of CIFAR take 3 GB."""
WIDEST, FINEST, FARTHEST = 2.0, 1 / 16, 8
"""Steps in log2 of the temperature by which `best_auc` climbs, from coarse to fine, and how far."""

Array = Tensor | np.ndarray
PredictAll = Callable[[ImageSet], Mapping[str, Tensor]]
"""n images -> method -> logits [n, classes]"""
Scores = Mapping[tuple[str, str], Mapping[str, float]]
"""(method, test set) -> metric -> value; a test set is `clean` or `<corruption>-<severity>`"""
Report = Callable[[str, int, int], None]
"""(stage, steps done, steps in all)"""


class CorruptedSets(Mapping[str, ImageSet]):
    """The test images, clean first, then under each corruption; made once and kept for the next cell while there is room.
    Last, where there are any, the `natural` images of another source."""

    def __init__(
        self, test: ImageSet, corruptions: Sequence[str], severities: Sequence[int], natural: ImageSet | None = None
    ) -> None:
        self.test, self.natural = test, natural
        self.wanted = {f"{name}-{severity}": (name, severity) for name in corruptions for severity in severities}
        self.kept: dict[str, Tensor] = {}
        self.room = len(self.wanted) * test.images.nbytes <= KEPT_BYTES

    def __len__(self) -> int:
        return 1 + len(self.wanted) + (self.natural is not None)

    def __iter__(self) -> Iterator[str]:
        yield CLEAN
        yield from self.wanted
        if self.natural is not None:
            yield NATURAL

    def __getitem__(self, name: str) -> ImageSet:
        if name == NATURAL and self.natural is not None:
            return self.natural
        if name == CLEAN:
            return self.test
        images = self.kept.get(name)
        if images is None:
            images = corrupt(self.test.images, *self.wanted[name], CORRUPTION_SEED)
            if self.room:
                self.kept[name] = images
        return replace(self.test, images=images)


def measure_sets(
    predict: PredictAll,
    sets: CorruptedSets,
    deadline: float = math.inf,
    report: Report = lambda stage, done, total: None,
    per_class: bool = True,
    kept: MeasuredSets | None = None,
    workers: int | None = None,
) -> tuple[Scores, Blocks]:
    """Of each method on each set, and the block means. `per_class`: with AUC and the like on corrupted sets too. Sets that are
    `kept` are not measured again."""
    measured: dict[str, Measurement] = {}
    if kept is not None:
        measured = {name: found for name in sets if (found := kept.load(name)) is not None}
    pending: dict[str, Mapping[str, Future[Measured]]] = {}

    def collect() -> None:
        for name, methods in pending.items():
            measured[name] = {method: future.result() for method, future in methods.items()}
            if kept is not None:
                kept.save(name, measured[name])
        pending.clear()

    left = [name for name in sets if name not in measured]
    with _workers(sets.test.images.device, workers) as pool:
        for done, name in enumerate(left, len(measured)):
            if time.monotonic() > deadline:
                collect()
                raise OutOfTimeError(f"The time was up after {done} of {len(sets)} test sets.")
            test = sets[name]
            left_out = () if name == CLEAN else (BEST_AUC, *(() if per_class else PER_CLASS))
            names = [metric for metric in METRICS if metric not in left_out]
            predicted, labels = predict(test), test.labels.cpu().numpy()
            logits = torch.stack([*predicted.values()]).cpu().numpy()  # one wait for the device
            collect()  # logits of two sets at most are held
            pending[name] = {
                method: pool.submit(_measure, of_method, labels, names)
                for method, of_method in zip(predicted, logits, strict=True)
            }
            report("evaluating", done + 1, len(sets))
        collect()
    return _gather({name: measured[name] for name in sets})


def _measure(logits: np.ndarray, labels: np.ndarray, names: Collection[str]) -> Measured:
    return score(logits, labels, names), block_means(logits, labels)


def _gather(measured: Mapping[str, Measurement]) -> tuple[Scores, Blocks]:
    """Method by method; block means over the sets of a group."""
    methods = dict.fromkeys(method for of_set in measured.values() for method in of_set)
    scores = {(method, name): measured[name][method][0] for method in methods for name in measured}
    parts: dict[tuple[str, str], list[np.ndarray]] = {}
    for name, of_set in measured.items():
        for method, (_, means) in of_set.items():
            parts.setdefault((method, group_of(name)), []).append(means)
    return scores, {key: np.mean(means, axis=0) for key, means in sorted(parts.items())}


def _workers(device: torch.device, workers: int | None) -> Executor:
    """Beside a GPU processes, since threads would take turns at Python; on a CPU the metrics share their rows among threads."""
    if device.type == "cuda":
        return ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,))
    return ThreadPoolExecutor(1)


def score(logits: Array, labels: Array, names: Collection[str] = METRICS) -> dict[str, float]:
    """The metrics of these names, of one method on one set, in the order of `METRICS`; NaN for the others."""
    values = lates.metrics.summary(logits, labels, metrics=[name for name in names if name != BEST_AUC])
    if BEST_AUC in names:
        values[BEST_AUC] = best_auc(logits, labels, values["auc"])
    return {name: values.get(name, math.nan) for name in METRICS}


def best_auc(logits: Array, labels: Array, at_one: float) -> float:
    """The largest area under the curve over softmax temperatures, found by climbing in log2 T from T = 1.

    Exact AUC depends on the temperature, since ranks across rows do: a method must not win by it alone.
    """
    best, place, step = at_one, 0.0, WIDEST
    while step >= FINEST and not math.isnan(best):
        near = {place + sign * step: lates.metrics.auc(logits / 2 ** (place + sign * step), labels) for sign in (-1, 1)}
        candidate = max(near, key=near.__getitem__)
        if near[candidate] > best and abs(candidate) <= FARTHEST:
            best, place = near[candidate], candidate
        else:
            step /= 2
    return best
