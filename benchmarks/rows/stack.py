"""Row 2: the stack, in units of one pass of logsumexp over all members.

The passes per step have no goal. An evaluation is in float64 where the unit is in float32, and it makes a Hessian: for each
number of a member one exponential's share, but as many products as there are members.
"""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import torch

import lates
from benchmarks.contest import OURS, ROUNDS, THREADS, Ratios, in_units, seconds_of
from benchmarks.inputs import make_members
from benchmarks.memory import PeakMemory
from benchmarks.records import Goal, Group, beside_unit

SIZES = ((50_000, 100, 15), (50_000, 1_000, 16))
STEPS, SHARE = 12, 0.25


def measure(sizes: tuple[tuple[int, int, int], ...] = SIZES, rounds: int = ROUNDS, threads: int = THREADS) -> Iterator[Group]:
    for size in sizes:
        yield _group(size, *fit_repeatedly(size, rounds, threads))


def fit_repeatedly(size: tuple[int, int, int], rounds: int, threads: int) -> tuple[lates.Stack, int, Ratios]:
    """A stack of rows x classes x members, the memory that the first fit took beside the members, and how long others took.

    In a process where nothing has been kept from whatever was measured before.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_fit_repeatedly, size, rounds, threads).result()


def _fit_repeatedly(size: tuple[int, int, int], rounds: int, threads: int) -> tuple[lates.Stack, int, Ratios]:
    """A small fit goes first, for what comes only once: threads, libraries."""
    torch.set_num_threads(threads)
    lates.fit_stack(*make_members(2_000, 3, 2))
    logits, labels = make_members(*size)
    with PeakMemory() as memory:
        stack = lates.fit_stack(logits, labels)

    def one_pass() -> float:
        return seconds_of(lambda: [member.logsumexp(dim=1) for member in logits])

    def fit() -> float:
        return seconds_of(lambda: lates.fit_stack(logits, labels))

    one_pass()
    return stack, memory.extra, in_units(one_pass, fit, rounds)


def _group(size: tuple[int, int, int], stack: lates.Stack, extra: int, times: Ratios) -> Group:
    n, classes, members = size
    known = f"{stack.steps} steps, residual {stack.residual:.0e}"
    share, per_step = extra / (4 * n * classes * members), times.median / max(stack.steps, 1)
    low, high = times.quartiles
    goals = (
        Goal(
            "passes per Newton step",
            f"{per_step:.2f} ({times.median:.1f} in all, quartiles {low:.1f} to {high:.1f})",
            None,
        ),
        Goal(f"at most {STEPS} steps over all rows of all members", f"{stack.steps}", stack.steps <= STEPS),
        Goal("the optimum, certified", f"residual {stack.residual:.0e}", stack.certified),
        Goal("extra memory under 25 % of the members'", f"{100 * share:.1f} %", share < SHARE),
    )
    lines = beside_unit(OURS, "one logsumexp pass", times, known)
    return Group(2, f"Stack fit, {n:,} x {classes:,} x {members}", lines, goals)
