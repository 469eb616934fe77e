"""Rows that train and hold-out share: refused where the loaders show it, and otherwise noticed by digests of the raw inputs."""

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from lates.network.batches import each_tensor, first_tensor, split_batch
from lates.network.copying import is_dense
from lates.network.features import Features
from lates.runtime import caller_stacklevel, form_of

COMPARED = 4096
"""Numbers of an input that enter its digest, evenly spaced: all of a CIFAR image, a part of a larger one."""
NATURAL = 0.01
"""The share of hold-out rows that may equal a training row by nature: tables and short texts repeat themselves."""
MULTIPLIER = 0x1E3779B97F4A7C15
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def refuse_overlap(train: Iterable[Any], holdout: Iterable[Any]) -> None:
    """Refuse a hold-out that shares rows with the training split: weights fitted on memorised rows mean nothing."""
    (base, rows), (other_base, other_rows) = _rows_of(train), _rows_of(holdout)
    if base is not other_base:
        same = np.intersect1d(_addresses(base, rows, "train"), _addresses(other_base, other_rows, "holdout"))
        if len(same):
            raise ValueError(
                f"train and holdout share {len(same)} rows: their tensors lie in the same memory. The stack must be fitted on "
                "rows that trained neither network nor probes."
            )
        return
    if rows is None or other_rows is None:
        raise ValueError(
            f"train and holdout read the same {type(base).__name__}. The stack must be fitted on rows that trained neither "
            "network nor probes; split them, e.g. with torch.utils.data.random_split."
        )
    shared = rows & other_rows
    if shared:
        raise ValueError(
            f"train and holdout share {len(shared)} rows of one {type(base).__name__} (row {min(shared)}, for one). The "
            "stack must be fitted on rows that trained neither network nor probes."
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


def _rows_of(loader: Any) -> tuple[Any, set[int] | None]:
    """The dataset at the bottom of a loader and which of its rows are read (None: all)."""
    base = getattr(loader, "dataset", loader)
    by_batch = getattr(loader, "batch_sampler", None)
    sampler = getattr(loader, "sampler", None) if by_batch is None else getattr(by_batch, "sampler", None)
    chosen = sampler if isinstance(sampler, list | tuple | range) else getattr(sampler, "indices", None)
    rows = None if chosen is None else [int(i) for i in chosen]
    while isinstance(base, Subset):
        indices = [int(i) for i in base.indices]
        rows = indices if rows is None else [indices[i] for i in rows]
        base = base.dataset
    return base, None if rows is None else set(rows)


def _addresses(base: Any, rows: set[int] | None, role: str) -> np.ndarray:
    """Where the inputs of the rows lie in memory, as far as that shows without reading: in a `TensorDataset` and in a list of
    batches."""
    if isinstance(base, TensorDataset):
        inputs = [base.tensors[0]]
    else:
        inputs = [first_tensor(split_batch(batch, role)[0]) for batch in base] if isinstance(base, list | tuple) else []
    starts = [np.empty(0, np.int64)]
    for values in inputs:
        if values is not None and not form_of(values) and values.data_ptr():
            places = np.arange(len(values)) if rows is None else np.array(sorted(rows), np.int64)
            starts.append(values.data_ptr() + places * values.stride(0) * values.element_size())
    return np.concatenate(starts)
