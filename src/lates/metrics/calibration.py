"""Does confidence match accuracy? Binned calibration errors, all from one binning.

Bins are closed on the right, ]edge_b, edge_b+1], and the lowest also holds 0. `binning="width"` cuts [0, 1] into equal
widths. `binning="mass"` puts the edges at the order statistics of rank ceil(b n / bins): distinct values give bins
whose counts differ by at most one, and equal values always share a bin, so that no result depends on the order of rows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lates.metrics.rows import Array, Rows, Statistic, checked, confidence_of, describe_rows, map_classes, on_all_rows
from lates.runtime import check_integer, check_seed

BINS = 15
MOST_BINS = 10_000
BINNINGS = ("width", "mass")
NORMAL_QUANTILE = 1.959964  # at 97.5 %


def bin_edges(values: Tensor, bins: int, binning: str) -> Tensor:
    """Edges [bins + 1] for values [n] in [0, 1]."""
    if check_integer(bins, "bins", least=1) > MOST_BINS:
        raise ValueError(f"bins={bins}: expected at most {MOST_BINS:,}. Bins of a row or two measure chance alone.")
    if binning not in BINNINGS:
        raise ValueError(f'Unknown binning "{binning}". Known: {", ".join(BINNINGS)}.')
    edges = torch.arange(bins + 1, device=values.device)
    if binning == "width":
        return edges.double() / bins
    ranks = (edges[1:-1] * len(values) + bins - 1) // bins
    return torch.cat([values.new_zeros(1), values.sort().values[ranks - 1], values.new_ones(1)])


def assign_bins(values: Tensor, bins: int, binning: str) -> Tensor:
    """The bin [n] of each value: how many inner edges lie strictly below it."""
    return torch.searchsorted(bin_edges(values, bins, binning)[1:-1], values)


def binned_error(index: Tensor, residuals: Tensor, bins: int) -> Tensor:
    """sum_b (n_b / n) |mean residual of bin b|, from each row's bin [n] and residual [n], right or wrong minus probability."""
    return torch.bincount(index, weights=residuals, minlength=bins).abs().sum() / len(index)


@dataclass(frozen=True, eq=False)
class Reliability:
    """A reliability diagram in numbers: per bin its edges, rows, mean confidence and accuracy (NaN where empty)."""

    edges: Tensor
    counts: Tensor
    confidence: Tensor
    accuracy: Tensor

    @property
    def shares(self) -> Tensor:
        """The share of rows in each bin [bins]."""
        return self.counts.double() / self.counts.sum()

    @property
    def errors(self) -> Tensor:
        """How many rows of each bin [bins] are wrong."""
        return (self.counts * (1 - self.accuracy)).nan_to_num(0.0).round().long()

    @property
    def gaps(self) -> Tensor:
        """Accuracy minus confidence [bins]: negative where overconfident, 0 where empty."""
        return (self.accuracy - self.confidence).nan_to_num(0.0)

    @property
    def bands(self) -> Tensor:
        """Wilson's 95 % interval of each bin's accuracy a: low and high [2, bins], NaN where empty.

        All p with |a - p| <= z sqrt(p (1 - p) / n), that is (a + z²/2n ∓ z sqrt(a (1 - a) / n + z²/4n²)) / (1 + z²/n).
        """
        z2 = NORMAL_QUANTILE**2 / self.counts
        centre = (self.accuracy + z2 / 2) / (1 + z2)
        reach = (z2 * self.accuracy * (1 - self.accuracy) + z2**2 / 4).sqrt() / (1 + z2)
        return torch.stack([centre - reach, centre + reach]).clamp(0, 1)


def reliability_of_rows(rows: Rows, bins: int = BINS, binning: str = "width") -> Reliability:
    index = assign_bins(rows.confidence, bins, binning)
    counts = torch.bincount(index, minlength=bins)
    confidence = torch.bincount(index, weights=rows.confidence, minlength=bins) / counts
    accuracy = torch.bincount(index, weights=rows.correct, minlength=bins) / counts
    return Reliability(bin_edges(rows.confidence, bins, binning), counts, confidence, accuracy)


def ece_of_draws(rows: Rows, bins: int = BINS, binning: str = "width") -> Statistic:
    """The bins stay."""
    index, residuals = assign_bins(rows.confidence, bins, binning), rows.correct - rows.confidence
    return lambda counts: binned_error(index, counts * residuals, bins)


def ece_debiased_of_rows(rows: Rows, bins: int = BINS, binning: str = "mass") -> float:
    diagram = reliability_of_rows(rows, bins, binning)
    variance = diagram.accuracy * (1 - diagram.accuracy) / (diagram.counts - 1)
    errors = torch.where(diagram.counts >= 2, diagram.gaps**2 - variance, 0.0)
    return float((diagram.shares * errors).sum())


def reliability(logits: Array, labels: Array, bins: int = BINS, binning: str = "width") -> Reliability:
    """The confidences (largest probabilities) binned, with each bin's accuracy: what `ece` sums up."""
    return reliability_of_rows(describe_rows(logits, labels), bins, binning)


def ece(logits: Array, labels: Array, bins: int = BINS, binning: str = "width") -> float:
    """Expected calibration error of the confidence: sum_b (n_b / n) |accuracy_b - confidence_b|.

    Biased upwards: a perfectly calibrated predictor does not measure 0 but about `ece_floor`.
    """
    return on_all_rows(ece_of_draws, describe_rows(logits, labels), bins=bins, binning=binning)


def ece_debiased(logits: Array, labels: Array, bins: int = BINS, binning: str = "mass") -> float:
    """The squared calibration error with its sampling variance taken off (Kumar, Liang & Ma, 2019).

    sum_b (n_b / n) [(accuracy_b - confidence_b)^2 - accuracy_b (1 - accuracy_b) / (n_b - 1)], over bins of at least
    two rows: a single row says nothing about its variance and counts 0. It is squared, hence not on the scale of
    `ece`, and has mean about 0 for a calibrated predictor, so it may be negative; no root is taken for that reason.
    """
    return ece_debiased_of_rows(describe_rows(logits, labels), bins, binning)


def classwise_ece(logits: Array, labels: Array, bins: int = BINS, binning: str = "width") -> float:
    """The calibration error of every class's probability, averaged over classes (Kull et al., 2019).

    (1 / classes) sum_c sum_b (n_cb / n) |frequency_cb - probability_cb|, where p_c is binned for all rows and
    frequency_cb is the share of label c in the bin. Classes that no row is labelled with count like any other.
    """
    return float(class_errors(logits, labels, bins, binning).mean())


def class_errors(logits: Array, labels: Array, bins: int = BINS, binning: str = "width") -> Tensor:
    """The calibration error of each class's probability [classes], of which `classwise_ece` is the mean."""
    logits, labels = checked(logits, labels)

    def error_of_class(c: int, p: Tensor) -> Tensor:
        return binned_error(assign_bins(p, bins, binning), (labels == c).double() - p, bins)

    return torch.stack(map_classes(error_of_class, logits)).cpu()


def ece_floor(logits: Array, bins: int = BINS, binning: str = "width", draws: int = 100, seed: int = 0) -> float:
    """The ECE that a perfectly calibrated predictor with these confidences would measure on average.

    Each draw makes row i correct with probability equal to its confidence and measures `ece`; the bins depend on the
    confidences alone. An ECE near this value shows no miscalibration. Print it beside every ECE.
    """
    check_integer(draws, "draws", least=1)
    confidence = confidence_of(logits).cpu()
    index = assign_bins(confidence, bins, binning)
    generator = torch.Generator().manual_seed(check_seed(seed))
    total = 0.0
    for _ in range(draws):
        correct = torch.rand(len(confidence), generator=generator, dtype=torch.float64) < confidence
        total += float(binned_error(index, correct.double() - confidence, bins))
    return total / draws
