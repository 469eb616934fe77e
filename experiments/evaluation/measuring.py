"""All methods on all test sets, measured beside the device's work: predictions -> rows and block means.

While the device computes the next set, the host's cores measure the last one: the metrics are float64 work without a GPU's
advantage.
"""

import math
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

import lates
from experiments.data.corruptions import corrupt
from experiments.data.datasets import ImageSet
from experiments.evaluation.clock import OutOfTimeError
from experiments.evaluation.image_blocks import BLOCKED_METHODS, Blocks, block_means, group_of

CLEAN = "clean"
METRICS = (
    "ece", "ece_floor", "nll", "brier", "brier_paper", "accuracy", "auc", "auc_keras", "classwise_ece", "aurc",
    "auc_best_temperature", "ece_smooth",
)  # fmt: skip
"""What is measured; NaN is a number that does not exist."""
CORRUPTION_SEED = 0
"""Every network meets the same corrupted images."""
KEPT_BYTES = 8 << 30
"""Corrupted sets are kept for the next cell up to this size: all 95 of CIFAR take 3 GB."""


WIDEST, FINEST, FARTHEST = 2.0, 1 / 16, 8
"""Steps in log2 of the temperature by which `best_auc` climbs, from coarse to fine, and how far."""


PredictAll = Callable[[ImageSet], Mapping[str, Tensor]]
"""n images -> method -> logits [n, classes]"""


Report = Callable[[str, int, int], None]
"""(stage, steps done, steps in all)"""


@dataclass(frozen=True)
class Row:
    """What one method measured on one test set: `clean` or `<corruption>-<severity>`; a value per name in `METRICS`."""

    method: str
    set: str
    metrics: Mapping[str, float]

    @property
    def corruption(self) -> str:
        """`fog` of `fog-3`; of the clean set its own name."""
        return self.set.rpartition("-")[0] or self.set

    @property
    def severity(self) -> int:
        """3 of `fog-3`; 0 of the clean set."""
        return int(self.set.rpartition("-")[2]) if self.set != CLEAN else 0


class CorruptedSets:
    """The test images, clean first, then under each corruption; made once and kept for the next cell while there is room."""

    def __init__(self, test: ImageSet, corruptions: Sequence[str], severities: Sequence[int]) -> None:
        self.test = test
        self.wanted = {f"{name}-{severity}": (name, severity) for name in corruptions for severity in severities}
        self.kept: dict[str, Tensor] = {}
        self.room = len(self.wanted) * test.images.nbytes <= KEPT_BYTES

    def __len__(self) -> int:
        return 1 + len(self.wanted)

    def __iter__(self) -> Iterator[tuple[str, ImageSet]]:
        yield CLEAN, self.test
        for name, (corruption, severity) in self.wanted.items():
            images = self.kept.get(name)
            if images is None:
                images = corrupt(self.test.images, corruption, severity, CORRUPTION_SEED)
                if self.room:
                    self.kept[name] = images
            yield name, replace(self.test, images=images)


@contextmanager
def measuring_pool(device: torch.device) -> Iterator[Executor]:
    """Workers that call `measure`, each on one core.

    Beside a GPU they are processes: threads would share the interpreter with the one that keeps the GPU busy, and all wait
    for one another. Where the network runs on the CPU too, it leaves them little to do, and threads need no start.
    """
    if device.type == "cpu":
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            yield threads
        return
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), spawned, initializer=_work_on_one_core) as processes:
        for _ in range(os.cpu_count() or 1):
            processes.submit(os.getpid)  # starts one more, which takes its seconds while the cell is being fitted
        yield processes


def _work_on_one_core() -> None:
    """Also leave when the parent is gone, however it went: the queue alone would keep a worker waiting forever."""
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def measure_sets(
    predict: PredictAll,
    sets: CorruptedSets,
    pool: Executor,
    deadline: float = math.inf,
    report: Report = lambda stage, done, total: None,
) -> tuple[tuple[Row, ...], Blocks]:
    """A row per method and set, and the block means of some. One set is predicted while the one before is measured."""
    labels = sets.test.labels.cpu().numpy()
    rows: list[Row] = []
    parts: dict[tuple[str, str], list[np.ndarray]] = {}
    waiting: dict[str, Future[tuple[dict[str, float], np.ndarray | None]]] = {}
    waiting_set = ""

    def collect() -> None:
        for method, future in waiting.items():
            metrics, blocks = future.result()
            row = Row(method, waiting_set, metrics)
            rows.append(row)
            if blocks is not None:
                parts.setdefault((method, group_of(row.corruption)), []).append(blocks)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # workers that each split their work among all cores would only wait for one another
    try:
        for done, (name, test) in enumerate(sets):
            if time.monotonic() > deadline:
                raise OutOfTimeError(f"The time was up after {done} of {len(sets)} test sets.")
            logits = {method: values.cpu() for method, values in predict(test).items()}
            collect()
            waiting = {
                method: pool.submit(measure, values.numpy(), labels, method in BLOCKED_METHODS, name == CLEAN)
                for method, values in logits.items()
            }
            waiting_set = name
            report("evaluating", done + 1, len(sets))
        collect()
    finally:
        for future in waiting.values():
            future.cancel()
        torch.set_num_threads(threads)
    order = {method: place for place, method in enumerate(waiting)}
    return tuple(sorted(rows, key=lambda row: order[row.method])), {
        key: np.mean(blocks, axis=0) for key, blocks in sorted(parts.items())
    }


def measure(
    logits: np.ndarray, labels: np.ndarray, with_blocks: bool, clean: bool
) -> tuple[dict[str, float], np.ndarray | None]:
    """One method on one set: all its metrics and, if asked for, its block means. Arrays travel between processes."""
    values, truth = torch.from_numpy(logits), torch.from_numpy(labels)
    return score(values, truth, clean=clean), block_means(values, truth) if with_blocks else None


def score(logits: Tensor, labels: Tensor, *, clean: bool) -> dict[str, float]:
    """All metrics of one method on one set, in the order of `METRICS`; the costly `best_auc` of the clean set alone."""
    values = lates.metrics.summary(logits, labels)
    values |= {
        "brier_paper": values["brier"] - 1,
        "auc_keras": lates.metrics.auc_keras(logits, labels),
        "auc_best_temperature": best_auc(logits, labels, values["auc"]) if clean else math.nan,
        "ece_smooth": lates.metrics.ece_smooth(logits, labels),
    }
    return {name: values[name] for name in METRICS}


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
