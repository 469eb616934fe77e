"""One pass over the logits: what each row contributes to the metrics, in float64.

With s = z - max(z) and S = sum_c exp(s_c), the softmax is p_c = exp(s_c) / S; its largest entry, the confidence, is
1 / S, and -log p_y = log S - s_y. Subtracting the maximum first makes everything here exactly invariant to a constant
added to a row's logits, as long as that addition itself did not round.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lates.checks import check_form, check_labels, check_logits, check_peaks, warn_if_probabilities
from lates.threads import borrowed, in_threads, row_shares, thread_count, unaided

CHUNK = 2**18  # float64 elements worked on at once: 2 MiB, about a core's cache
ONE_MAXIMUM = 1.99  # less than 2, lest rounding hide a tie

Array = Tensor | np.ndarray


def checked(logits: Array, labels: Array) -> tuple[Tensor, Tensor]:
    """Valid logits [n, classes] and labels [n] int64 on one device that knows float64."""
    check_logits(logits)
    return well_formed(logits, labels)


def well_formed(logits: Array, labels: Array) -> tuple[Tensor, Tensor]:
    """The same for `peaks_and_norms`, which reads all rows and checks them itself."""
    logits = well_formed_logits(logits)
    return logits, check_labels(labels, *logits.shape).to(logits.device)


def well_formed_logits(logits: Array) -> Tensor:
    logits = check_form(logits).detach()
    warn_if_probabilities(logits)
    return logits.cpu() if logits.device.type == "mps" else logits


def shifted_chunks(logits: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Rows, their max(z) and s = z - max(z) [rows, classes], chunk by chunk, in float64; each overwrites the one before."""
    n, classes = logits.shape
    step = min(max(1, CHUNK // classes), n)
    with borrowed(step * classes, torch.float64, logits.device) as buffer:
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            chunk = buffer[: (rows.stop - start) * classes].view(-1, classes).copy_(logits[rows])
            peaks = chunk.amax(dim=1)
            yield rows, peaks, chunk.sub_(peaks[:, None])


def exponential_(values: Tensor) -> Tensor:
    """exp(values), in their place, as a power of 2: torch takes half as long for it."""
    return values.mul_(1 / math.log(2)).exp2_()


def peaks_and_norms(logits: Tensor, exponential: Callable[[Tensor], Tensor] = exponential_) -> Tensor:
    """max_c z_c, S = sum_c exp(s_c) and L = (sum_c exp(s_c)^2)^(1/2) of every row: [3, n].

    Nothing else is done for every chunk: threads wait for each other at each operation, however small.
    """
    found = torch.empty(3, len(logits), dtype=torch.float64, device=logits.device)

    def fill(rows: slice) -> None:
        peaks, totals, lengths = found[:, rows]
        for part, peaks[part], shifted in shifted_chunks(logits[rows]):
            exponentials = exponential(shifted)
            torch.sum(exponentials, dim=1, out=totals[part])
            torch.linalg.vector_norm(exponentials, dim=1, out=lengths[part])

    in_threads(fill, row_shares(len(logits), thread_count(logits.numel(), logits.device)))
    check_peaks(found[0])
    return found


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
    exponentials, so it is looked up only where a tie is possible: two equal maxima make sum_c exp(2 s_c) at least 2.
    """
    logits, labels = well_formed(logits, labels)
    found = peaks_and_norms(logits)
    with unaided():
        peak, total, length = found
        own = logits.gather(1, labels[:, None]).squeeze(1).double() - peak
        brier = (length / total) ** 2 - 2 * own.exp() / total + 1
        correct = own == 0
        doubtful = torch.nonzero(correct & (length**2 > ONE_MAXIMUM)).squeeze(1)
        correct[doubtful] = logits[doubtful].argmax(dim=1) == labels[doubtful]
        return Rows(*(values.cpu() for values in (1 / total, correct.double(), total.log() - own, brier)))
