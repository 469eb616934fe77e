"""Rows that would count twice: train and hold-out must share none, nor may the processes that calibrate together.

Each of several processes reads its own shard of the rows, through an ordinary loader of them:

    shard = Subset(dataset, range(rank, len(dataset), world_size))
"""

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from lates.network.batches import is_dense
from lates.network.features import Features
from lates.network.pooling import tensors_in
from lates.runtime import Processes, warn_caller

DIGESTED_NUMBERS = 4096
"""Numbers of an input that enter its digest, evenly spaced: all of a CIFAR image, a part of a larger one."""
TOLERATED_OVERLAP = 0.01
"""The share of hold-out rows that may equal a training row by nature: tables and short texts repeat themselves."""
MULTIPLIER = 0x1E3779B97F4A7C15
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

WORKERS = ("num_workers", "timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor")
KEPT_OPTIONS = ("collate_fn", "pin_memory", *WORKERS)
"""The options of a loader that its shards keep."""
ADVICE = "Pass each process its own rows: DataLoader(Subset(dataset, range(rank, len(dataset), world_size)), …)."


def refuse_overlap(train: Iterable[Any], holdout: Iterable[Any]) -> None:
    """Refuse one loader, or loaders of one whole dataset, for both; before anything is read."""
    if (whole := _dataset_read_by(train)) is _dataset_read_by(holdout):
        raise ValueError(
            f"train and holdout read the same {type(whole).__name__}. The stack must be fitted on rows that trained "
            "neither network nor probes; split them, e.g. with torch.utils.data.random_split."
        )


def _dataset_read_by(loader: Any) -> Any:
    """The dataset, if the loader reads all of it."""
    sampler = _sampler_of(loader)
    reads_all = isinstance(sampler, SequentialSampler | RandomSampler) and sampler.data_source is loader.dataset
    return loader.dataset if reads_all else loader


def _sampler_of(loader: Any) -> Any:
    """What chooses a loader's rows: where the user passes a `batch_sampler`, `loader.sampler` is a dummy."""
    return getattr(getattr(loader, "batch_sampler", None) or loader, "sampler", None)


def warn_of_overlap(train: Features, holdout: Features) -> None:
    """Warn where more than a few hold-out rows have the inputs of training rows: weights fitted on memorised rows mean
    nothing."""
    digests = torch.cat(holdout.processes.gather(holdout.digests))
    shared = train.processes.sum(torch.isin(digests, train.digests).double())
    repeated = int(((shared > 0) & (digests != 0)).sum())
    if repeated > TOLERATED_OVERLAP * len(digests):
        warn_caller(
            f"{repeated:,} of {len(digests):,} hold-out rows have the inputs of training rows. If they trained the network, "
            "the weights will be too confident: pass rows that were not used for training as holdout=."
        )


def digest_rows(inputs: Any, rows: int) -> Tensor:
    """One 64-bit number per row [rows], equal for equal inputs, zeros at their end aside; 0 where they hold no tensor.

    A polynomial in the row's numbers, read as integers, modulo 2^64.
    """
    total = torch.zeros(rows, dtype=torch.int64)
    for values in tensors_in(inputs):
        if rows and is_dense(values) and values.dim() and values.element_size() in INTEGERS:
            shared = len(values) != rows  # such as tokens first: what the whole batch holds counts for each of its rows
            numbers = values.detach().reshape(1 if shared else rows, -1)
            chosen = numbers[:, :: -(-numbers.shape[1] // DIGESTED_NUMBERS) or 1].contiguous()
            bits = chosen.view(INTEGERS[chosen.element_size()]).long()
            bits = bits ^ (bits >> 32)  # the low bits of many floating-point numbers are all zero
            powers = torch.full((bits.shape[1],), MULTIPLIER, device=bits.device).cumprod(0)
            total = total.to(bits.device) * MULTIPLIER + (bits * powers).sum(1)
    return total.cpu()


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
    options = {name: getattr(loader, name) for name in KEPT_OPTIONS}
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
    sampler = _sampler_of(loader)
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
