"""Mean and deviation of every feature over all rows of all processes."""

import torch
from torch import Tensor

from lates.runtime import Processes

ROWS_TO_SUM = 1024
"""Small batches are collected to this many rows before they are summed: many small sums would keep a GPU waiting."""


class Moments:
    """Sums per column in float64 around the mean of rank 0's first batch, so that nothing cancels.

    `centre` and `deviation` are those of all processes once `reduce` was called.
    """

    def __init__(self, first: Tensor, processes: Processes) -> None:
        mean = first.double().mean(0) if len(first) else first.new_zeros(first.shape[1:], dtype=torch.float64)
        self.processes, self.shift = processes, processes.first(mean)
        self.sums = self.shift.new_zeros(3, len(self.shift))  # count, sum and sum of squares around the shift
        self._waiting: list[Tensor] = []

    def add(self, values: Tensor) -> None:
        self._waiting.append(values)
        if sum(map(len, self._waiting)) >= ROWS_TO_SUM:
            self._sum_waiting()

    def reduce(self) -> None:
        self._sum_waiting()
        self.sums = self.processes.sum(self.sums)

    def _sum_waiting(self) -> None:
        if self._waiting:
            moved = torch.cat(self._waiting).double() - self.shift
            self._waiting = []
            self.sums += torch.stack([torch.full_like(self.shift, len(moved)), moved.sum(0), moved.square().sum(0)])

    @property
    def finite(self) -> bool:
        return bool(self.sums.isfinite().all())

    @property
    def centre(self) -> Tensor:
        count, total, _ = self.sums
        return self.shift + total / count

    @property
    def deviation(self) -> Tensor:
        """1 for a constant column, so that dividing by it keeps the column; rounding of float32 counts as constant."""
        count, total, squares = self.sums
        variance = (squares / count - (total / count).square()).clamp(min=0)
        scale = self.centre.square() + variance
        return torch.where(variance > 1e-12 * scale, variance.sqrt(), 1.0)
