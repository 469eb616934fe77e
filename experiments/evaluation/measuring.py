"""All methods on all test sets: predictions -> rows and block means, a thread for each method."""

import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

import lates
from experiments.data.corruptions import corrupt
from experiments.data.datasets import ImageSet
from experiments.evaluation.clock import OutOfTimeError
from experiments.evaluation.image_blocks import NATURAL_GROUP, Blocks, block_means, group_of

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

PredictAll = Callable[[ImageSet], Mapping[str, Tensor]]
"""n images -> method -> logits [n, classes]"""
Scores = Mapping[tuple[str, str], Mapping[str, float]]
"""(method, test set) -> metric -> value; a test set is `clean` or `<corruption>-<severity>`"""
Report = Callable[[str, int, int], None]
"""(stage, steps done, steps in all)"""


class CorruptedSets:
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

    def __iter__(self) -> Iterator[tuple[str, ImageSet]]:
        yield CLEAN, self.test
        for name, (corruption, severity) in self.wanted.items():
            images = self.kept.get(name)
            if images is None:
                images = corrupt(self.test.images, corruption, severity, CORRUPTION_SEED)
                if self.room:
                    self.kept[name] = images
            yield name, replace(self.test, images=images)
        if self.natural is not None:
            yield NATURAL, self.natural


def measure_sets(
    predict: PredictAll,
    sets: CorruptedSets,
    deadline: float = math.inf,
    report: Report = lambda stage, done, total: None,
    per_class: bool = True,
) -> tuple[Scores, Blocks]:
    """Of each method on each set, and the block means. `per_class`: with AUC and the like on corrupted sets too."""
    by_set: dict[str, dict[str, Mapping[str, float]]] = {}
    parts: dict[tuple[str, str], list[np.ndarray]] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, (name, test) in enumerate(sets):
            if time.monotonic() > deadline:
                raise OutOfTimeError(f"The time was up after {done} of {len(sets)} test sets.")
            logits, labels = predict(test), test.labels
            with _one_thread_each():
                left_out = () if name == CLEAN else (BEST_AUC, *(() if per_class else PER_CLASS))
                names = [metric for metric in METRICS if metric not in left_out]
                scores = [*pool.map(partial(score, labels=labels, names=names), logits.values())]
            by_set[name] = dict(zip(logits, scores, strict=True))
            for method, values in logits.items():
                parts.setdefault((method, group_of(name)), []).append(block_means(values, labels))
            report("evaluating", done + 1, len(sets))
    blocks = {key: np.mean(means, axis=0) for key, means in sorted(parts.items())}
    return {(method, name): by_set[name][method] for method in by_set[CLEAN] for name in by_set}, blocks


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Workers that each split their work among all cores would only wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def score(logits: Tensor, labels: Tensor, names: Collection[str] = METRICS) -> dict[str, float]:
    """The metrics of these names, of one method on one set, in the order of `METRICS`; NaN for the others."""
    values = lates.metrics.summary(logits, labels, metrics=[name for name in names if name != BEST_AUC])
    if BEST_AUC in names:
        values[BEST_AUC] = best_auc(logits, labels, values["auc"])
    return {name: values.get(name, math.nan) for name in METRICS}


def best_auc(logits: Tensor, labels: Tensor, at_one: float) -> float:
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
