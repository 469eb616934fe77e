"""Intervals of metrics and of their differences."""

import math
from collections.abc import Callable

import pytest
import torch

from lates import metrics
from tests.all_metrics import METRICS
from tests.problems import sharpened


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


def test_intervals_contain_the_value_even_where_the_draws_lie_above_it() -> None:
    for seed in range(25):
        interval = metrics.bootstrap(metrics.ece, *sharpened(1.0, 1000, 10, seed), draws=40)
        assert interval.low < interval.value < interval.high


def test_equally_miscalibrated_methods_are_rarely_distinguished() -> None:
    distinguished = 0
    for seed in range(50):
        logits, labels = sharpened(1.3, 500, 4, seed)
        noise = torch.randn(2, *logits.shape, generator=torch.Generator().manual_seed(1000 + seed))
        interval = metrics.bootstrap(metrics.ece, logits + noise[0], labels, other=logits + noise[1], draws=80)
        distinguished += interval.excludes_zero
    assert distinguished <= 7


def test_bootstrap_refuses_bad_settings() -> None:
    logits, labels = sharpened(1.0, 20, 3)
    with pytest.raises(ValueError, match="draws came as 1"):
        metrics.bootstrap(metrics.nll, logits, labels, draws=1)
    with pytest.raises(ValueError, match="confidence came as 95"):
        metrics.bootstrap(metrics.nll, logits, labels, confidence=95)
    with pytest.raises(ValueError, match=r"other has shape \[19, 3\]; expected \[20, 3\]"):
        metrics.bootstrap(metrics.nll, logits, labels, other=logits[1:])
