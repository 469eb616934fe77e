"""Row 3: each metric from the same logits. The value that each contender comes to stands beside its time."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.contest import ROUNDS, Times, compete, load_sizes
from benchmarks.environments import HOME
from benchmarks.records import Group, beside_ours, keeps_up, rank

SIZES = ((10_000, 1_000), (50_000, 1_000))
ADAPTERS = ("torchmetrics", "scikit_learn", "netcal", "torch_uncertainty", "relplot")
TITLES = {
    "ece": "ECE",
    "classwise_ece": "Classwise ECE",
    "brier": "Brier",
    "nll": "NLL",
    "auc": "Macro AUC",
    "smooth_ece": "Smooth ECE",
}


def measure(
    sizes: tuple[tuple[int, int], ...] = SIZES,
    adapters: tuple[str, ...] = ADAPTERS,
    rounds: int = ROUNDS,
    folder: Path = HOME / "data",
) -> Iterator[Group]:
    with ExitStack() as stack:
        for (n, classes), _, contenders, absent in load_sizes(stack, sizes, adapters, folder):
            for task in TITLES:
                yield _group(task, n, classes, compete(contenders, task, rounds), absent)


def _group(task: str, n: int, classes: int, times: list[Times], absent: dict[str, str]) -> Group:
    ours, peers, faults = rank(times)
    lines = tuple(beside_ours(ours, each, f"{each.middle.value:.7f}") for each in (ours, *peers))
    goals = (keeps_up(ours, peers),) if peers else ()
    return Group(3, f"{TITLES[task]}, {n:,} x {classes:,}", lines, goals, absent | faults)
