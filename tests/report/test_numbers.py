"""The report's numbers are those of the metrics, of their bootstrap and of scipy."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from torch import Tensor

import lates
from lates import metrics
from lates.metrics.rows import describe_rows
from lates.report.numbers import Findings, coverage_of, find, wilson
from lates.report.predictions import LATES, NETWORK, TEMPERATURE, Predictions, methods_of, read_predictions
from lates.report.resampling import resample
from tests.conftest import Problem, loader_of

METRICS: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": metrics.accuracy,
    "nll": metrics.nll,
    "brier": metrics.brier,
    "ece": metrics.ece,
    "aurc": metrics.aurc,
}


def test_the_methods_are_the_network_its_rival_and_the_calibrated_model(
    problem: Problem, calibrated: lates.CalibratedModel, predictions: dict[str, Predictions]
) -> None:
    clean = predictions["clean"]
    scaled = lates.calibrate(problem.model, holdout=problem.holdout, blocks=[], progress=False)
    with torch.no_grad():
        expected = {
            NETWORK: problem.model(problem.images),
            TEMPERATURE: scaled(problem.images),
            LATES: calibrated(problem.images),
        }
    assert list(clean.logits) == list(expected)
    for method, logits in expected.items():
        torch.testing.assert_close(clean.logits[method], logits, atol=1e-4, rtol=1e-4)
    assert torch.equal(clean.labels, problem.labels)


def test_members_are_right_where_their_own_logits_say_so(
    problem: Problem, calibrated: lates.CalibratedModel, predictions: dict[str, Predictions]
) -> None:
    members = calibrated.members(problem.images)
    assert isinstance(members, Tensor)
    right = predictions["clean"].right
    assert list(right) == calibrated.member_names
    for place, name in enumerate(calibrated.member_names):
        assert torch.equal(right[name], members[..., place].argmax(1) == problem.labels)


@pytest.mark.parametrize("metric", METRICS)
def test_resampling_all_at_once_gives_the_bootstrap_s_intervals(
    findings: Findings, predictions: dict[str, Predictions], metric: str
) -> None:
    for one in findings.sets:
        logits, labels = predictions[one.name].logits, predictions[one.name].labels
        for method in findings.methods:
            expected = metrics.bootstrap(METRICS[metric], logits[method], labels, draws=one.draws)
            assert vars(one.measured[method][metric]) == pytest.approx(vars(expected), abs=1e-9)
        rival = metrics.bootstrap(METRICS[metric], logits[LATES], labels, other=logits[TEMPERATURE], draws=one.draws)
        assert vars(one.differences[TEMPERATURE][metric]) == pytest.approx(vars(rival), abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(2, 4), st.integers(0, 10**6))
def test_resampling_agrees_where_rows_are_few_and_tied(n: int, classes: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(-4, 0, (n, classes), generator=generator).double()
    labels = torch.randint(classes, (n,), generator=generator)
    rows = Predictions(labels, {NETWORK: logits, LATES: logits.flip(1)}, {"head": logits.argmax(1) == labels})
    measured, _, members = resample(rows, seed=3)
    for metric, function in METRICS.items():
        assert measured[NETWORK][metric].value == pytest.approx(function(logits, labels), abs=1e-12)
    expected = metrics.bootstrap(metrics.aurc, logits, labels, draws=1000, seed=3)
    assert vars(measured[NETWORK]["aurc"]) == pytest.approx(vars(expected), abs=1e-9)
    assert members["head"] == measured[NETWORK]["accuracy"]


@given(st.integers(0, 60), st.integers(1, 60))
def test_wilson_s_interval_is_scipy_s(right: int, count: int) -> None:
    right = min(right, count)
    expected = binomtest(right, count).proportion_ci(0.95, method="wilson")
    assert wilson(right, count) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_bins_sum_up_to_the_ece_and_to_all_rows(findings: Findings) -> None:
    for method, bins in findings.bins.items():
        assert sum(one.count for one in bins) == findings.test.rows
        assert all(one.low <= one.confidence <= one.high for one in bins if one.count)
        gap = sum(abs(one.right - one.count * one.confidence) for one in bins if one.count) / findings.test.rows
        assert gap == pytest.approx(findings.test.measured[method]["ece"].value, abs=1e-9)


def test_the_coverage_curve_ends_at_the_error_rate_and_its_area_is_the_aurc(
    findings: Findings, predictions: dict[str, Predictions]
) -> None:
    for method, curve in findings.coverage.items():
        assert [coverage for coverage, _ in curve] == sorted({coverage for coverage, _ in curve})
        assert curve[-1] == pytest.approx((1.0, 1 - findings.test.measured[method]["accuracy"].value))
        area = sum(risk for _, risk in curve) / len(curve)
        assert area == pytest.approx(findings.test.measured[method]["aurc"].value, abs=0.01)
    rows = describe_rows(predictions["clean"].logits[LATES][:3], predictions["clean"].labels[:3])
    assert len(coverage_of(rows)) == 3


def test_classes_are_ordered_by_an_error_whose_mean_is_the_classwise_ece(
    findings: Findings, predictions: dict[str, Predictions]
) -> None:
    errors = [one.error[LATES] for one in findings.classes]
    assert errors == sorted(errors, reverse=True)
    for method, logits in predictions["clean"].logits.items():
        mean = sum(one.error[method] for one in findings.classes) / len(findings.classes)
        assert mean == pytest.approx(metrics.classwise_ece(logits, predictions["clean"].labels), abs=1e-12)
        assert findings.points["auc"][method] == metrics.auc(logits, predictions["clean"].labels)
    assert sum(one.rows for one in findings.classes) == findings.test.rows
    top = predictions["clean"].logits[LATES].argmax(1)
    for one in findings.classes:
        chosen = top == int(one.name)
        assert one.predicted[LATES] == int(chosen.sum())
        assert one.precision[LATES] == pytest.approx(
            float((predictions["clean"].labels[chosen] == int(one.name)).double().mean())
        )


def test_members_carry_the_model_s_contributions_and_none_that_it_did_not_keep(
    calibrated: lates.CalibratedModel, findings: Findings
) -> None:
    assert {member.name: member.contribution for member in findings.members} == calibrated.contributions
    assert {member.name for member in findings.members if member.accuracy} == set(calibrated.member_names)


def test_names_that_occur_twice_are_told_apart(
    calibrated: lates.CalibratedModel, predictions: dict[str, Predictions]
) -> None:
    names = ["crane", "crane", *(str(c) for c in range(8))]
    found = find(calibrated, predictions, names, seed=0)
    assert {one.name for one in found.classes} == {"crane (0)", "crane (1)", *names[2:]}


def test_labels_outside_the_classes_are_refused_and_ignored_rows_left_out(
    calibrated: lates.CalibratedModel, problem: Problem
) -> None:
    labels = problem.labels.clone()
    labels[:100] = -100
    assert read_predictions(calibrated, loader_of(problem.images, labels), "test", seed=0).rows == 900
    labels[0] = 10
    with pytest.raises(ValueError, match="10"):
        read_predictions(calibrated, loader_of(problem.images, labels), "test", seed=0)
    with pytest.raises(ValueError, match="No row is left"):
        read_predictions(calibrated, [(problem.images[:5], torch.full((5,), -100))], "test", seed=0)


@pytest.mark.filterwarnings("ignore:The budget allows")
def test_where_no_block_got_a_probe_there_is_nothing_beside_temperature(problem: Problem) -> None:
    calibrated = lates.calibrate(
        problem.model, train=problem.train, holdout=problem.holdout, budget=0.0, views=None, progress=False
    )
    assert len(calibrated.weights) > 1
    assert methods_of(calibrated) == (NETWORK, TEMPERATURE)
