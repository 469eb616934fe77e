"""Row 4: all of `calibrate`, in units of one inference pass over the training split, on ResNet18 and images of CIFAR's size.

Without views it reads the training split once, by default four times, one view of each image at a time. The goal is the number
of these readings and two passes more, for everything else.

On the CPU the splits are a 64th of CIFAR's 45,000 and 5,000 images: the passes grow with n, and the fits hardly faster.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import lates
from benchmarks.contest import FEWER_ROUNDS, OURS, THREADS, in_units, seconds_of
from benchmarks.records import Goal, Group, beside_unit
from benchmarks.rows.network import make_loader, make_network

FULL_TRAIN, FULL_HOLDOUT = 45_000, 5_000
TRAIN, HOLDOUT = FULL_TRAIN // 64, FULL_HOLDOUT // 64
BESIDE_READINGS = 2
VIEWS: Mapping[str, Literal["robust"] | None] = {"no views": None, "default": "robust"}
READINGS = {"no views": 1, "default": lates.DEFAULT.passes}
Loader = DataLoader[tuple[Tensor, ...]]
Progress = Callable[[str, int, int | None], None]


def measure(
    train: int = TRAIN, holdout: int = HOLDOUT, rounds: int = FEWER_ROUNDS, threads: int = THREADS, device: str = "cpu"
) -> Iterator[Group]:
    torch.set_num_threads(threads)
    network = make_network().to(device)
    training, holdout_loader = make_loader(train, seed=1), make_loader(holdout, seed=2)
    infer(network, holdout_loader, device)  # so that the unit is not longer for what comes only once
    for title, views in VIEWS.items():
        stages: dict[str, float] = {}

        def fit(views: Literal["robust"] | None = views, stages: dict[str, float] = stages) -> None:
            calibrate_quietly(network, training, holdout_loader, views, stopwatch(stages))

        times = in_units(lambda: seconds_of(lambda: infer(network, training, device)), partial(seconds_of, fit), rounds)
        passes, (low, high) = times.median, times.quartiles
        shares = {name.split()[-1]: seconds / sum(times.runs) for name, seconds in stages.items()}
        shares["rest"] = 1 - sum(shares.values())
        parts = ", ".join(f"{name} {share * passes:.2f}" for name, share in shares.items())
        limit, reached = READINGS[title] + BESIDE_READINGS, f"{passes:.2f} (quartiles {low:.2f} to {high:.2f})"
        goal = Goal(f"under {limit} inference passes, {READINGS[title]} of them to read the split", reached, passes < limit)
        where = "" if device == "cpu" else f", {device}"
        lines = beside_unit(OURS, "one inference pass", times, parts)
        yield Group(4, f"calibrate, {title}, ResNet18, {train:,} + {holdout:,} images{where}", lines, (goal,))


def calibrate_quietly(
    network: nn.Module, train: Loader, holdout: Loader, views: Literal["robust"] | None, progress: Progress
) -> None:
    with warnings.catch_warnings():
        for doubt in ("The weights are fitted to", "The network is right on"):  # rows enough to time
            warnings.filterwarnings("ignore", doubt)
        lates.calibrate(network, train=train, holdout=holdout, views=views, progress=progress)


def stopwatch(stages: dict[str, float]) -> Progress:
    """A listener to progress that books the time between two reports under the stage of the later one."""
    last = time.perf_counter()

    def listen(stage: str, done: int, total: int | None) -> None:
        nonlocal last
        now = time.perf_counter()
        stages[stage] = stages.get(stage, 0.0) + now - last
        last = now

    return listen


@torch.inference_mode()
def infer(network: nn.Module, loader: Loader, device: str) -> float:
    """What the pass costs that every evaluation of a network makes."""
    return float(torch.cat([network(images.to(device)) for images, _ in loader])[0, 0])
