"""How much memory there is to use: on the device, on this machine, and within what a container is allowed."""

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
    kilobytes = _numbers(root / "proc/meminfo").get("MemAvailable:")
    available = UNKNOWN if kilobytes is None else 1024 * kilobytes
    return max(min([available, *_allowed(root)]), 0)


def _allowed(root: Path) -> Iterator[int]:
    """What each control group (version 2) around this process, the outer ones too, still allows it. Cached files that nobody
    uses count as free: the kernel gives them up first."""
    inside = next((Path(line[4:]) for line in _lines(root / "proc/self/cgroup") if line.startswith("0::/")), None)
    for group in () if inside is None else (inside, *inside.parents):
        folder = root / "sys/fs/cgroup" / group
        limit, used = ([*_lines(folder / name), "max"][0] for name in ("memory.max", "memory.current"))
        if limit != "max" and used != "max":
            yield int(limit) - int(used) + _numbers(folder / "memory.stat").get("inactive_file", 0)


def _numbers(file: Path) -> dict[str, int]:
    """Of lines such as "inactive_file 4096" or "MemAvailable: 8000 kB"."""
    words = [line.split() for line in _lines(file)]
    return {name: int(number) for name, number, *_ in words if number.isdigit()}


def _lines(file: Path) -> list[str]:
    """None where the file is not there."""
    try:
        return file.read_text("utf-8").splitlines()
    except OSError:
        return []
