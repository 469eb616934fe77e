"""Rows that would count twice: shared by train and hold-out, or read by two processes. Digests of the raw inputs show them."""

import warnings
from collections.abc import Iterable, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from lates.network.batches import Batch, each_tensor, is_dense
from lates.network.features import Features
from lates.runtime import Processes, caller_stacklevel

COMPARED = 4096
"""Numbers of an input that enter its digest, evenly spaced: all of a CIFAR image, a part of a larger one."""
NATURAL = 0.01
"""The share of hold-out rows that may equal a training row by nature: tables and short texts repeat themselves."""
MULTIPLIER = 0x1E3779B97F4A7C15
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
ADVICE = "Pass each process its own rows: DataLoader(Subset(dataset, range(rank, len(dataset), world_size)), …)."


def refuse_overlap(train: Iterable[Any], holdout: Iterable[Any]) -> None:
    """Refuse one loader, or loaders of one whole dataset, for both; before anything is read."""
    if _whole(train) is _whole(holdout):
        raise ValueError(
            f"train and holdout read the same {type(_whole(train)).__name__}. The stack must be fitted on rows that trained "
            "neither network nor probes; split them, e.g. with torch.utils.data.random_split."
        )


def _whole(loader: Any) -> Any:
    """The dataset, if the loader reads all of it."""
    reads_all = isinstance(getattr(loader, "sampler", None), SequentialSampler | RandomSampler)
    return loader.dataset if reads_all else loader


def warn_of_overlap(train: Features, holdout: Features) -> None:
    """Warn where more than a few hold-out rows have the inputs of training rows: weights fitted on memorised rows mean
    nothing."""
    digests = torch.cat(holdout.processes.gather(holdout.digests))
    shared = train.processes.sum(torch.isin(digests, train.digests).double())
    repeated = int(((shared > 0) & (digests != 0)).sum())
    if repeated > NATURAL * len(digests):
        warnings.warn(
            f"{repeated:,} of {len(digests):,} hold-out rows have the inputs of training rows. If they trained the network, "
            "the weights will be too confident: pass rows that were not used for training as holdout=.",
            UserWarning,
            stacklevel=caller_stacklevel(),
        )


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
    rows = torch.stack([batch.labels, digest_rows(batch.inputs, batch.rows)])
    batches = processes.gather(rows.tolist())
    ranks = ", ".join(str(rank) for rank, of_process in enumerate(batches) if batches.count(of_process) > 1)
    if ranks:
        raise ValueError(
            f"The {role} loaders of processes {ranks} begin with the same batch, and its rows would count more than once. "
            f"{ADVICE} To calibrate in one process alone, call calibrate there with distributed=False."
        )


def digest_rows(inputs: Any, rows: int) -> Tensor:
    """One 64-bit number per row [rows], equal for equal inputs, zeros at their end aside; 0 where they hold no tensor."""
    total = torch.zeros(rows, dtype=torch.int64)

    def add(values: Tensor) -> Tensor:
        nonlocal total
        if is_dense(values) and values.dim() and values.element_size() in INTEGERS:
            alike = len(values) != rows  # such as tokens first: what the whole batch holds counts for each of its rows
            numbers = _digest(values.detach().reshape(1 if alike else rows, -1))
            total = _mixed(total.to(values.device) + numbers)
        return values

    if rows:
        each_tensor(inputs, add)
    return total.cpu()


def _digest(values: Tensor) -> Tensor:
    """The sum over numbers of their mixed bits times an odd number of their place: [n, numbers] -> [n]."""
    chosen = values[:, :: -(-values.shape[1] // COMPARED) or 1].contiguous()
    bits = chosen.view(INTEGERS[chosen.element_size()]).long()
    places = torch.arange(bits.shape[1], device=bits.device)
    return (_mixed(bits) * _mixed(2 * places + 1)).sum(1)


def _mixed(bits: Tensor) -> Tensor:
    """High bits depend on low ones after the product, low ones on high ones after the shift; 0 stays 0."""
    product = bits * MULTIPLIER
    return product ^ (product >> 32)
