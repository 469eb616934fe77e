"""Rows that grow batch by batch: in memory up to a limit, in nameless files beyond it; and their moments."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from lates.team import Team

ROWS_TO_SUM = 1024


class RowStore:
    """Several named tensors [rows, …] of which at most about `limit` bytes, and one batch, stay in memory.

    Inside a `with`: the files are closed, and so gone, at its end; tensors collected before live on as memory maps, which
    keep their nameless file until they are freed themselves.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes, self.rows = limit, 0, 0
        self._chunks: dict[str, list[Tensor]] = {}
        self._files: dict[str, BinaryIO] = {}
        self._open_files = ExitStack()

    def __enter__(self) -> "RowStore":
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError):  # whatever is not on disk by now, nobody reads
            self._open_files.close()

    @property
    def spilled(self) -> bool:
        return bool(self._files)

    def append(self, rows: Mapping[str, Tensor]) -> None:
        """Add one batch: the same names every time, the same number of rows under each."""
        for name, values in rows.items():
            self._chunks.setdefault(name, []).append(values)
            self.bytes += values.numel() * values.element_size()
        self.rows += len(next(iter(rows.values())))
        if self.bytes > self.limit:
            self._spill()

    def collect(self) -> dict[str, Tensor]:
        """All rows under each name, in memory or mapped from the files; the store is empty afterwards."""
        if self.spilled:
            self._spill()
        with torch.inference_mode(False):
            return {name: self._collect(self._chunks.pop(name), self._files.get(name)) for name in list(self._chunks)}

    def _spill(self) -> None:
        for name, chunks in self._chunks.items():
            with naming_the_folder():
                if name not in self._files:
                    file = tempfile.TemporaryFile(prefix="lates-")  # noqa: SIM115 (`__exit__` closes it)
                    self._files[name] = self._open_files.enter_context(file)
                for chunk in chunks:
                    self._files[name].write(chunk.cpu().numpy().tobytes())
            self._chunks[name] = [torch.empty_like(chunks[0][:0], device="cpu")]
        self.bytes = 0

    def _collect(self, chunks: list[Tensor], file: BinaryIO | None) -> Tensor:
        if file is None:
            return torch.cat(chunks)
        with naming_the_folder():
            file.flush()
        if not self.rows:
            return chunks[0]
        shape = (self.rows, *chunks[0].shape[1:])
        return torch.from_numpy(np.memmap(file, dtype=chunks[0].numpy().dtype, mode="r+", shape=shape))


@contextmanager
def naming_the_folder() -> Iterator[None]:
    """Of a file without a name the system says only what failed: say where, and the two ways out."""
    try:
        yield
    except OSError as fault:
        raise OSError(
            fault.errno,
            f"Cannot write rows that exceed the memory to a temporary file in {tempfile.gettempdir()}: "
            f"{fault.strerror or fault}. Set TMPDIR to a folder with more room, or allow more memory, by memory= or --memory.",
        ) from fault


class Moments:
    """Mean and deviation per column in float64, by sums around the first batch's mean, so that nothing cancels; read them from
    what `over` returns.

    Small batches wait until there are enough rows to sum: a graphics card is asked so often otherwise that it waits.
    """

    def __init__(self, first: Tensor) -> None:
        self.shift = first.double().mean(0) if len(first) else first.new_zeros(first.shape[1:], dtype=torch.float64)
        self.count, self.total, self.squares = 0, torch.zeros_like(self.shift), torch.zeros_like(self.shift)
        self._waiting: list[Tensor] = []

    def add(self, values: Tensor) -> None:
        self._waiting.append(values)
        if sum(map(len, self._waiting)) >= ROWS_TO_SUM:
            self._settle()

    def _settle(self) -> None:
        if self._waiting:
            moved = torch.cat(self._waiting).double() - self.shift
            self._waiting = []
            self.count += len(moved)
            self.total += moved.sum(0)
            self.squares += moved.square().sum(0)

    def over(self, team: Team) -> "Moments":
        """Of all processes' rows: their sums, moved to the common mean.

        With n, t and q the count, sum and sum of squares around a shift s, those around s' = s + d are n, t - n d and
        q - 2 d t + n d².
        """
        self._settle()
        if team.size == 1:
            return self
        width, counted = len(self.shift), self.shift.new_tensor([self.count])
        sums = team.sum(torch.cat([counted, self.count * self.shift + self.total]))
        everywhere = Moments(self.shift.new_empty(0, width))
        everywhere.count, everywhere.shift = int(sums[0]), sums[1:] / sums[0].clamp(min=1)
        move = everywhere.shift - self.shift
        around = self.squares - 2 * move * self.total + self.count * move.square()
        everywhere.total, everywhere.squares = team.sum(torch.cat([self.total - self.count * move, around])).split(
            width
        )
        return everywhere

    @property
    def finite(self) -> bool:
        return bool(torch.isfinite(self.total).all())

    @property
    def centre(self) -> Tensor:
        return self.shift + self.total / self.count

    @property
    def deviation(self) -> Tensor:
        """Of a constant column 1, so that dividing by it keeps the column; rounding of float32 counts as constant."""
        variance = (self.squares / self.count - (self.total / self.count).square()).clamp(min=0)
        scale = self.centre.square() + variance
        return torch.where(variance > 1e-12 * scale, variance.sqrt(), 1.0)
