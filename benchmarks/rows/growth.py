"""Row 6: how time and memory of the stack grow, over three doublings of rows, of classes and of members."""

import math
from collections.abc import Iterator

import torch

import lates
from benchmarks.contest import THREADS, interleave
from benchmarks.inputs import make_members
from benchmarks.memory import PeakMemory
from benchmarks.records import Goal, Group, Line
from benchmarks.rows.stack import timed

BASE = {"rows": 8_000, "classes": 50, "members": 2}
DOUBLINGS = 3


def measure(base: dict[str, int] | None = None, rounds: int = 3, threads: int = THREADS) -> Iterator[Group]:
    torch.set_num_threads(threads)
    _fit({"rows": 1_000, "classes": 10, "members": 2}, 1)  # so that the first size has not what comes only once
    for what in BASE:
        yield _grow(what, base or BASE, rounds)


def _grow(what: str, base: dict[str, int], rounds: int) -> Group:
    middle = {name: size * (2 if name == "members" else 4) for name, size in base.items() if name != what}
    sizes = [base[what] * 2**k for k in range(DOUBLINGS + 1)]
    lines, times, memories = [], [], []
    for size in sizes:
        seconds, extra = _fit({**middle, what: size}, rounds)
        times.append(seconds)
        memories.append(max(extra, 1))
        lines.append(Line(f"{size:,} {what}", seconds, reached=f"{extra / 2**20:.1f} MiB more"))
    grows = f"time ~ {what}^{exponent(sizes, times):.2f}, memory ~ {what}^{exponent(sizes, memories):.2f}"
    others = ", ".join(f"{size:,} {name}" for name, size in middle.items())
    return Group(6, f"Stack fit against {what} ({others})", tuple(lines), (Goal("growth", grows, None),))


def _fit(sizes: dict[str, int], rounds: int) -> tuple[float, int]:
    logits, labels = make_members(sizes["rows"], sizes["classes"], sizes["members"])
    extra: list[int] = []

    def fit() -> float:
        with PeakMemory() as memory:
            stack = lates.fit_stack(logits, labels)
        extra.append(memory.extra)
        return stack.nll

    (times,) = interleave({"lates": timed(fit)}, rounds)
    if times.fault:
        raise RuntimeError(times.fault)
    return times.median, max(extra)


def exponent(sizes: list[int], amounts: list[float] | list[int]) -> float:
    """The slope of log amount against log size by least squares: b of amount = a · size^b."""
    x, y = [math.log(size) for size in sizes], [math.log(amount) for amount in amounts]
    centre = sum(x) / len(x)
    return sum((a - centre) * b for a, b in zip(x, y, strict=True)) / sum((a - centre) ** 2 for a in x)
