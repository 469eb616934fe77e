"""Several processes that calibrate together: each holds its own shard of the rows, and sums are all-reduced.

Whatever is decided from data is decided from sums over all processes, so every process takes the same decisions and calls the
same collectives in the same order. A process that fails is the launcher's concern: torchrun then ends them all.
"""

import socket
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Processes:
    """The processes of a calibration, this one of rank `rank`."""

    rank: int = 0
    world_size: int = 1

    @staticmethod
    def current() -> "Processes":
        """The default process group of torch.distributed; a single process where there is none."""
        if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
            return ALONE
        return Processes(dist.get_rank(), dist.get_world_size())

    def all_reduce(self, values: Tensor) -> Tensor:
        """The sum over all processes of tensors of one shape and dtype: the same bits everywhere."""
        if self.world_size == 1:
            return values
        sendable = [part.partition(":")[0] for part in dist.get_backend_config().split(",")]
        kind = next((kind for kind in (values.device.type, "cpu") if kind in sendable), sendable[0])
        device = values.device if kind == values.device.type else torch.device(kind)
        total = values.detach().to(device).clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total.to(values.device)

    def broadcast(self, values: Tensor) -> Tensor:
        """Rank 0's tensor, of the shape that all have."""
        return self.all_reduce(values if self.rank == 0 else torch.zeros_like(values))

    def gather(self, item: Any) -> list[Any]:
        """Every process's item, small and picklable, in the order of ranks."""
        if self.world_size == 1:
            return [item]
        items: list[Any] = [None] * self.world_size
        dist.all_gather_object(items, item)
        return items

    def on_this_host(self) -> int:
        """How many of the processes share this machine, this one included."""
        return self.gather(socket.gethostname()).count(socket.gethostname())


ALONE = Processes()
