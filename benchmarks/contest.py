"""Contenders in processes of their own, timed in turn: one round after the other, everybody once in each."""

import json
import os
import statistics
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO, cast

from benchmarks.environments import PEERS, ROOT, own_python, python_of

THREADS = 2
OURS = "lates"
ROUNDS, SLOW, FEWER_ROUNDS, VERY_SLOW = 7, 1.0, 3, 4.0


@dataclass
class Times:
    """What repeated runs of one contender took, and the value that came out."""

    who: str
    seconds: list[float] = field(default_factory=list)
    value: float | None = None
    fault: str | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def is_done(self, rounds: int) -> bool:
        """Quick runs are repeated `rounds` times, slow ones less often, very slow ones not at all."""
        if self.fault or not self.seconds:
            return self.fault is not None
        quickest = min(self.seconds)
        wanted = 1 if quickest > VERY_SLOW else min(rounds, FEWER_ROUNDS) if quickest > SLOW else rounds
        return len(self.seconds) >= wanted


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

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.communicate()


def interleave(runs: dict[str, Callable[[], tuple[float, float | None]]], rounds: int = ROUNDS) -> list[Times]:
    """Time functions () -> (seconds, value) in turn. Each runs once unmeasured first, unless that took very long."""
    times = {who: Times(who) for who in runs}
    for measured in range(rounds + 1):
        for who, run in runs.items():
            own = times[who]
            if own.is_done(rounds):
                continue
            try:
                seconds, own.value = run()
            except Exception as fault:
                own.fault = str(fault)
                continue
            if measured or seconds > VERY_SLOW:
                own.seconds.append(seconds)
    return list(times.values())


def gather(stack: ExitStack, adapters: Sequence[str], threads: int = THREADS) -> tuple[list[Contender], dict[str, str]]:
    """Workers for `lates` and for those of these adapters that can be had, and why the others cannot."""
    found, absent = [stack.enter_context(Contender(OURS, "ours", own_python(), threads))], {}
    for peer in PEERS:
        if peer.adapter not in adapters:
            continue
        try:
            worker = stack.enter_context(Contender(peer.name, peer.adapter, python_of(peer), threads))
            worker.ask(do="tasks")
            found.append(worker)
        except RuntimeError as fault:
            absent[peer.name] = str(fault)
    return found, absent


def compete(contenders: Sequence[Contender], task: str, rounds: int = ROUNDS) -> list[Times]:
    """One task, by all contenders that can do it. A peer may fail and is then named; `lates` may not."""
    able = [each for each in contenders if task in each.ask(do="tasks")["tasks"]]

    def runner(contender: Contender) -> Callable[[], tuple[float, float | None]]:
        def run() -> tuple[float, float | None]:
            answer = contender.ask(do="run", task=task)
            return answer["seconds"], answer["value"]

        return run

    times = interleave({each.who: runner(each) for each in able}, rounds)
    faults = [each.fault for each in times if each.who == OURS and each.fault]
    if faults:
        raise RuntimeError(f"{OURS} itself failed in {task}: {faults[0]}")
    return times
