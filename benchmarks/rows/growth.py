"""Row 6: how time and memory of the stack grow, over three doublings of rows, of classes and of members."""

import math
import statistics
from collections.abc import Iterator, Sequence

from benchmarks.contest import THREADS
from benchmarks.records import Goal, Group, Line
from benchmarks.rows.stack import fit_repeatedly

BASE = {"rows": 8_000, "classes": 50, "members": 2}
DOUBLINGS, ROUNDS = 3, 5


def measure(base: dict[str, int] | None = None, rounds: int = ROUNDS, threads: int = THREADS) -> Iterator[Group]:
    for what in BASE:
        yield _grow(what, base or BASE, rounds, threads)


def _grow(what: str, base: dict[str, int], rounds: int, threads: int) -> Group:
    middle = {name: size * (2 if name == "members" else 4) for name, size in base.items() if name != what}
    sizes = [base[what] * 2**k for k in range(DOUBLINGS + 1)]
    lines, memories = [], []
    for size in sizes:
        point = {**middle, what: size}
        shape = point["rows"], point["classes"], point["members"]
        stack, extra, times = fit_repeatedly(shape, rounds, threads)
        known = f"{extra / 2**20:.1f} MiB more, {stack.steps} steps"
        lines.append(Line(f"{size:,} {what}", statistics.median(times.runs), reached=known, repeats=times.runs))
        memories.append(max(extra, 1))
    of_medians = exponent(sizes, [line.amount for line in lines])
    of_rounds = [exponent(sizes, seconds) for seconds in zip(*(line.repeats for line in lines), strict=False)]
    grows = (
        f"time ~ {what}^{of_medians:.2f} ({min(of_rounds):.2f} to {max(of_rounds):.2f} by rounds), "
        f"memory ~ {what}^{exponent(sizes, memories):.2f}"
    )
    others = ", ".join(f"{size:,} {name}" for name, size in middle.items())
    return Group(6, f"Stack fit against {what} ({others})", tuple(lines), (Goal("growth", grows, None),))


def exponent(sizes: Sequence[int], amounts: Sequence[float]) -> float:
    """The slope of log amount against log size by least squares: b of amount = a · size^b."""
    return statistics.linear_regression([*map(math.log, sizes)], [*map(math.log, amounts)]).slope
