"""How much memory there is to use: on the device, on this machine, and within what a container is allowed."""

import os
from collections.abc import Iterator
from numbers import Real
from pathlib import Path
from typing import Any

import torch

SHARE_OF_HOST, SHARE_OF_DEVICE = 0.5, 0.8
"""Of what is free; a host runs more than this process."""
UNKNOWN = 8 << 30
"""Taken to be free on systems that do not say."""


def default_memory(device: torch.device, neighbours: int = 1) -> int:
    """A share of the free memory: 0.8 on a CUDA device; elsewhere half of the host's, split among `neighbours`, the
    processes that calibrate together on this machine."""
    if device.type == "cuda":
        return int(SHARE_OF_DEVICE * torch.cuda.mem_get_info(device)[0])
    return int(SHARE_OF_HOST * free_memory()) // neighbours


def check_memory(memory: Any) -> None:
    if memory is not None and (not isinstance(memory, Real) or not float(memory) >= 0):
        raise ValueError(f"memory={memory!r}: expected a number of bytes, such as 2 * 2**30 for 2 GiB.")


def free_memory(root: Path = Path("/")) -> int:
    """Bytes that this process can still get: what the machine has available, or less where a control group caps it."""
    return max(min([_available(root / "proc/meminfo"), *_rooms(root)]), 0)


def _available(meminfo: Path) -> int:
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text("utf-8").splitlines() if ":" in line)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        known = getattr(os, "sysconf_names", {})
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in known else UNKNOWN


def _rooms(root: Path) -> Iterator[int]:
    """What each control group around this process, the outer ones too, still allows: version 2, and version 1."""
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if "memory" in controllers.split(","):
            mount, names = "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        elif not controllers:
            mount, names = "", ("memory.max", "memory.current")
        else:
            continue
        inside = Path(path.lstrip("/"))
        for group in (inside, *inside.parents):
            place = root / "sys/fs/cgroup" / mount / group
            limit, used = (_number(place / name) for name in names)
            if limit is not None and used is not None:
                yield limit - used + _reclaimable(place / "memory.stat")


def _reclaimable(statistics: Path) -> int:
    """Bytes of files that the kernel keeps for nobody in particular and would give up first."""
    try:
        counts = dict(line.split() for line in statistics.read_text("utf-8").splitlines())
        return int(counts.get("total_inactive_file", counts.get("inactive_file", 0)))
    except (OSError, ValueError):
        return 0


def _number(file: Path) -> int | None:
    """None where the file is not there, or says "max"."""
    try:
        return int(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
