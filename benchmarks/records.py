"""What the rows hand to the table, and results.json, in which they come together."""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.contest import Ratios, Times
from benchmarks.environments import PEERS
from experiments.evaluation.environment import current_commit

RESULTS = Path(__file__).parent / "results.json"
SLOWEST = 1.5
"""Times the fastest peer: what rows 1 to 3 may take, as long as they are exact."""


@dataclass(frozen=True)
class Line:
    """One contender in one task: `amount` in `unit`, `ratio` of its time to ours, and the number that it came to."""

    who: str
    amount: float
    unit: str = "s"
    ratio: float | None = None
    reached: str = ""
    repeats: tuple[float, ...] = ()


def beside_unit(who: str, unit: str, times: Ratios, reached: str = "", calls: int = 1) -> tuple[Line, Line]:
    """Two lines: seconds of a call, with the calls in each run, and of the unit that it was measured in."""
    runs, units = (tuple(run / calls for run in each) for each in (times.runs, times.units))
    return (
        Line(who, statistics.median(runs), ratio=1.0, reached=reached, repeats=runs),
        Line(unit, statistics.median(units), ratio=1 / times.median, repeats=units),
    )


def rank(times: Sequence[Times]) -> tuple[Times, list[Times], dict[str, str]]:
    """Ours, the peers from the fastest to the slowest, and the faults of those that failed."""
    faults = {each.who: each.fault for each in times if each.fault}
    ours, *peers = (each for each in times if not each.fault)
    return ours, sorted(peers, key=lambda each: each.median), faults


def beside_ours(ours: Times, times: Times, reached: str) -> Line:
    return Line(times.who, times.median, ratio=times.median / ours.median, reached=reached, repeats=times.seconds)


@dataclass(frozen=True)
class Goal:
    """What was to be shown, what came out, and whether that is it (None: nothing was promised)."""

    text: str
    found: str
    met: bool | None


def keeps_up(ours: Times, peers: Sequence[Times], unnoticed: float = 0.0) -> Goal:
    """Whether `lates` is no slower than 1.5 times the fastest peer, or takes at most so few seconds that nobody waits."""
    fastest = min(peers, key=lambda peer: peer.median)
    ratio = ours.median / fastest.median
    text = f"at most {SLOWEST} times the fastest peer" + (f", or {unnoticed:g} s" if unnoticed else "")
    return Goal(text, f"{ratio:.2f}x ({fastest.who})", ratio <= SLOWEST or ours.median <= unnoticed)


@dataclass(frozen=True)
class Group:
    """A task on inputs of one size: its lines, its goals, and who could not take part and why."""

    row: int
    title: str
    lines: tuple[Line, ...]
    goals: tuple[Goal, ...] = ()
    absent: dict[str, str] = field(default_factory=dict)


def machine(device: str = "cpu") -> dict[str, Any]:
    """Where and with what this is measured."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        models = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0))
    processor = f"{models[0] if models else platform.processor()}, {cores} cores"
    return {
        "name": processor if device == "cpu" else torch.cuda.get_device_name(device),
        "commit": current_commit(),
        "processor": processor,
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
        "peers": {peer.name: peer.version for peer in PEERS},
    }


def results(groups: Sequence[Group], where: dict[str, Any], seconds: float, load: float) -> dict[str, Any]:
    """One run as it is written: what it measured, on which machine, how long that took, and the machine's load before."""
    rows = sorted({group.row for group in groups})
    run = {**where, "rows": rows, "seconds": round(seconds, 1), "load_before": round(load, 2)}
    return {"runs": [run], "groups": [{"machine": where["name"], **asdict(group)} for group in groups]}


def merge(new: dict[str, Any], path: Path = RESULTS) -> None:
    """Put results into the file, in the place of what the same machine measured of the same rows before."""
    known = json.loads(path.read_text("utf-8")) if path.exists() else {"runs": [], "groups": []}
    again = {(run["name"], row) for run in new["runs"] for row in run["rows"]}
    runs = [run for run in known["runs"] if not {(run["name"], row) for row in run["rows"]} <= again]
    groups = [group for group in known["groups"] if (group["machine"], group["row"]) not in again]
    ordered = sorted([*groups, *new["groups"]], key=lambda group: group["row"])
    path.write_text(json.dumps({"runs": [*runs, *new["runs"]], "groups": ordered}, indent=1) + "\n", "utf-8")
