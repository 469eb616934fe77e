"""Row 1: one temperature on cached logits. The log-loss that each temperature reaches is computed here, in float64."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

from benchmarks.contest import OURS, ROUNDS, THREADS, Times, compete, gather
from benchmarks.environments import HOME
from benchmarks.inputs import save_logits
from benchmarks.records import Goal, Group, Line, keeps_up

SIZES = ((50_000, 100), (5_000, 1_000), (50_000, 1_000))
ADAPTERS = ("lbfgs", "probmetrics", "netcal", "scikit_learn", "torch_uncertainty")
AGREEMENT = 1e-7


def measure(
    sizes: tuple[tuple[int, int], ...] = SIZES,
    adapters: tuple[str, ...] = ADAPTERS,
    rounds: int = ROUNDS,
    threads: int = THREADS,
    folder: Path = HOME / "data",
) -> Iterator[Group]:
    with ExitStack() as stack:
        contenders, absent = gather(stack, adapters, threads)
        for n, classes in sizes:
            files = save_logits(folder, n, classes)
            for contender in contenders:
                contender.ask(do="load", **files)
            times = compete(contenders, "temperature", rounds)
            yield _group(n, classes, times, absent, files)


def _group(n: int, classes: int, times: list[Times], absent: dict[str, str], files: dict[str, str]) -> Group:
    absent = absent | {each.who: each.fault for each in times if each.fault}
    present = [each for each in times if not each.fault]
    values = {each.who: each.middle.value for each in present}
    losses = {who: log_loss(files, value) for who, value in values.items() if value is not None}
    ours, peers = present[0], sorted(present[1:], key=lambda each: each.median)
    lines = [
        Line(
            each.who,
            each.median,
            ratio=each.median / ours.median,
            reached=f"NLL {losses[OURS]:.9f}" if each is ours else f"NLL {losses[each.who] - losses[OURS]:+.1e}",
            repeats=each.seconds,
        )
        for each in (ours, *peers)
    ]
    goals = []
    if peers:
        excess = losses[OURS] - min(losses.values())
        goals.append(keeps_up(ours, peers))
        goals.append(Goal(f"same NLL to {AGREEMENT:.0e}", f"{excess:+.1e} of the best", excess <= AGREEMENT))
    return Group(1, f"Temperature fit, {n:,} x {classes:,}", tuple(lines), tuple(goals), absent)


def log_loss(files: dict[str, str], weight: float) -> float:
    """The mean log-loss of weight · logits, in float64, a thousand rows at a time."""
    logits, labels = np.load(files["logits"], mmap_mode="r"), torch.from_numpy(np.load(files["labels"]))
    total = 0.0
    for start in range(0, len(labels), 1000):
        scaled = weight * torch.from_numpy(logits[start : start + 1000].astype(np.float64))
        total += float(torch.nn.functional.cross_entropy(scaled, labels[start : start + 1000], reduction="sum"))
    return total / len(labels)
