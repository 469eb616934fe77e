"""One pass over the logits: what each row contributes to the metrics, in float64; accuracy and the proper scores, its means.

With s = z - max(z) and S = sum_c exp(s_c), the softmax is p_c = exp(s_c) / S; its largest entry, the confidence, is
1 / S, and -log p_y = log S - s_y. Subtracting the maximum first makes everything here exactly invariant to a constant
added to a row's logits, as long as that addition itself did not round.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from lates.runtime import (
    Array,
    check_labels,
    check_logits,
    map_threads,
    split_rows,
    thread_count,
    warn_if_probabilities,
)

CHUNK = 2**18  # float64 elements at once: 2 MiB, about the cache of a core
COLUMNS = 32  # classes at once

Result = TypeVar("Result")
Statistic = Callable[[Tensor], Tensor]
"""How often each row is drawn [n], n rows in all -> the value on that draw."""
OfDraws = Callable[..., Statistic]
"""`Rows`, with a metric's options -> its statistic."""


def checked(logits: Array, labels: Array) -> tuple[Tensor, Tensor]:
    """Valid logits [n, classes] and labels [n] int64 on one device that has float64."""
    logits = checked_logits(logits)
    return logits, check_labels(labels, *logits.shape).to(logits.device)


def checked_logits(logits: Array) -> Tensor:
    logits = check_logits(logits).detach()
    warn_if_probabilities(logits)
    return logits.cpu() if logits.device.type == "mps" else logits


def peaks_and_sums(logits: Tensor) -> Tensor:
    """max_c z_c and S = sum_c exp(s_c) of every row, [2, n], rounded as exp is, so that ties of exp(s_c) / S stay ties."""

    def of_chunk(z: Tensor, rows: slice) -> Tensor:
        peaks = z.amax(dim=1)
        return torch.stack([peaks, z.sub_(peaks[:, None]).exp_().sum(dim=1)])

    return _of_rows(of_chunk, logits)


def _of_rows(term: Callable[[Tensor, slice], Tensor], logits: Tensor) -> Tensor:
    """A term [..., rows] of each chunk's logits in float64, which it may overwrite, and of its place: joined, [..., n]."""
    step = max(1, CHUNK // logits.shape[1])

    def of_share(share: slice) -> Tensor:
        parts, length = [], min(step, share.stop - share.start)
        buffer = torch.empty(length, logits.shape[1], dtype=torch.float64, device=logits.device)
        for start in range(share.start, share.stop, step):
            rows = slice(start, min(start + step, share.stop))
            z = buffer[: rows.stop - start].copy_(logits[rows])  # in one place: new memory costs more than exponentials
            parts.append(term(z, rows))
        return torch.cat(parts, dim=-1)

    shares = split_rows(len(logits), thread_count(logits.numel(), logits.device))
    return torch.cat(map_threads(of_share, shares, logits.device), dim=-1)


def confidence_of(logits: Array) -> Tensor:
    """The largest probability of each row [n], float64, on the device of the logits."""
    return 1 / peaks_and_sums(checked_logits(logits))[1]


def map_classes(function: Callable[[int, Tensor], Result], logits: Tensor) -> list[Result]:
    """The function of every class and its probabilities [n]; memory never holds an [n, classes] float64."""
    peaks, totals = peaks_and_sums(logits)[:, :, None]

    def of_share(share: slice) -> list[Result]:
        found: list[Result] = []
        for columns in logits[:, share].split(COLUMNS, dim=1):
            probabilities = columns.to(torch.float64, copy=True).sub_(peaks).exp_().div_(totals).T.contiguous()
            found += [function(c, p) for c, p in enumerate(probabilities, share.start + len(found))]
        return found

    shares = split_rows(logits.shape[1], thread_count(logits.numel(), logits.device))
    return [each for of_share in map_threads(of_share, shares, logits.device) for each in of_share]


@dataclass(frozen=True, eq=False)
class Rows:
    """Per-row values [n], float64, on the CPU: all that metrics of the predicted class need."""

    confidence: Tensor
    correct: Tensor
    nll: Tensor
    brier: Tensor

    def __len__(self) -> int:
        return len(self.confidence)

    def take(self, index: Tensor) -> "Rows":
        return Rows(self.confidence[index], self.correct[index], self.nll[index], self.brier[index])


def describe_rows(logits: Array, labels: Array) -> Rows:
    """Confidence max_c p_c, correctness (0 or 1), -log p_y and sum_c (p_c - [c = y])^2 of every row.

    The predicted class is the first that attains the maximum.
    """
    logits, labels = checked(logits, labels)

    def describe(z: Tensor, rows: slice) -> Tensor:
        label = labels[rows, None]
        label_logits = z.gather(1, label)[:, 0]
        peaks = z.amax(dim=1)
        exponentials = z.sub_(peaks[:, None]).mul_(1 / math.log(2)).exp2_()  # three times as fast as powers of e
        totals, squares = exponentials.sum(dim=1), torch.linalg.vector_norm(exponentials, dim=1) ** 2
        label_logits -= peaks
        correct = label_logits == 0
        tied = correct & (squares > 1.5)  # at least 2 where two classes attain the maximum; rarely so where one does
        correct[tied] = logits[rows][tied].argmax(dim=1) == label[tied, 0]
        brier = squares / totals**2 - 2 * label_logits.exp() / totals + 1
        return torch.stack([1 / totals, correct.double(), totals.log() - label_logits, brier])

    return Rows(*_of_rows(describe, logits).cpu())


def mean_of(column: str) -> OfDraws:
    """The mean of a value per row."""
    return lambda rows: lambda counts: counts @ getattr(rows, column) / len(rows)


def computed_anew(of_rows: Callable[..., float]) -> OfDraws:
    """The statistic of a function of rows that knows no shortcut: the drawn rows are described to it again."""

    def of_draws(rows: Rows, **options: Any) -> Statistic:
        def statistic(counts: Tensor) -> Tensor:
            return torch.tensor(of_rows(rows.take(torch.repeat_interleave(counts.long())), **options), dtype=torch.float64)

        return statistic

    return of_draws


def on_all_rows(of_draws: OfDraws, rows: Rows, **options: Any) -> float:
    return float(of_draws(rows, **options)(torch.ones_like(rows.confidence)))


def accuracy(logits: Array, labels: Array) -> float:
    """The share of rows whose largest logit is the label's; among equal largest logits the first class counts."""
    return on_all_rows(mean_of("correct"), describe_rows(logits, labels))


def nll(logits: Array, labels: Array) -> float:
    """Negative log-likelihood, the mean of -log p_y (natural logarithm); inf where a label had probability zero."""
    return on_all_rows(mean_of("nll"), describe_rows(logits, labels))


def brier(logits: Array, labels: Array) -> float:
    """The standard Brier score, the mean of sum_c (p_c - [c = y])^2: 0 at best, 2 at worst."""
    return on_all_rows(mean_of("brier"), describe_rows(logits, labels))


def brier_paper(logits: Array, labels: Array) -> float:
    """The Brier score as the paper prints it, the mean of sum_c p_c^2 - 2 p_y: `brier` minus 1, so -1 at best."""
    return brier(logits, labels) - 1
