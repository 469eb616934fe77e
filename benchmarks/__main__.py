"""`python -m benchmarks`: the table on the terminal, and benchmarks/results.json."""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.records import RESULTS, Group, machine, merge, results
from benchmarks.rows import calibrate, growth, inference, large, metrics, stack, temperature
from benchmarks.table import draw_end, draw_group

ROWS: dict[int, Callable[[], Iterator[Group]]] = {
    1: temperature.measure,
    2: stack.measure,
    3: metrics.measure,
    4: calibrate.measure,
    5: inference.measure,
    6: growth.measure,
    7: large.measure,
}
LARGE = 7
"""Measured only where it is named: it needs 12.8 GB of disk."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument(
        "rows", nargs="*", type=int, choices=[*ROWS, []], help="rows to measure; all but 7 where none is named"
    )
    parser.add_argument("--device", default="cpu", help="of rows 4 and 5, which then take CIFAR's full size")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go (default: %(default)s)")
    chosen = parser.parse_args()
    rows = dict(ROWS)
    if chosen.device != "cpu":
        rows[4] = lambda: calibrate.measure(calibrate.FULL_TRAIN, calibrate.FULL_HOLDOUT, device=chosen.device)
        rows[5] = lambda: inference.measure(device=chosen.device)
    begin, groups = time.perf_counter(), []
    for number in chosen.rows or [row for row in rows if row != LARGE]:
        for group in rows[number]():
            print(draw_group(group), end="\n\n", flush=True)
            groups.append(group)
    seconds = time.perf_counter() - begin
    print(f"{draw_end(groups)} in {seconds:.0f} s")
    merge(results(groups, machine(chosen.device), seconds), chosen.out)


if __name__ == "__main__":
    main()
