"""Rows that would count twice, because train and hold-out share them."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import RandomSampler, SequentialSampler

from lates.network.batches import is_dense
from lates.network.features import Features
from lates.network.pooling import tensors_in
from lates.network.sharding import sampler_of
from lates.runtime import warn_caller

DIGESTED_NUMBERS = 4096
"""Numbers of an input that enter its digest, evenly spaced: all of a CIFAR image, a part of a larger one."""
TOLERATED_OVERLAP = 0.01
"""The share of hold-out rows that may equal a training row by nature: tables and short texts repeat themselves."""
MULTIPLIER = 0x1E3779B97F4A7C15
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def refuse_overlap(train: Iterable[Any], holdout: Iterable[Any]) -> None:
    """Refuse one loader, or loaders of one whole dataset, for both; before anything is read."""
    if (whole := _dataset_read_by(train)) is _dataset_read_by(holdout):
        raise ValueError(
            f"train and holdout read the same {type(whole).__name__}. The stack must be fitted on rows that trained "
            "neither network nor probes; split them, e.g. with torch.utils.data.random_split."
        )


def _dataset_read_by(loader: Any) -> Any:
    """The dataset, if the loader reads all of it."""
    sampler = sampler_of(loader)
    reads_all = isinstance(sampler, SequentialSampler | RandomSampler) and sampler.data_source is loader.dataset
    return loader.dataset if reads_all else loader


def warn_of_overlap(train: Features, holdout: Features) -> None:
    """Warn where more than a few hold-out rows have the inputs of training rows: weights fitted on memorised rows mean
    nothing."""
    digests = torch.cat(holdout.processes.gather(holdout.digests))
    shared = train.processes.all_reduce(torch.isin(digests, train.digests).double())
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
