"""Means of a value per row: accuracy and the two proper scores."""

from lates.metrics.rows import Array, describe_rows


def accuracy(logits: Array, labels: Array) -> float:
    """The share of rows whose largest logit is the label's; among equal largest logits the first class counts."""
    return float(describe_rows(logits, labels).correct.mean())


def nll(logits: Array, labels: Array) -> float:
    """Negative log-likelihood, the mean of -log p_y (natural logarithm); inf where a label had probability zero."""
    return float(describe_rows(logits, labels).nll.mean())


def brier(logits: Array, labels: Array) -> float:
    """The standard Brier score, the mean of sum_c (p_c - [c = y])^2: 0 at best, 2 at worst."""
    return float(describe_rows(logits, labels).brier.mean())


def brier_paper(logits: Array, labels: Array) -> float:
    """The Brier score as the paper prints it, the mean of sum_c p_c^2 - 2 p_y: `brier` minus 1, so -1 at best."""
    return brier(logits, labels) - 1
