"""Contenders in processes of their own, timed in turn: one round after the other, everybody once in each."""

import gc
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TextIO, cast

from benchmarks.environments import PEERS, ROOT, python_of
from benchmarks.inputs import save_logits

THREADS = 2
OURS = "lates"
ROUNDS, FEWER_ROUNDS = 7, 3
SLOW, VERY_SLOW = 0.5, 3.0


@dataclass(frozen=True)
class Run:
    """What one run took, how much of that was a softmax before it, and the value that came out."""

    seconds: float
    value: float = math.nan
    softmax: float | None = None


@dataclass
class Times:
    """Repeated runs of one contender, or why there are none."""

    who: str
    runs: list[Run] = field(default_factory=list)
    fault: str | None = None

    @property
    def middle(self) -> Run:
        """The run of the median time: rounds are odd, so there is one, and its parts add up."""
        return sorted(self.runs, key=lambda run: run.seconds)[len(self.runs) // 2]

    @property
    def median(self) -> float:
        return self.middle.seconds

    @property
    def seconds(self) -> tuple[float, ...]:
        return tuple(run.seconds for run in self.runs)

    def is_done(self, rounds: int) -> bool:
        """Quick runs are repeated `rounds` times, slow ones less often, and those of a very slow peer not at all."""
        if self.fault or not self.runs:
            return self.fault is not None
        quickest = min(self.seconds)
        fewer = 1 if quickest > VERY_SLOW and self.who != OURS else FEWER_ROUNDS
        return len(self.runs) >= (min(rounds, fewer) if quickest > SLOW else rounds)


@dataclass(frozen=True)
class Ratios:
    """Runs beside runs of a unit, and of each run the ratio to the units next to it. All statistics are of those ratios."""

    runs: tuple[float, ...]
    units: tuple[float, ...]
    ratios: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.ratios) == 1:
            return self.ratios[0], self.ratios[0]
        low, _, high = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return low, high


class Contender:
    """A worker process; a context that ends it."""

    def __init__(self, who: str, adapter: str, python: Path, threads: int = THREADS) -> None:
        self.who = who
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        environment |= {"OMP_NUM_THREADS": str(threads), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [str(python), "-m", "benchmarks.worker", adapter, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        self._send, self._receive = cast(TextIO, self.process.stdin), cast(TextIO, self.process.stdout)

    def ask(self, **command: str) -> dict[str, Any]:
        """The worker's answer; RuntimeError where it reports a fault or has died."""
        self._send.write(json.dumps(command) + "\n")
        self._send.flush()
        line = self._receive.readline()
        if not line:
            raise RuntimeError(f"ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.communicate()


def interleave(runs: dict[str, Callable[[], Run]], rounds: int = ROUNDS) -> list[Times]:
    """Run these in turn. Each runs once unmeasured first, unless that was a very slow peer's only run."""
    times = {who: Times(who) for who in runs}
    for measured in range(rounds + 1):
        for who, run in runs.items():
            record = times[who]
            if record.is_done(rounds):
                continue
            try:
                done = run()
            except Exception as fault:
                record.fault = str(fault)
                continue
            if measured or (done.seconds > VERY_SLOW and who != OURS):
                record.runs.append(done)
    return list(times.values())


def in_units(unit: Callable[[], float], run: Callable[[], float], rounds: int) -> Ratios:
    """Seconds of each run, divided by the mean of the unit's just before it and just after it; very slow ones 3 times."""
    units, runs = [unit()], []
    while len(runs) < (rounds if min(runs, default=0) <= VERY_SLOW else min(rounds, FEWER_ROUNDS)):
        runs.append(run())
        units.append(unit())
    around = zip(runs, units, units[1:], strict=False)
    return Ratios(tuple(runs), tuple(units), tuple(2 * seconds / (before + after) for seconds, before, after in around))


def seconds_of(function: Callable[[], object]) -> float:
    gc.collect()
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def gather(stack: ExitStack, adapters: Sequence[str], threads: int = THREADS) -> tuple[list[Contender], dict[str, str]]:
    """Workers for `lates` and for those of these adapters that can be had, and why the others cannot."""
    contenders, absent = [stack.enter_context(Contender(OURS, "ours", Path(sys.executable), threads))], {}
    for peer in PEERS:
        if peer.adapter not in adapters:
            continue
        try:
            worker = stack.enter_context(Contender(peer.name, peer.adapter, python_of(peer), threads))
            worker.ask(do="ask", task="temperature")  # which imports the adapter
            contenders.append(worker)
        except RuntimeError as fault:
            absent[peer.name] = str(fault)
    return contenders, absent


def load_sizes(
    sizes: Sequence[tuple[int, int]], adapters: Sequence[str], threads: int, folder: Path
) -> Iterator[tuple[tuple[int, int], dict[str, str], list[Contender], dict[str, str]]]:
    """For each size the files of its inputs, the contenders that have read them, and who is absent."""
    with ExitStack() as stack:
        contenders, absent = gather(stack, adapters, threads)
        for size in sizes:
            files = save_logits(folder, *size)
            for contender in contenders:
                contender.ask(do="load", **files)
            yield size, files, contenders, absent


def compete(contenders: Sequence[Contender], task: str, rounds: int = ROUNDS) -> list[Times]:
    """One task, by all contenders that can do it. A peer may fail and is then named; `lates` may not."""
    able = [each for each in contenders if each.ask(do="ask", task=task)["able"]]

    def runner(contender: Contender) -> Callable[[], Run]:
        return lambda: Run(**contender.ask(do="run", task=task))

    times = interleave({each.who: runner(each) for each in able}, rounds)
    faults = [each.fault for each in times if each.who == OURS and each.fault]
    if faults:
        raise RuntimeError(f"{OURS} itself failed in {task}: {faults[0]}")
    return times
