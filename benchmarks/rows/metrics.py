"""Row 3: each metric from the same logits. The value that each contender comes to stands beside its time."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.contest import ROUNDS, THREADS, Run, Times, compete, load_sizes
from benchmarks.environments import HOME
from benchmarks.records import Goal, Group, beside_ours, keeps_up, rank
from benchmarks.table import amount

SIZES = ((10_000, 1_000), (50_000, 1_000))
ADAPTERS = ("torchmetrics", "scikit_learn", "netcal", "torch_uncertainty", "relplot", "mapie")
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
    threads: int = THREADS,
    folder: Path = HOME / "data",
) -> Iterator[Group]:
    for (n, classes), _, contenders, absent in load_sizes(sizes, adapters, threads, folder):
        for task in TITLES:
            yield _group(task, n, classes, compete(contenders, task, rounds), absent)


def _group(task: str, n: int, classes: int, times: list[Times], absent: dict[str, str]) -> Group:
    ours, peers, faults = rank(times)
    lines = tuple(beside_ours(ours, each, _reached(each.middle)) for each in (ours, *peers))
    goals = [keeps_up(ours, peers)] if peers else []
    faster = [f"{each.who} {ours.median / rest(each.middle):.2f}x" for each in peers if rest(each.middle) < ours.median]
    if faster:
        goals.append(Goal("faster than lates from probabilities in hand", ", ".join(faster), None))
    return Group(3, f"{TITLES[task]}, {n:,} x {classes:,}", lines, tuple(goals), absent | faults)


def rest(run: Run) -> float:
    """The seconds after the softmax, for who has probabilities already; all of them where logits were taken."""
    return run.seconds - (run.softmax or 0.0)


def _reached(run: Run) -> str:
    parts = "" if run.softmax is None else f", softmax {amount(run.softmax)} + {amount(rest(run))}"
    return f"{run.value:.7f}{parts}"
