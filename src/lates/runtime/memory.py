"""How much memory there is to use, and rows that go to temporary files beyond it."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

SHARE_OF_HOST, SHARE_OF_DEVICE = 0.5, 0.8
"""Of what is free; a host runs more than this process."""
ASSUMED_FREE = 8 << 30
"""Assumed to be free on systems that do not say."""


def default_memory(device: torch.device, neighbours: int = 1) -> int:
    """A share of the free memory: 0.8 on a CUDA device; elsewhere half of the host's, split among `neighbours`, the
    processes that calibrate together on this machine."""
    if device.type == "cuda":
        return int(SHARE_OF_DEVICE * torch.cuda.mem_get_info(device)[0])
    return int(SHARE_OF_HOST * free_memory()) // neighbours


def free_memory(root: Path = Path("/")) -> int:
    """Bytes that this process can still get: what the machine has available, or less where a control group limits it."""
    available = 1024 * _numbers(root / "proc/meminfo").get("MemAvailable:", ASSUMED_FREE // 1024)
    return max(min([available, *_allowed(root)]), 0)


def _allowed(root: Path) -> Iterator[int]:
    """What each control group (version 2) around this process, the outer ones too, still allows it. Cached files that nobody
    uses count as free: the kernel gives them up first."""
    inside = [Path(line[4:]) for line in _lines(root / "proc/self/cgroup") if line.startswith("0::/")]
    for group in [path for own in inside for path in (own, *own.parents)]:
        folder = root / "sys/fs/cgroup" / group
        limit, used = ([*_lines(folder / name), "max"][0] for name in ("memory.max", "memory.current"))
        if limit != "max" and used != "max":
            yield int(limit) - int(used) + _numbers(folder / "memory.stat").get("inactive_file", 0)


def _numbers(file: Path) -> dict[str, int]:
    """Of lines such as "inactive_file 4096" or "MemAvailable: 8000 kB"."""
    words = [line.split() for line in _lines(file)]
    return {name: int(number) for name, number, *_ in words if number.isdigit()}


def _lines(file: Path) -> list[str]:
    """Empty where the file is not there."""
    try:
        return file.read_text("utf-8").splitlines()
    except OSError:
        return []


class RowStore:
    """Several named tensors [rows, …] of which at most about `limit` bytes, and one batch, stay in memory.

    Those named in `halved` are rounded to float16 at once where it has their range and, by the first batch, their precision,
    so that they are the same wherever they are kept. `halve` keeps them in 16 bits; files, which may hold rows from before and
    after it, keep 32.

    A context manager: at its end the files are closed and gone. Tensors collected before live on as memory maps, which keep
    their unnamed file until they are freed themselves.
    """

    def __init__(self, limit: int, halved: Iterable[str] = ()) -> None:
        self.limit, self.halved, self.bytes = limit, frozenset(halved), 0
        self._chunks: dict[str, list[Tensor]] = {}
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> "RowStore":
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files.values():
            with suppress(OSError):  # what was not flushed is not needed any more
                file.close()

    @property
    def spilled(self) -> bool:
        return bool(self._files)

    def append(self, batch: Mapping[str, Tensor]) -> None:
        """Add the rows of one batch: the same names every time."""
        if not self._chunks:
            self.halved = frozenset(name for name in self.halved if _survives_rounding(batch[name]))
        for name, values in batch.items():
            if name in self.halved:
                half = values.half()
                values = torch.where(half.isfinite(), half.float(), values)
            self._chunks.setdefault(name, []).append(values)
            self.bytes += values.nbytes
        if self.bytes > self.limit:
            self._spill()

    def halve(self) -> None:
        """Halve what is in memory, each name's if all of it is in range. To see this the host waits for the GPU: call it
        seldom."""
        for name in self.halved & self._chunks.keys():
            halves = [chunk.half() for chunk in self._chunks[name]]
            if bool(torch.stack([half.isfinite().all() for half in halves]).all()):
                self._chunks[name] = halves
        self.bytes = sum(chunk.nbytes for chunks in self._chunks.values() for chunk in chunks)

    def collect(self) -> dict[str, Tensor]:
        """All rows under each name, in memory or mapped from the files; the store is empty afterwards."""
        if self.spilled:
            self._spill()
        with torch.inference_mode(False):  # of each name the chunks are freed before the next are joined
            return {name: _join(self._chunks.pop(name), self._files.get(name)) for name in list(self._chunks)}

    def _spill(self) -> None:
        try:
            for name, chunks in self._chunks.items():
                if name not in self._files:
                    self._files[name] = tempfile.TemporaryFile(prefix="lates-")  # noqa: SIM115 (`__exit__` closes it)
                for chunk in chunks:
                    self._files[name].write(_as_in_file(chunk).numpy().tobytes())
                self._files[name].flush()
                self._chunks[name] = [_as_in_file(chunks[0][:0])]
        except OSError as fault:  # of an unnamed file, so the system cannot say where
            raise OSError(
                fault.errno,
                f"Cannot write rows that exceed the memory to a temporary file in {tempfile.gettempdir()}: "
                f"{fault.strerror or fault}. Set TMPDIR to a folder with more room, or allow more memory, by memory= or "
                "--memory.",
            ) from fault
        self.bytes = 0


def _join(chunks: list[Tensor], file: BinaryIO | None) -> Tensor:
    if file is None or not file.tell():
        return torch.cat(chunks)
    (empty,) = chunks
    rows = np.memmap(file, dtype=empty.numpy().dtype, mode="r+")
    return torch.from_numpy(rows.reshape(-1, *empty.shape[1:]))


def _survives_rounding(values: Tensor) -> bool:
    """Whether float16 keeps how the columns vary, such as not of one about 100 with a deviation of .01: what it adds is below
    3 % of each column's deviation, unless the column is constant."""
    noise, variance = (values.half().float() - values).square().mean(0), values.var(0, correction=0)
    constant = variance <= 1e-12 * values.square().mean(0)
    return bool((constant | (noise <= 1e-3 * variance) | ~noise.isfinite()).all())


def _as_in_file(chunk: Tensor) -> Tensor:
    return chunk.cpu().float() if chunk.dtype == torch.float16 else chunk.cpu()
