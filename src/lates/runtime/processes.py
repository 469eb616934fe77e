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

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Processes:
    """The processes of a calibration, this one of rank `rank`; `device` is where the group can send tensors from."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = CPU

    @staticmethod
    def current(device: torch.device) -> "Processes":
        """The default process group of torch.distributed; a single process where there is none."""
        if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
            return ALONE
        if CPU.type in _backend_devices():
            device = CPU
        elif device.type != "cuda":
            device = torch.device("cuda", torch.cuda.current_device())
        return Processes(dist.get_rank(), dist.get_world_size(), device)

    def all_reduce(self, values: Tensor) -> Tensor:
        """The sum over all processes of tensors of one shape and dtype: the same bits everywhere."""
        if self.world_size == 1:
            return values
        device = values.device if values.device.type in _backend_devices() else self.device
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


def _backend_devices() -> list[str]:
    """The device types whose tensors the default group can send."""
    return [part.partition(":")[0] for part in dist.get_backend_config().split(",")]
