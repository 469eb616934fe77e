"""One pass over the logits: what each row contributes to the metrics, in float64.

With s = z - max(z) and S = sum_c exp(s_c), the softmax is p_c = exp(s_c) / S; its largest entry, the confidence, is
1 / S, and -log p_y = log S - s_y. Subtracting the maximum first makes everything here exactly invariant to a constant
added to a row's logits, as long as that addition itself did not round.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lates.checks import check_labels, check_logits, warn_if_probabilities
from lates.threads import borrowed, in_threads, row_shares, thread_count

CHUNK = 2**18  # float64 elements worked on at once: 2 MiB, about a core's cache

Array = Tensor | np.ndarray


def checked(logits: Array, labels: Array) -> tuple[Tensor, Tensor]:
    """Valid logits [n, classes] and labels [n] int64 on one device that knows float64."""
    logits = checked_logits(logits)
    return logits, check_labels(labels, *logits.shape).to(logits.device)


def checked_logits(logits: Array) -> Tensor:
    logits = check_logits(logits).detach()
    warn_if_probabilities(logits)
    return logits.cpu() if logits.device.type == "mps" else logits


def shifted_chunks(logits: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Chunks of rows of s = z - max(z) in float64, with the rows they came from.

    Every chunk overwrites the one before: fresh memory for each would cost as much as the exponentials.
    """
    n, classes = logits.shape
    step = min(max(1, CHUNK // classes), n)
    with borrowed(step * classes, torch.float64, logits.device) as buffer:
        for start in range(0, n, step):
            chunk = buffer.view(step, classes)[: n - start].copy_(logits[start : start + step])
            yield slice(start, start + len(chunk)), chunk.sub_(chunk.amax(dim=1, keepdim=True))


def softmax_totals(logits: Tensor) -> Tensor:
    """S of every row [n]."""
    shares = row_shares(len(logits), thread_count(logits.numel(), logits.device))

    def totals(rows: slice) -> Tensor:
        return torch.cat([shifted.exp_().sum(dim=1) for _, shifted in shifted_chunks(logits[rows])])

    return torch.cat(in_threads(totals, shares))


@dataclass(frozen=True, eq=False)
class Rows:
    """Per-row values [n], float64, on the CPU: all that the metrics without a view of single classes need."""

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

    The predicted class is the first that attains the maximum. Finding every argmax would take nearly as long as the
    exponentials, so it is looked up only where a tie is possible: two equal maxima make S at least 2.
    """
    logits, labels = checked(logits, labels)
    shares = row_shares(len(logits), thread_count(logits.numel(), logits.device))
    return Rows(*torch.cat(in_threads(lambda rows: _row_values(logits[rows], labels[rows]), shares), dim=1).cpu())


def _row_values(logits: Tensor, labels: Tensor) -> Tensor:
    """The four fields of `Rows`, [4, n]."""
    chunks = []
    for rows, shifted in shifted_chunks(logits):
        index = labels[rows, None]
        own = shifted.gather(1, index).squeeze(1)
        exponentials = shifted.exp_()
        total = exponentials.sum(dim=1)
        length = torch.linalg.vector_norm(exponentials, dim=1)
        brier = (length / total) ** 2 - 2 * own.exp() / total + 1
        correct = own == 0
        doubtful = torch.nonzero(correct & (total >= 2)).squeeze(1)
        if len(doubtful):
            correct[doubtful] = logits[rows][doubtful].argmax(dim=1) == index[doubtful, 0]
        chunks.append(torch.stack([1 / total, correct.double(), total.log() - own, brier]))
    return torch.cat(chunks, dim=1)
