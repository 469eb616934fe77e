"""What the rows hand to the table, and results.json, in which they come together."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.environments import PEERS

RESULTS = Path(__file__).parent / "results.json"


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


def machine(device: str = "cpu") -> dict[str, Any]:
    """Where and with what this is measured."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        models = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0))
    processor = f"{models[0] if models else platform.processor()}, {cores} cores"
    return {
        "name": processor if device == "cpu" else torch.cuda.get_device_name(device),
        "processor": processor,
        "load_average": os.getloadavg(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
        "peers": {peer.name: peer.version for peer in PEERS},
    }


def results(groups: Sequence[Group], where: dict[str, Any], seconds: float) -> dict[str, Any]:
    """One run as it is written: what it measured, on which machine, and how long that took."""
    run = {**where, "rows": sorted({group.row for group in groups}), "seconds": round(seconds, 1)}
    return {"runs": [run], "groups": [{"machine": where["name"], **asdict(group)} for group in groups]}


def merge(new: dict[str, Any], path: Path = RESULTS) -> None:
    """Put results into the file, in the place of what the same machine measured of the same rows before."""
    known = json.loads(path.read_text("utf-8")) if path.exists() else {"runs": [], "groups": []}
    again = {(run["name"], row) for run in new["runs"] for row in run["rows"]}
    runs = [run for run in known["runs"] if not {(run["name"], row) for row in run["rows"]} <= again]
    groups = [group for group in known["groups"] if (group["machine"], group["row"]) not in again]
    ordered = sorted([*groups, *new["groups"]], key=lambda group: group["row"])
    path.write_text(json.dumps({"runs": [*runs, *new["runs"]], "groups": ordered}, indent=1) + "\n", "utf-8")
