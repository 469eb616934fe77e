"""Row 2: the stack, in units of one pass of logsumexp over all members, which is what one evaluation costs at least."""

import gc
import time
from collections.abc import Callable, Iterator

import torch

import lates
from benchmarks.contest import OURS, ROUNDS, THREADS, interleave
from benchmarks.inputs import make_members
from benchmarks.memory import PeakMemory
from benchmarks.records import Goal, Group, Line

SIZES = ((50_000, 100, 15), (50_000, 1_000, 16))
PASSES_PER_STEP, STEPS, SHARE = 2.0, 12, 0.25


def measure(
    sizes: tuple[tuple[int, int, int], ...] = SIZES, rounds: int = ROUNDS, threads: int = THREADS
) -> Iterator[Group]:
    torch.set_num_threads(threads)
    for size in sizes:
        yield _measure(*size, rounds)


def _measure(n: int, classes: int, members: int, rounds: int) -> Group:
    logits, labels = make_members(n, classes, members)
    fits: list[lates.Stack] = []
    extra: list[int] = []

    def one_pass() -> float:
        return float(sum(member.logsumexp(dim=1)[0] for member in logits))

    def fit() -> float:
        with PeakMemory() as memory:
            fits.append(lates.fit_stack(logits, labels))
        extra.append(memory.extra)
        return fits[-1].nll

    unit, ours = interleave({"logsumexp": timed(one_pass), OURS: timed(fit)}, rounds)
    if ours.fault or unit.fault:
        raise RuntimeError(ours.fault or unit.fault)
    passes, steps = ours.median / unit.median, fits[-1].steps
    share = max(extra) / (4 * n * classes * members)
    certificate = f"{steps} steps, residual {fits[-1].residual:.0e}"
    lines = (
        Line(OURS, ours.median, ratio=1.0, reached=certificate, repeats=tuple(ours.seconds)),
        Line("one logsumexp pass", unit.median, ratio=unit.median / ours.median, repeats=tuple(unit.seconds)),
    )
    per_step = passes / max(steps, 1)
    goals = (
        Goal("under 2 passes per Newton step", f"{per_step:.2f} ({passes:.1f} in all)", per_step < PASSES_PER_STEP),
        Goal("at most 12 steps", str(steps), steps <= STEPS),
        Goal("extra memory under 25 % of the members'", f"{100 * share:.1f} %", share < SHARE),
    )
    return Group(2, f"Stack fit, {n:,} x {classes:,} x {members}", lines, goals)


def timed(function: Callable[[], float]) -> Callable[[], tuple[float, float | None]]:
    """The function with the seconds that it took."""

    def run() -> tuple[float, float | None]:
        gc.collect()
        begin = time.perf_counter()
        value = function()
        return time.perf_counter() - begin, value

    return run
