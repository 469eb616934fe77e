"""What the rows hand to the table and to results.json."""

import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from benchmarks.environments import PEERS


@dataclass(frozen=True)
class Line:
    """One contender in one task: `amount` in `unit`, `ratio` of its time to ours, and the number that it came to."""

    who: str
    amount: float
    unit: str = "s"
    ratio: float | None = None
    reached: str = ""
    repeats: tuple[float, ...] = ()


@dataclass(frozen=True)
class Goal:
    """What was to be shown, what came out, and whether that is it (None: nothing was promised)."""

    text: str
    found: str
    met: bool | None


@dataclass(frozen=True)
class Group:
    """A task on inputs of one size: its lines, its goals, and who could not take part and why."""

    row: int
    title: str
    lines: tuple[Line, ...]
    goals: tuple[Goal, ...] = ()
    absent: dict[str, str] = field(default_factory=dict)


def machine() -> dict[str, Any]:
    """Where and with what this was measured."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        models = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
        "peers": {peer.name: peer.version for peer in PEERS},
    }
