"""The same logits seen class by class: columns of the float64 softmax, a few classes at a time."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lates.metrics.rows import CHUNK, peaks_and_norms
from lates.threads import in_threads, row_shares, thread_count

FEWEST_COLUMNS = 16  # 64 bytes of a float32 row: reading fewer would fetch the same cache lines again


@dataclass(frozen=True, eq=False)
class Columns:
    """Probabilities [k, n] of k successive classes; `owners` [m] and `rows` [m] place the m rows labelled with them.

    `probabilities[owners, rows]` are those rows' true-class probabilities, ordered by class; `positives` [k] counts
    them for each class.
    """

    probabilities: Tensor
    owners: Tensor
    rows: Tensor
    positives: Tensor


def over_columns(function: Callable[[Columns], Tensor], logits: Tensor, labels: Tensor) -> Tensor:
    """The function [k] of all columns of softmax(logits), a few at a time, put together: [classes].

    The softmax is computed a second time per column, so that no [n, classes] float64 is held; by `exp` itself, so that what
    is equal by the plain formula is equal here: the AUC counts ties.
    """
    n, classes = logits.shape
    peaks, totals, _ = peaks_and_norms(logits, Tensor.exp_)
    by_class = torch.argsort(labels, stable=True)
    positives = torch.bincount(labels, minlength=classes)
    ends = positives.cumsum(0).tolist()
    width = max(FEWEST_COLUMNS, CHUNK // n)

    def columns_from(first: int) -> Columns:
        columns = logits[:, first : first + width].T
        columns = columns.to(torch.float64, copy=True, memory_format=torch.contiguous_format)
        columns.sub_(peaks).exp_().div_(totals)
        last = first + len(columns)
        rows = by_class[ends[first] - int(positives[first]) : ends[last - 1]]
        return Columns(columns, labels[rows] - first, rows, positives[first:last])

    def of_share(firsts: range) -> list[Tensor]:
        return [function(columns_from(first)) for first in firsts]

    firsts = range(0, classes, width)
    shares = [firsts[part] for part in row_shares(len(firsts), thread_count(logits.numel(), logits.device))]
    return torch.cat([result for results in in_threads(of_share, shares) for result in results])


def ascending(values: Tensor) -> Tensor:
    """Values [..., n] sorted along the last axis; on the CPU by numpy, whose sort without indices is far quicker."""
    if values.device.type != "cpu":
        return values.sort(dim=-1).values
    ordered = values.clone()
    ordered.numpy().sort(axis=-1)
    return ordered
