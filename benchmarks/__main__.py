"""`python -m benchmarks`: the table on the terminal, and benchmarks/results.json."""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.records import RESULTS, Group, machine, merge, results
from benchmarks.rows import calibrate, growth, inference, large, metrics, rivals, stack, temperature
from benchmarks.table import draw_end, draw_group

ROWS: dict[int, Callable[[], Iterator[Group]]] = {
    1: temperature.measure,
    2: stack.measure,
    3: metrics.measure,
    4: calibrate.measure,
    5: inference.measure,
    6: growth.measure,
    7: large.measure,
    8: rivals.measure,
}
USUAL = [number for number in ROWS if number != 7]  # which takes 12.8 GB of disk


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("rows", nargs="*", type=int, choices=[*ROWS, []], help="rows to measure; all but 7 where none is named")
    parser.add_argument("--device", default="cpu", help="of rows 4 and 5, which then take CIFAR's full size")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go (default: %(default)s)")
    parser.add_argument("--merge", type=Path, help="measure nothing; take over the results that another machine wrote")
    chosen = parser.parse_args()
    if chosen.merge:
        merge(json.loads(chosen.merge.read_text("utf-8")), chosen.out)
        return
    rows = dict(ROWS)
    if chosen.device != "cpu":
        rows[4] = lambda: calibrate.measure(calibrate.FULL_TRAIN, calibrate.FULL_HOLDOUT, device=chosen.device)
        rows[5] = lambda: inference.measure(device=chosen.device)
    begin, load, where, groups = time.perf_counter(), os.getloadavg()[0], machine(chosen.device), []
    for number in chosen.rows or USUAL:
        for group in rows[number]():
            print(draw_group(group), end="\n\n", flush=True)
            groups.append(group)
    seconds = time.perf_counter() - begin
    print(draw_end(groups), f"in {seconds:.0f} s; the machine's load was {load:.2f} before", sep="\n")
    merge(results(groups, where, seconds, load), chosen.out)


if __name__ == "__main__":
    main()
