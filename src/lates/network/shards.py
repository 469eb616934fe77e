"""Where several processes calibrate together, each reads its own shard of the rows, through an ordinary loader of them.

    shard = Subset(dataset, range(rank, len(dataset), world_size))

Every row must be in one shard only: a row that two processes read counts twice in the fit, and is refused.
"""

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from lates.runtime import Processes

WORKERS = ("num_workers", "timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor")
KEPT = ("collate_fn", "pin_memory", *WORKERS)
"""The options of a loader that its shards keep."""
ADVICE = "Pass each process its own rows: DataLoader(Subset(dataset, range(rank, len(dataset), world_size)), …)."


def shard_loader(loader: Iterable[Any], rank: int, world_size: int) -> Iterable[Any]:
    """The part of process `rank` in a loader that every process has alike, without repetition.

    Of a DataLoader over a dataset with indices: rows rank, rank + world_size, … of those that its sampler takes, in whatever
    order. Of anything else: every `world_size`-th batch; all processes must then read the batches in the same order.
    """
    if type(loader) is not DataLoader or isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
        return BatchShard(loader, rank, world_size)
    if isinstance(loader.sampler, DistributedSampler) and isinstance(loader.dataset, Sized):
        rows = range(len(loader.dataset))  # that sampler repeats rows
    else:
        rows = sorted(loader.sampler)
    options = {name: getattr(loader, name) for name in KEPT}
    return DataLoader(loader.dataset, loader.batch_size, sampler=rows[rank::world_size], **options)


@dataclass(frozen=True)
class BatchShard:
    loader: Iterable[Any]
    rank: int
    world_size: int

    def __iter__(self) -> Iterator[Any]:
        return islice(self.loader, self.rank, None, self.world_size)


def refuse_padding(loader: Iterable[Any], role: str) -> None:
    """A `DistributedSampler` repeats rows so that every process gets equally many."""
    sampler = loader.sampler if isinstance(loader, DataLoader) else None
    if isinstance(sampler, DistributedSampler) and not sampler.drop_last and isinstance(sampler.dataset, Sized):
        rows, world_size = len(sampler.dataset), sampler.num_replicas
        if rows % world_size:
            raise ValueError(
                f"The {role} loader's DistributedSampler repeats {-rows % world_size} of {rows} rows to give {world_size} "
                f"processes equally many, and a repeated row counts twice in the fit. {ADVICE}"
            )


def refuse_shared_rows(digests: Tensor, role: str, processes: Processes) -> None:
    """Refuse loaders that read the same rows in two processes: as a rule both read all rows."""
    if processes.world_size == 1:
        return
    rows_by_rank = [sorted(of_rank) for of_rank in processes.gather(digests.tolist())]
    ranks = [str(rank) for rank, rows in enumerate(rows_by_rank) if any(rows) and rows_by_rank.count(rows) > 1]
    if ranks:
        raise ValueError(
            f"The {role} loaders of processes {', '.join(ranks)} read the same rows, which would count more than once. "
            f"{ADVICE} To calibrate in one process alone, call calibrate there with distributed=False."
        )


def synchronise_buffers(network: nn.Module, processes: Processes) -> None:
    """Let the network have rank 0's buffers: data-parallel training leaves every process with its own batch statistics.
    Parameters, however, must be the same."""
    if processes.world_size == 1:
        return
    contents = [parameter.detach().contiguous().flatten().view(torch.uint8) for parameter in network.parameters()]
    # sums of bytes are exact, hence the same on every device
    checksums = processes.gather([int(content.sum(dtype=torch.int64)) for content in contents])
    if any(of_rank != checksums[0] for of_rank in checksums):
        raise ValueError(
            "The processes calibrate different networks: their parameters differ. Load the same checkpoint in all of them."
        )
    buffers = processes.gather([buffer.cpu() for buffer in network.buffers()])[0]
    for buffer, of_first in zip(network.buffers(), buffers, strict=True):
        buffer.copy_(of_first)
