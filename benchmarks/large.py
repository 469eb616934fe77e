"""`make bench-large`: a stack of members that no memory holds, mapped from a file on disk and read once per step."""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import lates
from benchmarks.contest import OURS, THREADS
from benchmarks.environments import HOME
from benchmarks.inputs import draw_truth, views_of
from benchmarks.memory import PeakMemory
from benchmarks.records import RESULTS, Goal, Group, Line, Others, machine, merge, results
from benchmarks.table import draw_group

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
    del targets
    return [np.load(path, mmap_mode="r") for path in files], labels


def measure(n: int, classes: int, members: int, folder: Path, threads: int = THREADS) -> Group:
    """Fit the stack from disk; leaves no file behind."""
    torch.set_num_threads(threads)
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder))
    try:
        logits, labels = write_members(scratch, n, classes, members)
        with PeakMemory() as memory:
            begin = time.perf_counter()
            stack = lates.fit_stack(logits, labels)
            seconds = time.perf_counter() - begin
    finally:
        shutil.rmtree(scratch)
    state = "certified to" if stack.certified else "OFF BY"
    known = f"{stack.steps} steps, {state} {stack.residual:.0e}"
    size = f"{n:,} x {classes:,} x {members}, {4 * n * classes * members / 1e9:.1f} GB on disk"
    goal = Goal("anonymous memory under 4 GB", f"{memory.peak / 1e9:.2f} GB at its peak", memory.peak < LIMIT)
    line = Line(OURS, seconds, reached=known, repeats=(seconds,))
    return Group(7, f"Stack fit out of core, {size}", (line,), (goal,))


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.large", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--folder", type=Path, default=HOME / "data", help="on a disk with room (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go (default: %(default)s)")
    chosen = parser.parse_args()
    begin, others, where = time.perf_counter(), Others(), machine()
    group = measure(chosen.rows, chosen.classes, chosen.members, chosen.folder)
    print(draw_group(group))
    merge(results([group], where, time.perf_counter() - begin, others.cores()), chosen.out)


if __name__ == "__main__":
    main()
