"""Where several processes calibrate together, each reads its own shard of the rows, through an ordinary loader of them.

    shard = Subset(dataset, range(rank, len(dataset), world_size))

Every row must be in one shard only: a row that two processes read counts twice in the fit.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from lates.network.batches import Batch
from lates.network.pooling import tensors_in
from lates.runtime import ALONE, Processes

ADVICE = "Pass each process its own rows: DataLoader(Subset(dataset, range(rank, len(dataset), world_size)), …)."


@dataclass(frozen=True)
class Shard:
    """This process's rows among those of all.

    before   rows of one pass that processes of lower rank have
    in_pass  rows of one pass that all processes have together
    """

    processes: Processes
    before: int
    in_pass: int

    @staticmethod
    def of(rows: int, processes: Processes = ALONE) -> "Shard":
        """From how many rows of one pass this process has."""
        counts = processes.gather(rows)
        return Shard(processes, sum(counts[: processes.rank]), sum(counts))


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
    return DataLoader(
        loader.dataset,
        loader.batch_size,
        sampler=rows[rank::world_size],
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
    )


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


def refuse_shared_batch(batch: Batch, role: str, processes: Processes) -> None:
    """Refuse loaders that begin with the same batch in two processes: as a rule both would read all rows."""
    digests = processes.gather(_digest(batch))
    if len(set(digests)) < len(digests):
        ranks = ", ".join(str(rank) for rank, digest in enumerate(digests) if digests.count(digest) > 1)
        raise ValueError(
            f"The {role} loaders of processes {ranks} begin with the same batch, and its rows would count more than once. "
            f"{ADVICE} To calibrate in one process alone, call calibrate there with distributed=False."
        )


def _digest(batch: Batch) -> str:
    digest = hashlib.sha256()
    plain = (values for values in tensors_in(batch.inputs) if values.layout == torch.strided and not values.is_nested)
    for values in (batch.labels, *plain):
        digest.update(values.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
