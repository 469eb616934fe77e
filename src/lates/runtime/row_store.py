"""Rows that grow batch by batch: in memory up to a limit, in unnamed temporary files beyond it."""

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor


class RowStore:
    """Several named tensors [rows, …] of which at most about `limit` bytes, and one batch, stay in memory.

    A context manager: at its end the files are closed and gone. Tensors collected before live on as memory maps, which keep
    their unnamed file until they are freed themselves.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes = limit, 0
        self._chunks: dict[str, list[Tensor]] = {}
        self._files: dict[str, BinaryIO] = {}
        self._open_files = ExitStack()

    def __enter__(self) -> "RowStore":
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError):  # what was not flushed is not needed any more
            self._open_files.close()

    @property
    def spilled(self) -> bool:
        return bool(self._files)

    def append(self, rows: Mapping[str, Tensor]) -> None:
        """Add one batch: the same names every time."""
        for name, values in rows.items():
            self._chunks.setdefault(name, []).append(values)
            self.bytes += values.numel() * values.element_size()
        if self.bytes > self.limit:
            self._spill()

    def collect(self) -> dict[str, Tensor]:
        """All rows under each name, in memory or mapped from the files; the store is empty afterwards."""
        if self.spilled:
            self._spill()
        with torch.inference_mode(False):
            return {name: self._collect(self._chunks.pop(name), self._files.get(name)) for name in list(self._chunks)}

    def _spill(self) -> None:
        try:
            for name, chunks in self._chunks.items():
                if name not in self._files:
                    file = tempfile.TemporaryFile(prefix="lates-")  # noqa: SIM115 (`__exit__` closes it)
                    self._files[name] = self._open_files.enter_context(file)
                for chunk in chunks:
                    self._files[name].write(chunk.cpu().numpy().tobytes())
                self._files[name].flush()
                self._chunks[name] = [torch.empty_like(chunks[0][:0], device="cpu")]
        except OSError as fault:  # of an unnamed file, so the system cannot say where
            raise OSError(
                fault.errno,
                f"Cannot write rows that exceed the memory to a temporary file in {tempfile.gettempdir()}: "
                f"{fault.strerror or fault}. Set TMPDIR to a folder with more room, or allow more memory, by memory= or "
                "--memory.",
            ) from fault
        self.bytes = 0

    def _collect(self, chunks: list[Tensor], file: BinaryIO | None) -> Tensor:
        if file is None:
            return torch.cat(chunks)
        (empty,) = chunks
        if not file.tell():
            return empty
        rows = np.memmap(file, dtype=empty.numpy().dtype, mode="r+")
        return torch.from_numpy(rows.reshape(-1, *empty.shape[1:]))
