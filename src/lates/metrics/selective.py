"""Selective prediction: answer only inputs whose confidence reaches a threshold, so that errors among them stay rare.

`fit_selector` finds that threshold on labelled rows that fitted nothing, with a guarantee: with probability 1 - delta over
these rows, the error rate of new accepted inputs is at most `risk`. It is learn-then-test (Angelopoulos et al., 2021) with a
fixed sequence. Let s be the confidence and R(t) the error rate of inputs with s >= t.

1. A tenth of the rows, at random, lay out the thresholds t_1 > t_2 > … > 0: their own confidences. Their labels are not used.
2. For a fixed t, n rows of the others have s >= t, and e of them are wrong: e ~ Binomial(n, R(t)). If R(t) > risk, then
   P(Binomial(n, risk) <= e) <= delta has probability at most delta: the exact test of Clopper and Pearson (1934).
3. The thresholds are tested from high to low, each at the full delta, until one fails; the last that passed is taken. A wrong
   one is taken only if the first wrong one in the sequence passes, which has probability at most delta.

The first threshold tested is the one that should keep twice the n0 = log(delta) / log(1 - risk) rows that would have to be
right without exception; where there are too few rows for that, one halfway between n0 and all.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lates.binomial import binomial_tail
from lates.metrics.rows import Array, confidence_of, describe_rows
from lates.runtime import check_seed, check_share

LAYOUT, MOST_LAYOUT = 0.1, 200  # how many rows lay out the thresholds: this share of all, and at most this number


@dataclass(frozen=True)
class Selection:
    """What a threshold does on labelled rows: how many it accepts, and how many of those are wrong."""

    rows: int
    accepted: int
    errors: int

    @property
    def coverage(self) -> float:
        """The share of rows that are accepted."""
        return self.accepted / self.rows

    @property
    def risk(self) -> float:
        """The error rate of the accepted rows; NaN where there are none."""
        return self.errors / self.accepted if self.accepted else math.nan


@dataclass(frozen=True)
class Selector:
    """A threshold on the confidence, the largest probability, and what it promises.

    threshold   inputs of at least this confidence are accepted; inf where no threshold passed: nothing is accepted
    risk        the error rate that new accepted inputs do not exceed, …
    delta       … but for this probability, over the rows of the fit
    fitted      what it did on the rows that tested it
    """

    threshold: float
    risk: float
    delta: float
    fitted: Selection

    def accepts(self, logits: Array) -> Tensor:
        """Which rows of logits [n, classes] to answer: truth values [n], on the device of the logits."""
        return confidence_of(logits) >= self.threshold

    def measure(self, logits: Array, labels: Array) -> Selection:
        """Coverage and errors on other labelled rows."""
        rows = describe_rows(logits, labels)
        return _select(rows.confidence, rows.correct, self.threshold)


def fit_selector(
    logits: Array, labels: Array, *, risk: float | str = 0.05, delta: float | str = 0.05, seed: int = 0
) -> Selector:
    """The threshold that keeps the error rate of accepted inputs at or below `risk`, guaranteed but for probability `delta`.

    logits  [n, classes], of rows used neither to train the network nor to calibrate it
    risk    the error rate allowed among accepted inputs: 0.05 or "5%"
    delta   the probability, over the rows, of a threshold that breaks the promise
    seed    of which rows lay out the thresholds

    Assumes that rows and later inputs are exchangeable, and nothing of network, confidence or classes; under distribution shift
    there is no guarantee. At least log(delta) / log(1 - risk) rows have to be accepted for any promise: 59 for 5 % and 5 %, 299
    for a risk of 1 %.

    >>> selector = lates.selective.fit_selector(logits, labels, risk=0.05)
    >>> selector.threshold, selector.fitted.coverage
    (0.71, 0.83)
    >>> answered = selector.accepts(calibrated(images))
    """
    risk, delta = (check_share(value, name, open_ends=True) for name, value in (("risk", risk), ("delta", delta)))
    rows = describe_rows(logits, labels)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(check_seed(seed)))
    count = min(int(LAYOUT * len(rows)), MOST_LAYOUT)
    layout, tested = order[:count], order[count:]
    thresholds = [*rows.confidence[layout].sort(descending=True).values.tolist(), 0.0]
    confidence, correct = rows.confidence[tested], rows.correct[tested]
    needed = math.log(delta) / math.log1p(-risk)
    start = min(2 * needed, (needed + len(tested)) / 2)
    threshold = math.inf
    for place, lower in enumerate(thresholds, start=1):
        if len(tested) * place / len(thresholds) < start:
            continue
        selection = _select(confidence, correct, lower)
        if binomial_tail(selection.accepted - selection.errors, selection.accepted, 1 - risk) > delta:
            break
        threshold = lower
    return Selector(threshold, risk, delta, _select(confidence, correct, threshold))


def _select(confidence: Tensor, correct: Tensor, threshold: float) -> Selection:
    accepted = confidence >= threshold
    right = int(correct[accepted].sum())
    return Selection(len(confidence), int(accepted.sum()), int(accepted.sum()) - right)
