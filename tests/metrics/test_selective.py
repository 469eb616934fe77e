"""Selective prediction: the threshold keeps its promise, and the binomial test is exact."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import lates
from lates import metrics, selective
from lates.binomial import binomial_tail
from tests.problems import draw_labels


def confusing(rows: int, seed: int, scale: float = 20.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of ten classes, noisy and overconfident; the more confident half is wrong in about 3 % of rows."""
    generator = torch.Generator().manual_seed(seed)
    truth = scale * torch.randn(rows, 10, generator=generator, dtype=torch.float64)
    labels = draw_labels(truth, generator)
    return truth + 5 * torch.randn(rows, 10, generator=generator, dtype=torch.float64), labels


@given(st.integers(0, 5000), st.data(), st.floats(1e-4, 0.9))
@settings(max_examples=100, deadline=None)
def test_binomial_distribution_agrees_with_scipy(trials: int, data: Any, probability: float) -> None:
    successes = data.draw(st.integers(0, trials))
    assert binomial_tail(trials - successes, trials, 1 - probability) == pytest.approx(
        float(binom.cdf(successes, trials, probability)),
        rel=1e-8,
        abs=1e-100,  # scipy loses digits far out in the tail
    )


@pytest.mark.parametrize("delta", [0.05, 0.3])
def test_selector_exceeds_its_risk_in_at_most_delta_of_runs(delta: float) -> None:
    logits, labels = confusing(50_000, seed=1)
    generator = torch.Generator().manual_seed(2)
    runs, exceeded, coverage = 150, 0, 0.0
    for run in range(runs):
        rows = torch.randint(len(labels), (1000,), generator=generator)
        selector = selective.fit_selector(logits[rows], labels[rows], risk=0.05, delta=delta, seed=run)
        found = selector.measure(logits, labels)
        exceeded += found.risk > 0.05
        coverage += found.coverage / runs
    assert exceeded <= binom.ppf(0.99, runs, delta)
    assert coverage > 0.8 * metrics.coverage_at_risk(logits, labels, risk=0.05)


def test_promise_holds_where_the_most_confident_rows_are_the_worst() -> None:
    confidence = torch.linspace(0.5, 0.999, 4000, dtype=torch.float64)
    logits = torch.stack([confidence.log(), (1 - confidence).log()], dim=1)
    wrong = (torch.rand(4000, generator=torch.Generator().manual_seed(0)) < torch.where(confidence > 0.8, 0.2, 0.0)).long()
    assert selective.fit_selector(logits, wrong, risk=0.05).threshold == math.inf


def test_selector_accepts_rows_by_their_confidence() -> None:
    logits, labels = confusing(3000, seed=3)
    selector = lates.selective.fit_selector(logits, labels, risk=0.1)
    accepted = selector.accepts(logits.numpy())
    assert torch.equal(accepted, logits.softmax(dim=1).amax(dim=1) >= selector.threshold)
    found = selector.measure(logits, labels)
    assert found.accepted == int(accepted.sum())
    assert found.errors == int((logits.argmax(1) != labels)[accepted].sum())
    assert found.coverage == pytest.approx(selector.fitted.coverage, abs=0.02)
    assert selector == lates.selective.fit_selector(logits, labels, risk=0.1)


def test_too_few_rows_promise_nothing() -> None:
    logits, labels = confusing(50, seed=4, scale=1000.0)
    selector = selective.fit_selector(logits, labels, risk=0.05)
    assert (selector.threshold, selector.fitted.accepted) == (math.inf, 0)
    assert math.isnan(selector.fitted.risk)
    assert not selector.accepts(logits).any()


def test_rows_without_an_error_are_all_accepted() -> None:
    labels = torch.arange(300) % 3
    logits = 5 * torch.nn.functional.one_hot(labels, 3).double()
    assert selective.fit_selector(logits, labels, risk=0.05).fitted == selective.Selection(270, 270, 0)


@pytest.mark.parametrize(("name", "value"), [("risk", 5), ("risk", 0), ("delta", 1.0)])
def test_selector_refuses_shares_outside_the_unit_interval(name: str, value: float) -> None:
    logits, labels = confusing(20, seed=5)
    with pytest.raises(ValueError, match=rf"{name}={value}: expected a share between 0 and 1"):
        selective.fit_selector(logits, labels, **dict[str, Any]({name: value}))


def test_coverage_at_risk_is_the_largest_share_that_keeps_to_the_risk() -> None:
    confidence = torch.tensor([0.99, 0.9, 0.9, 0.8, 0.7, 0.6], dtype=torch.float64)
    logits = torch.stack([confidence.log(), (1 - confidence).log()], dim=1)
    labels = torch.tensor([0, 1, 0, 0, 0, 1])
    assert metrics.coverage_at_risk(logits, labels, risk=0.2) == pytest.approx(5 / 6)
    assert metrics.coverage_at_risk(logits, labels, risk=0.25) == pytest.approx(5 / 6)
    assert metrics.coverage_at_risk(logits, labels, risk=0.1) == pytest.approx(1 / 6)
    assert metrics.coverage_at_risk(logits, 1 - labels, risk=0.1) == 0
