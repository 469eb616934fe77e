"""Row 7, `make bench-large`: a stack of members that no memory holds, mapped from files on disk and read once per step."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import lates
from benchmarks.contest import OURS, THREADS
from benchmarks.environments import HOME
from benchmarks.inputs import draw_truth, views_of
from benchmarks.memory import PeakMemory
from benchmarks.records import Goal, Group, Line

SIZE = (200_000, 1_000, 16)
LIMIT = 4 * 10**9
ROWS_AT_ONCE = 10_000


def write_members(folder: Path, n: int, classes: int, members: int) -> tuple[list[np.ndarray], torch.Tensor]:
    """Members of `inputs` as files, drawn and written ten thousand rows at a time, and opened as maps of those files."""
    files = [folder / f"{k}.npy" for k in range(members)]
    targets = [np.lib.format.open_memmap(path, "w+", np.float32, (n, classes)) for path in files]
    labels = torch.empty(n, dtype=torch.int64)
    for start in range(0, n, ROWS_AT_ONCE):
        rows = slice(start, min(start + ROWS_AT_ONCE, n))
        truth, labels[rows] = draw_truth(rows.stop - start, classes, seed=start)
        for target, member in zip(targets, views_of(truth, members, seed=start + 1), strict=True):
            target[rows] = member.numpy()
    for target in targets:
        target.flush()
    return [np.load(path, mmap_mode="r") for path in files], labels


def measure(size: tuple[int, int, int] = SIZE, threads: int = THREADS, folder: Path = HOME / "data") -> Iterator[Group]:
    """Fit the stack from disk; leaves no file behind."""
    torch.set_num_threads(threads)
    folder.mkdir(parents=True, exist_ok=True)
    n, classes, members = size
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        logits, labels = write_members(Path(scratch), n, classes, members)
        with PeakMemory() as memory:
            begin = time.perf_counter()
            stack = lates.fit_stack(logits, labels)
            seconds = time.perf_counter() - begin
    state = "certified to" if stack.certified else "OFF BY"
    known = f"{stack.steps} steps, {state} {stack.residual:.0e}"
    title = f"{n:,} x {classes:,} x {members}, {4 * n * classes * members / 1e9:.1f} GB on disk"
    goal = Goal("anonymous memory under 4 GB", f"{memory.peak / 1e9:.2f} GB at its peak", memory.peak < LIMIT)
    line = Line(OURS, seconds, reached=known, repeats=(seconds,))
    yield Group(7, f"Stack fit out of core, {title}", (line,), (goal,))
