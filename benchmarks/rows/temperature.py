"""Row 1: one temperature on cached logits. The log-loss that each temperature reaches is computed here, in float64."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from benchmarks.contest import OURS, ROUNDS, THREADS, Times, compete, load_sizes
from benchmarks.environments import HOME
from benchmarks.records import Goal, Group, beside_ours, keeps_up, rank

SIZES = ((50_000, 100), (5_000, 1_000), (50_000, 1_000))
ADAPTERS = ("lbfgs", "probmetrics", "netcal", "scikit_learn", "torch_uncertainty")
AGREEMENT = 1e-7
UNNOTICED = 0.1
"""Seconds."""


def measure(
    sizes: tuple[tuple[int, int], ...] = SIZES,
    adapters: tuple[str, ...] = ADAPTERS,
    rounds: int = ROUNDS,
    threads: int = THREADS,
    folder: Path = HOME / "data",
) -> Iterator[Group]:
    for (n, classes), files, contenders, absent in load_sizes(sizes, adapters, threads, folder):
        yield _group(n, classes, compete(contenders, "temperature", rounds), absent, files)


def _group(n: int, classes: int, times: list[Times], absent: dict[str, str], files: dict[str, str]) -> Group:
    ours, peers, faults = rank(times)
    losses = {each.who: log_loss(files, each.middle.value) for each in (ours, *peers)}
    lines = [beside_ours(ours, ours, f"NLL {losses[OURS]:.9f}")]
    lines += [beside_ours(ours, each, f"NLL {losses[each.who] - losses[OURS]:+.1e}") for each in peers]
    goals = []
    if peers:
        excess = losses[OURS] - min(losses.values())
        goals.append(keeps_up(ours, peers, UNNOTICED))
        goals.append(Goal(f"same NLL to {AGREEMENT:.0e}", f"{excess:+.1e} of the best", excess <= AGREEMENT))
    return Group(1, f"Temperature fit, {n:,} x {classes:,}", tuple(lines), tuple(goals), absent | faults)


def log_loss(files: dict[str, str], weight: float) -> float:
    """The mean log-loss of weight · logits, in float64."""
    logits, labels = (torch.from_numpy(np.load(files[name])) for name in ("logits", "labels"))
    return float(torch.nn.functional.cross_entropy(weight * logits.double(), labels))
