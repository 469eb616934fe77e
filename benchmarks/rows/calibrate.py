"""Row 4: all of `calibrate`, in units of one inference pass over the training split, on ResNet18 and images of CIFAR's size.

On the CPU the splits are a 32nd of CIFAR's 45,000 and 5,000 images: the passes grow with n, and the fits hardly faster.
"""

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import lates
from benchmarks.contest import OURS, THREADS, interleave
from benchmarks.records import Goal, Group, Line
from benchmarks.rows.network import make_loader, make_network
from benchmarks.rows.stack import timed

FULL_TRAIN, FULL_HOLDOUT = 45_000, 5_000
TRAIN, HOLDOUT = FULL_TRAIN // 32, FULL_HOLDOUT // 32
PASSES = 3.0


def measure(
    train: int = TRAIN, holdout: int = HOLDOUT, rounds: int = 1, threads: int = THREADS, device: str = "cpu"
) -> Iterator[Group]:
    torch.set_num_threads(threads)
    network = make_network().to(device)
    training, held = make_loader(train, seed=1), make_loader(holdout, seed=2)
    stages: dict[str, float] = {}

    def fit() -> float:
        stages.clear()
        calibrated = lates.calibrate(network, train=training, holdout=held, progress=stopwatch(stages))
        return calibrated.fit.nll

    infer(network, held, device)  # so that the unit is not longer for what comes only once
    runs = {"one inference pass": timed(lambda: infer(network, training, device)), OURS: timed(fit)}
    unit, ours = interleave(runs, rounds)
    if ours.fault or unit.fault:
        raise RuntimeError(ours.fault or unit.fault)
    passes = ours.median / unit.median
    parts = [f"{name.split()[-1]} {seconds / unit.median:.2f}" for name, seconds in stages.items()]
    rest = f"rest {passes - sum(stages.values()) / unit.median:.2f}"
    lines = (
        Line(OURS, ours.median, ratio=1.0, reached=", ".join([*parts, rest]), repeats=tuple(ours.seconds)),
        Line("one inference pass", unit.median, ratio=unit.median / ours.median, repeats=tuple(unit.seconds)),
    )
    goal = Goal("under 3 inference passes", f"{passes:.2f}", passes < PASSES)
    where = "" if device == "cpu" else f", {device}"
    yield Group(4, f"calibrate, ResNet18, {train:,} + {holdout:,} images{where}", lines, (goal,))


def stopwatch(stages: dict[str, float]) -> Callable[[str, int, int | None], None]:
    """A listener to progress that books the time between two reports under the stage of the later one."""
    last = time.perf_counter()

    def listen(stage: str, done: int, total: int | None) -> None:
        nonlocal last
        now = time.perf_counter()
        stages[stage] = stages.get(stage, 0.0) + now - last
        last = now

    return listen


@torch.inference_mode()
def infer(network: nn.Module, loader: DataLoader[tuple[Tensor, ...]], device: str) -> float:
    """What the pass costs that every evaluation of a network makes."""
    return float(torch.cat([network(images.to(device)) for images, _ in loader])[0, 0])
