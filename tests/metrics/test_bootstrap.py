"""Intervals of metrics and of their differences."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lates import metrics
from tests.all_metrics import METRICS
from tests.problems import draw_labels, sharpened


def test_interval_of_a_mean_is_the_normal_one() -> None:
    logits, labels = sharpened(1.0, 2000, 4)
    losses = -logits.log_softmax(dim=1)[torch.arange(2000), labels]
    interval = metrics.bootstrap(metrics.nll, logits, labels, draws=2000, confidence=0.9)
    error = 1.6449 * float(losses.std()) / math.sqrt(2000)
    assert interval.value == pytest.approx(float(losses.mean()), abs=1e-12)
    assert interval.low == pytest.approx(interval.value - error, abs=0.1 * error)
    assert interval.high == pytest.approx(interval.value + error, abs=0.1 * error)
    assert (interval.confidence, interval.draws) == (0.9, 2000)
    assert interval.excludes_zero


def test_differences_are_paired() -> None:
    logits, labels = sharpened(1.0, 1000, 4)
    alone = metrics.bootstrap(metrics.nll, 1.3 * logits, labels, draws=200)
    paired = metrics.bootstrap(metrics.nll, 1.3 * logits, labels, other=logits, draws=200)
    assert paired.value == pytest.approx(metrics.nll(1.3 * logits, labels) - metrics.nll(logits, labels), abs=1e-12)
    assert paired.high - paired.low < 0.5 * (alone.high - alone.low)
    nothing = metrics.bootstrap(metrics.ece, logits, labels, other=logits, draws=20)
    assert (nothing.value, nothing.low, nothing.high) == (0, 0, 0)
    assert not nothing.excludes_zero


@pytest.mark.parametrize("metric", METRICS)
def test_fast_paths_agree_with_the_metric_on_drawn_rows(metric: Callable[..., float]) -> None:
    logits, labels = sharpened(2.0, 200, 3)
    logits = logits.round()  # so that many confidences are tied
    other = (logits + torch.randn(200, 3, generator=torch.Generator().manual_seed(1))).round()
    quick = metrics.bootstrap(metric, logits, labels, other=other, draws=5, seed=3)
    plain = metrics.bootstrap(lambda z, y: metric(z, y), logits, labels, other=other, draws=5, seed=3)
    assert (quick.value, quick.low, quick.high) == pytest.approx((plain.value, plain.low, plain.high), abs=1e-12)
    assert quick == metrics.bootstrap(metric, logits, labels, other=other, draws=5, seed=3)
    assert quick.low != metrics.bootstrap(metric, logits, labels, other=other, draws=5, seed=4).low


@given(st.integers(0, 2**32), st.sampled_from(METRICS), st.booleans(), st.sampled_from([1.0, 5.0, 40.0]))
@settings(max_examples=60, deadline=None)
def test_intervals_hold_their_value_and_possible_values_alone(
    seed: int, metric: Callable[..., float], paired: bool, scale: float
) -> None:
    logits, labels = sharpened(1.0, 12, 3, seed)
    other = scale * logits.roll(1, dims=0) if paired else None
    found = metrics.bootstrap(metric, scale * logits, labels, other=other, draws=15, seed=seed)
    least, most = {"nll": (0, math.inf), "brier": (0, 2), "brier_paper": (-1, 1), "ece_debiased": (-0.25, 1)}.get(
        metric.__name__, (0, 1)
    )
    if paired:
        least, most = least - most, most - least
    if math.isfinite(found.low):  # the AUC is NaN on draws without one of the classes
        assert least <= found.low <= found.value <= found.high <= most


def test_accuracy_of_one_has_the_exact_binomial_interval() -> None:
    logits, labels = 3 * torch.eye(2).repeat(100, 1), torch.arange(2).repeat(100)
    found = metrics.bootstrap(metrics.accuracy, logits, labels, draws=20)
    assert (found.value, found.low, found.high) == (1, pytest.approx(0.025 ** (1 / 200)), 1)
    same = metrics.bootstrap(metrics.accuracy, logits, labels, other=2 * logits, draws=20)
    assert (same.low, same.high) == (0, 0)


def test_metric_of_ones_own_stays_within_the_bounds_given() -> None:
    logits, labels = sharpened(1.0, 60, 3)

    def half_or_more(z: Any, y: Any) -> float:
        return max(0.5, metrics.accuracy(z, y))

    cut = metrics.bootstrap(half_or_more, logits, labels, bounds=(0.5, 0.55), draws=50)
    free = metrics.bootstrap(half_or_more, logits, labels, draws=50)
    assert free.high > 0.55
    assert (cut.value, cut.high) == (free.value, max(0.55, free.value))


def test_intervals_cover_the_expected_value_about_as_often_as_they_say() -> None:
    """About 20 errors in 300 rows: few are the hard case. Covered is the mean over runs, since an ECE of few rows is biased."""
    found: list[metrics.Comparison] = []
    for seed in range(40):
        truth = 10 * sharpened(1.0, 300, 10, seed)[0]
        generator = torch.Generator().manual_seed(1000 + seed)
        labels, noise = draw_labels(truth, generator), torch.randn(truth.shape, generator=generator)
        logits = {"truth": truth, "noisy": truth + 5 * noise}
        quick = ("accuracy", "nll", "ece", "aurc")
        found.append(metrics.compare(logits, labels, baselines=["truth"], metrics=quick, draws=100, seed=seed))
    for metric in found[0].measured["truth"]:
        values = [run.measured["truth"][metric] for run in found]
        differences = [run.differences["noisy"]["truth"][metric] for run in found]
        for intervals in (values, differences):
            expected = sum(one.value for one in intervals) / len(intervals)
            covered = sum(one.low <= expected <= one.high for one in intervals) / len(intervals)
            assert covered >= 0.85, metric


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 1}, "draws came as 1"),
        ({"confidence": 95}, "confidence came as 95"),
        ({"other": torch.zeros(19, 3)}, r"other has shape \[19, 3\]; expected \[20, 3\]"),
    ],
)
def test_bootstrap_refuses_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.bootstrap(metrics.nll, *sharpened(1.0, 20, 3), **options)
