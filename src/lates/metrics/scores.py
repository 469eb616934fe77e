"""Means of a value per row: accuracy and the two proper scores."""

from lates.metrics.rows import Array, Rows, describe_rows
from lates.threads import unaided


@unaided()
def mean_correct(rows: Rows) -> float:
    return float(rows.correct.mean())


@unaided()
def mean_nll(rows: Rows) -> float:
    return float(rows.nll.mean())


@unaided()
def mean_brier(rows: Rows) -> float:
    return float(rows.brier.mean())


def mean_brier_paper(rows: Rows) -> float:
    return mean_brier(rows) - 1


def accuracy(logits: Array, labels: Array) -> float:
    """The share of rows whose largest logit is the label's; among equal largest logits the first class counts."""
    return mean_correct(describe_rows(logits, labels))


def nll(logits: Array, labels: Array) -> float:
    """Negative log-likelihood, the mean of -log p_y (natural logarithm); inf where a label had probability zero."""
    return mean_nll(describe_rows(logits, labels))


def brier(logits: Array, labels: Array) -> float:
    """The standard Brier score, the mean of sum_c (p_c - [c = y])^2: 0 at best, 2 at worst."""
    return mean_brier(describe_rows(logits, labels))


def brier_paper(logits: Array, labels: Array) -> float:
    """The Brier score as the paper prints it, the mean of sum_c p_c^2 - 2 p_y: `brier` minus 1, so -1 at best."""
    return mean_brier_paper(describe_rows(logits, labels))
