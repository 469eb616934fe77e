"""Standardised features, read in chunks of rows and summed over all of them: all that a probe sees of the data."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from lates.network import Features
from lates.runtime import map_threads, split_rows, thread_count
from lates.settings import Settings

CPU_CHUNK, GPU_CHUNK = 1 << 21, 1 << 27
"""Numbers, of features and of logits, in a chunk of rows: few enough for the memory, enough to keep a device busy."""
PER_THREAD = 1 << 19
"""Numbers of features worth another thread: only one of Python's threads at a time can begin an operation."""


class StandardisedRows:
    """Features of one block with their labels, standardised, if at all, by the training split's moments.

    They are read in chunks that threads share. A standardised copy is kept where it takes at most `memory` bytes. Where rows
    are sharded over processes, those here are this one's; `total` counts all of them.
    """

    def __init__(
        self, split: Features, name: str, train: Features, device: torch.device, settings: Settings, memory: int
    ) -> None:
        self.features, self.labels, self.positions = split.blocks[name], split.labels.to(device), split.positions
        self.classes, self.passes, self.device = split.classes, split.passes, device
        self.processes, self.total = split.processes, split.all_rows
        self.mean, self.deviation = train.centre[name].to(device), train.deviation[name].to(device)
        if not settings.standardise:
            self.mean, self.deviation = torch.zeros_like(self.mean), torch.ones_like(self.deviation)
        self._threads = thread_count(self.features.numel(), device, PER_THREAD)
        self._step = rows_at_once(self.width, self.classes, device)
        size = torch.float32.itemsize * self.features.numel()
        self.bytes_kept = size if size <= memory else 0
        self._copy: Tensor | None = None
        if self.bytes_kept > 0:
            copy = torch.empty(self.features.shape, dtype=torch.float32, device=device)
            for chunk in split_rows(len(self), -(-len(self) // self._step)):
                copy[chunk] = self.take(chunk)
            self._copy = copy

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def width(self) -> int:
        return self.features.shape[1]

    def take(self, rows: Tensor | slice) -> Tensor:
        """These rows, standardised."""
        if self._copy is not None:
            return self._copy[rows]
        raw = self.features[rows if isinstance(rows, slice) else rows.to(self.features.device)]
        raw = raw.to(self.device)  # before the cast to float64, which takes four times the bytes
        return raw.to(torch.float64, copy=True).sub_(self.mean).div_(self.deviation).float()

    def sum(self, term: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """The sum, in float64, of a term of each chunk's features and labels, over all processes."""
        return self._sum(lambda chunk: term(self.take(chunk), self.labels[chunk]), len(self))

    def mean_over_sample(self, count: int, term: Callable[[Tensor], Tensor]) -> Tensor:
        """The mean of a sum over rows, estimated on about `count` rows, evenly spaced among those of all processes."""
        step = max(self.total // count, 1)
        chosen = (self.positions % step == 0).nonzero()[:, 0]
        total = self._sum(lambda chunk: term(self.take(chosen[chunk])), len(chosen))
        return total / len(range(0, self.total, step))

    def _sum(self, term: Callable[[slice], Tensor], count: int) -> Tensor:
        """Add up a term of each chunk of the first `count` rows; each thread has equally many chunks."""

        def sum_share(share: slice) -> Tensor:
            first, *others = chunks[share]
            total = term(first).double()
            for chunk in others:
                total += term(chunk)
            return total

        threads = max(1, min(self._threads, count * self.width // PER_THREAD))
        per_thread = -(-count // (threads * self._step))
        chunks = split_rows(count, per_thread * threads)
        parts = split_rows(len(chunks), threads)
        return self.processes.all_reduce(functools.reduce(torch.add, map_threads(sum_share, parts, self.device)))


def rows_at_once(width: int, classes: int, device: torch.device) -> int:
    return max((CPU_CHUNK if device.type == "cpu" else GPU_CHUNK) // (width + classes), 1)
