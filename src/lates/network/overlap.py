"""Hold-out rows whose inputs equal training rows, noticed by digests of the raw inputs, however the two splits are stored."""

import warnings
from typing import Any

import torch
from torch import Tensor

from lates.network.batches import each_tensor
from lates.network.copying import is_dense
from lates.network.features import Features
from lates.runtime import caller_stacklevel

COMPARED = 4096
"""Numbers of an input that enter its digest, evenly spaced: all of a CIFAR image, a part of a larger one."""
NATURAL = 0.01
"""The share of hold-out rows that may equal a training row by nature: tables and short texts repeat themselves."""
MULTIPLIER = 0x1E3779B97F4A7C15
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def digest_rows(inputs: Any, rows: int) -> Tensor:
    """One 64-bit number per row [rows], equal for equal inputs, zeros at their end aside; 0 where they hold no tensor."""
    total = torch.zeros(rows, dtype=torch.int64)

    def add(values: Tensor) -> Tensor:
        nonlocal total
        if is_dense(values) and values.dim() and len(values) == rows and values.element_size() in INTEGERS:
            total = _mixed(total.to(values.device) + _digest(values.detach().reshape(rows, -1)))
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
            "the weights will be too confident: pass rows that trained nothing as holdout=.",
            UserWarning,
            stacklevel=caller_stacklevel(),
        )
