"""Several processes that calibrate together: each reads its own shard of the rows, through an ordinary loader of them:

shard = Subset(dataset, range(rank, len(dataset), world_size))
"""

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from lates.runtime import Processes

WORKERS = ("num_workers", "timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor")
KEPT_OPTIONS = ("collate_fn", "pin_memory", *WORKERS)
"""The options of a loader that its shards keep."""
ADVICE = "Pass each process its own rows: DataLoader(Subset(dataset, range(rank, len(dataset), world_size)), …)."


def shard_loaders(loaders: Mapping[str, Iterable[Any]], rank: int, world_size: int) -> dict[str, Iterable[Any]]:
    """The part of process `rank` in loaders that every process has alike, without repetition.

    Of a DataLoader over a dataset with indices: rows rank, rank + world_size, … of those that its sampler takes, in whatever
    order. Of anything else: every `world_size`-th batch; all processes must then read the batches in the same order.
    """
    if world_size == 1:
        return dict(loaders)
    return {role: _shard(loader, rank, world_size) for role, loader in loaders.items()}


def _shard(loader: Iterable[Any], rank: int, world_size: int) -> Iterable[Any]:
    if type(loader) is not DataLoader or isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
        return BatchShard(loader, rank, world_size)
    if isinstance(loader.sampler, DistributedSampler) and isinstance(loader.dataset, Sized):
        indices = range(len(loader.dataset))  # that sampler repeats some
    else:
        indices = sorted(loader.sampler)
    options = {name: getattr(loader, name) for name in KEPT_OPTIONS}
    return DataLoader(loader.dataset, loader.batch_size, sampler=indices[rank::world_size], **options)


@dataclass(frozen=True)
class BatchShard:
    loader: Iterable[Any]
    rank: int
    world_size: int

    def __iter__(self) -> Iterator[Any]:
        return islice(self.loader, self.rank, None, self.world_size)


def refuse_padding(loader: Iterable[Any], role: str) -> None:
    """A `DistributedSampler` repeats rows so that every process gets equally many."""
    sampler = sampler_of(loader)
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
    rows_by_rank = [sorted(rows) for rows in processes.gather(digests.tolist())]
    ranks = [str(rank) for rank, rows in enumerate(rows_by_rank) if any(rows) and rows_by_rank.count(rows) > 1]
    if ranks:
        raise ValueError(
            f"The {role} loaders of processes {', '.join(ranks)} read the same rows, which would count more than once. "
            f"{ADVICE} To calibrate in one process alone, call calibrate there with distributed=False."
        )


def sampler_of(loader: Any) -> Any:
    """What chooses a loader's rows: where the user passes a `batch_sampler`, `loader.sampler` is a dummy."""
    batch_sampler = getattr(loader, "batch_sampler", None)  # without a truth value where it has no length
    return getattr(loader if batch_sampler is None else batch_sampler, "sampler", None)
