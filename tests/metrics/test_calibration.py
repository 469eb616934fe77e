"""Calibration errors against torchmetrics, the smooth ECE's definition, simulations and cases worked by hand."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from torch import Tensor

from lates import metrics
from tests.problems import sharpened


def binary(probabilities: list[float]) -> Tensor:
    """Logits of two classes with these probabilities of class 1."""
    p = torch.tensor(probabilities, dtype=torch.float64)
    return torch.stack([1 - p, p], dim=1).log()


def binned_error(values: Tensor, hits: Tensor, bins: int, binning: str) -> float:
    """sum_b (n_b / n) |mean(hits) - mean(values)| in plain Python, bins closed on the right."""
    n, ordered = len(values), sorted(values.tolist())
    edges = [b / bins if binning == "width" else ordered[max(math.ceil(b * n / bins), 1) - 1] for b in range(1, bins)]
    sums = [0.0] * bins
    for value, hit in zip(values.tolist(), hits.tolist(), strict=True):
        sums[sum(edge < value for edge in edges)] += hit - value
    return sum(abs(s) for s in sums) / n


problems = st.tuples(st.sampled_from([0.2, 1.0, 3.0, 50.0]), st.integers(1, 80), st.integers(2, 5), st.integers(0, 10_000)).map(
    lambda arguments: sharpened(*arguments)
)


# --- binned -------------------------------------------------------------------------------------------------------


def test_ece_can_prefer_a_coin_flip_to_a_perfect_classifier() -> None:
    """The coin-flipper has ECE 0; the predictor that is always right has ECE 0.3."""
    labels = torch.tensor([0, 0, 1, 1])
    assert metrics.ece(binary([0.5, 0.5, 0.5, 0.5]), labels, bins=10) == pytest.approx(0, abs=1e-12)
    assert metrics.accuracy(binary([0.5, 0.5, 0.5, 0.5]), labels) == 0.5
    assert metrics.ece(binary([0.3, 0.3, 0.7, 0.7]), labels, bins=10) == pytest.approx(0.3, abs=1e-12)
    assert metrics.accuracy(binary([0.3, 0.3, 0.7, 0.7]), labels) == 1


def test_bins_are_closed_on_the_right() -> None:
    logits = torch.tensor([[0.0, 0.0], [0.0, -math.inf], [0.0, -800.0], [1.0, 0.0]], dtype=torch.float64)
    diagram = metrics.reliability(logits, torch.zeros(4, dtype=torch.int64), bins=4)
    assert diagram.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert diagram.counts.tolist() == [0, 1, 1, 2]
    assert diagram.confidence[1] == 0.5
    assert diagram.confidence[3] == 1
    assert math.isnan(diagram.confidence[0])
    assert math.isnan(diagram.accuracy[0])
    assert diagram.gaps[0] == 0
    assert diagram.shares.tolist() == [0, 0.25, 0.25, 0.5]
    tenths = metrics.reliability(logits, torch.zeros(4, dtype=torch.int64), bins=10)
    assert tenths.edges.tolist() == [b / 10 for b in range(11)]


@given(st.integers(0, 60), st.integers(1, 60))
def test_bands_are_wilsons_intervals(right: int, count: int) -> None:
    right = min(right, count)
    logits, labels = binary([0.9]).repeat(count, 1), torch.arange(count) < right
    low, high = metrics.reliability(logits, labels.long(), bins=2).bands
    expected = binomtest(right, count).proportion_ci(0.95, method="wilson")
    assert (float(low[1]), float(high[1])) == pytest.approx((expected.low, expected.high), abs=1e-6)
    assert math.isnan(low[0])
    assert math.isnan(high[0])


@given(problems, st.integers(1, 20), st.sampled_from(["width", "mass"]))
@settings(max_examples=60, deadline=None)
def test_binned_errors_agree_with_plain_python(problem: tuple[Tensor, Tensor], bins: int, binning: str) -> None:
    logits, labels = problem
    shifted = (logits - logits.amax(dim=1, keepdim=True)).exp()
    probabilities = shifted / shifted.sum(dim=1, keepdim=True)
    top, predicted = probabilities.max(dim=1)
    expected = binned_error(top, predicted == labels, bins, binning)
    assert metrics.ece(logits, labels, bins, binning) == pytest.approx(expected, abs=1e-12)
    assert 0 <= expected <= 1
    classes = [binned_error(p, labels == c, bins, binning) for c, p in enumerate(probabilities.T)]
    assert metrics.classwise_ece(logits, labels, bins, binning) == pytest.approx(np.mean(classes), abs=1e-12)


def test_equal_mass_bins_hold_equally_many_rows_and_never_split_a_tie() -> None:
    logits, labels = sharpened(1.0, 1003, 5)
    counts = metrics.reliability(logits, labels, bins=10, binning="mass").counts
    assert int(counts.sum()) == 1003
    assert int(counts.max() - counts.min()) <= 1
    tied = metrics.reliability(logits[:1].expand(50, -1), labels[:50], bins=10, binning="mass")
    assert sorted(tied.counts.tolist()) == [0] * 9 + [50]


@pytest.mark.parametrize("function", [metrics.ece, metrics.classwise_ece, metrics.ece_debiased, metrics.reliability])
def test_bad_bins_are_refused(function: Callable[..., object]) -> None:
    logits, labels = sharpened(1.0, 20, 3)
    with pytest.raises(ValueError, match=r'Unknown binning "widht"\. Known: width, mass'):
        function(logits, labels, binning="widht")
    with pytest.raises(ValueError, match=r"bins=100000000: expected at most 10,000"):
        function(logits, labels, bins=10**8)
    with pytest.raises(ValueError, match="bins=0: expected at least 1"):
        function(logits, labels, bins=0)


def test_debiased_error_worked_by_hand() -> None:
    """One bin, four rows of confidence 0.7, three right: (0.75 - 0.7)^2 - 0.75 * 0.25 / 3; single rows add nothing."""
    logits, labels = binary([0.7] * 4), torch.tensor([1, 1, 1, 0])
    assert metrics.ece_debiased(logits, labels, bins=1) == pytest.approx(0.05**2 - 0.0625, abs=1e-12)
    assert metrics.ece_debiased(logits[2:], labels[2:], bins=1) == pytest.approx(0.2**2 - 0.25, abs=1e-12)
    assert metrics.ece_debiased(binary([0.6, 0.7, 0.9]), torch.tensor([0, 1, 0]), bins=3) == 0


def test_debiased_error_has_mean_zero_for_calibrated_predictions() -> None:
    values = torch.tensor([metrics.ece_debiased(*sharpened(1.0, 300, 4, seed)) for seed in range(150)], dtype=torch.float64)
    assert abs(float(values.mean())) < 4 * float(values.std()) / math.sqrt(150)
    assert float(values.min()) < 0
    biased = [metrics.reliability(*sharpened(1.0, 300, 4, seed), binning="mass") for seed in range(20)]
    assert min(float((diagram.shares * diagram.gaps**2).sum()) for diagram in biased) > 1e-3


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_floor_is_the_mean_ece_of_calibrated_labels(binning: str) -> None:
    logits, _ = sharpened(1.0, 400, 5)
    generator = torch.Generator().manual_seed(1)
    labels = torch.multinomial(logits.softmax(dim=1), 200, replacement=True, generator=generator)
    measured = torch.tensor([metrics.ece(logits, column, binning=binning) for column in labels.T])
    floor = metrics.ece_floor(logits, binning=binning, draws=500)
    assert floor == pytest.approx(float(measured.mean()), abs=4 * float(measured.std()) / math.sqrt(200))
    assert floor == metrics.ece_floor(logits, binning=binning, draws=500, seed=0)
    assert floor != metrics.ece_floor(logits, binning=binning, draws=500, seed=1)


def test_floor_vanishes_for_certain_predictions_and_refuses_no_draws() -> None:
    assert metrics.ece_floor(torch.tensor([[0.0, -900.0]] * 10)) == 0
    with pytest.raises(ValueError, match="draws=0: expected at least 1"):
        metrics.ece_floor(torch.zeros(3, 2), draws=0)


# --- smooth -------------------------------------------------------------------------------------------------------


def smoothed_error(confidence: np.ndarray, correct: np.ndarray, bandwidth: float) -> float:
    """The definition, every row at every point: the integral of |(1/n) sum_i (y_i - f_i) K(t, f_i)|."""
    t = np.linspace(0, 1, 20_001)
    r = np.zeros_like(t)
    for f, y in zip(confidence, correct, strict=True):
        images = [sign * f + 2 * period for sign in (1, -1) for period in (-2, -1, 0, 1, 2)]
        kernel = sum(np.exp(-0.5 * ((t - image) / bandwidth) ** 2) for image in images)
        r += (y - f) * kernel / (len(confidence) * bandwidth * math.sqrt(2 * math.pi))
    return float(torch.trapezoid(torch.from_numpy(np.abs(r)), torch.from_numpy(t)))


@pytest.mark.parametrize(
    ("n", "sharpnesses"), [(2, [1.0]), (40, [0.3]), (150, [1.0]), (150, [4.0]), (60, [0.3, 4.0]), (80, [0.2, 3.0])]
)
def test_smooth_error_solves_its_definition(n: int, sharpnesses: list[float]) -> None:
    """Where some rows are too sure and others not enough, it is no longer the plain gap."""
    parts = [sharpened(sharpness, n, 4, seed) for seed, sharpness in enumerate(sharpnesses, start=5)]
    logits, labels = (torch.cat(of_parts) for of_parts in zip(*parts, strict=True))
    confidence, predicted = logits.softmax(dim=1).max(dim=1)
    value = metrics.ece_smooth(logits, labels)
    correct = (predicted == labels).double()
    assert smoothed_error(confidence.numpy(), correct.numpy(), value) == pytest.approx(value, abs=2e-8)
    gap = abs(float((correct - confidence).mean()))
    assert value > 1.5 * gap if len(parts) > 1 else value == pytest.approx(gap, abs=1e-8)


def test_smooth_error_handles_a_tiny_bandwidth() -> None:
    """Balanced residuals of 1e-4 close together cancel in any kernel wider than their distance."""
    p = torch.full((5000,), 0.9999, dtype=torch.float64) + 1e-6 * torch.linspace(-1, 1, 5000, dtype=torch.float64)
    labels = torch.ones(5000, dtype=torch.int64)
    labels[2500] = 0
    value = metrics.ece_smooth(torch.stack([1 - p, p], dim=1).log(), labels)
    assert value == pytest.approx(abs(float(labels.double().mean() - p.mean())), abs=2e-6)
