"""The report's numbers are those of the metrics, of their bootstrap and of scipy."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from torch import Tensor, nn

import lates
from lates import metrics
from lates.metrics.rows import describe_rows
from lates.report.numbers import Findings, bins_of, coverage_of, default_title, describe_subject, find, wilson
from lates.report.predictions import LATES, NETWORK, TEMPERATURE, Predictions, methods_of, read_predictions, read_sets
from lates.report.resampling import draws_for, resample
from tests.conftest import Problem, loader_of
from tests.test_model import with_weights

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
    methods = {NETWORK: logits, LATES: logits.flip(1)}
    rows = Predictions(labels, methods, {method: own.argmax(1) == labels for method, own in methods.items()})
    measured, _, members = resample(rows, seed=3)
    for metric, function in METRICS.items():
        assert measured[NETWORK][metric].value == pytest.approx(function(logits, labels), abs=1e-12)
    expected = metrics.bootstrap(metrics.aurc, logits, labels, draws=1000, seed=3)
    assert vars(measured[NETWORK]["aurc"]) == pytest.approx(vars(expected), abs=1e-9)
    assert members == {method: own["accuracy"] for method, own in measured.items()}


@pytest.mark.parametrize(("rows", "draws"), [(1, 1000), (10_000, 1000), (20_000, 500), (10**6, 200)])
def test_many_rows_are_drawn_less_often(rows: int, draws: int) -> None:
    assert draws_for(rows) == draws


def tiled(predictions: Predictions, rows: int) -> Predictions:
    """The first rows, again and again, until there are so many."""
    places = torch.arange(rows) % predictions.rows
    logits = {method: own[places] for method, own in predictions.logits.items()}
    return Predictions(
        predictions.labels[places], logits, {name: own[places] for name, own in predictions.right.items()}
    )


def test_each_set_has_its_own_draws_and_all_come_from_the_seed(
    calibrated: lates.CalibratedModel, predictions: dict[str, Predictions]
) -> None:
    sets = {"few": tiled(predictions["clean"], 40), "many": tiled(predictions["noise"], 12_500)}
    few, many = find(calibrated, sets, None, seed=7).sets
    assert (few.draws, many.draws) == (1000, 800)
    assert many.measured[LATES]["nll"].draws == 800
    logits, labels = sets["few"].logits, sets["few"].labels
    expected = metrics.bootstrap(metrics.nll, logits[LATES], labels, seed=7)
    assert vars(few.measured[LATES]["nll"]) == pytest.approx(vars(expected), abs=1e-9)
    assert few.ece_floor == {method: metrics.ece_floor(own, seed=7) for method, own in logits.items()}


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


def test_a_bin_counts_its_right_answers_whole() -> None:
    """49 times 1 / 49 is less than 1 in floating point."""
    logits, labels = torch.tensor([[2.0, 0.0]]).repeat(49, 1), torch.ones(49).long()
    labels[0] = 0
    (full,) = [one for one in bins_of(describe_rows(logits, labels)) if one.count]
    assert (full.right, full.count) == (1, 49)


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
    rows = describe_rows(predictions["clean"].logits[LATES][:150], predictions["clean"].labels[:150])
    assert [round(150 * coverage) for coverage, _ in coverage_of(rows)][:4] == [2, 3, 5, 6], (
        "at least so many hundredths"
    )


def test_rows_as_sure_as_each_other_share_their_risk() -> None:
    logits, labels = torch.tensor([[2.0, 0.0]]).repeat(4, 1), torch.tensor([1, 0, 0, 0])
    assert coverage_of(describe_rows(logits, labels)) == tuple((k / 4, 0.25) for k in range(1, 5))


def test_the_subject_is_what_was_calibrated(
    problem: Problem,
    calibrated: lates.CalibratedModel,
    features: tuple[lates.Features, lates.Features],
    ensemble: list[nn.Module],
) -> None:
    subject, fit = describe_subject(calibrated), calibrated.fit
    found = (subject.nll_network, subject.nll_temperature, subject.nll)
    assert found == (fit.nll_network, fit.nll_temperature, fit.nll)
    assert (subject.holdout_rows, subject.classes, subject.members, subject.certified) == (1000, 10, 4, True)
    assert subject.temperatures == (1 / fit.temperature_weights[0],)
    assert default_title(replace(subject, classes=21_841)) == "ResidualNetwork, 21,841 classes"
    weights = {"stages.0": 0.5, "stages.1": 0.0, "stages.2": 0.2, "head": 0.8}
    assert describe_subject(with_weights(problem.model, features, weights)).voting == 3
    both = describe_subject(lates.calibrate(ensemble, holdout=problem.holdout, blocks=[], progress=False))
    assert (both.networks, both.certified) == (2, False)
    assert both.parameters == 2 * sum(own.numel() for own in problem.model.parameters())


def test_a_head_that_is_best_ignored_has_an_infinite_temperature() -> None:
    rows, labels = 3 * torch.eye(4).repeat(20, 1), (torch.arange(80) + 1) % 4
    model = nn.Linear(4, 4, bias=False)
    nn.init.eye_(model.weight)
    ignored = lates.calibrate(model, holdout=[(rows, labels)], blocks=[], progress=False)
    assert describe_subject(ignored).temperatures == (math.inf,)


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
    sure, top = predictions["clean"].logits[LATES].double().softmax(1).max(1)
    for one in findings.classes:
        chosen = top == int(one.name)
        assert one.rows == int((predictions["clean"].labels == int(one.name)).sum())
        assert one.confidence[LATES] == pytest.approx(float(sure[chosen].mean()))
        assert one.predicted[LATES] == int(chosen.sum())
        assert one.precision[LATES] == pytest.approx(
            float((predictions["clean"].labels[chosen] == int(one.name)).double().mean())
        )


def test_members_carry_the_model_s_contributions_and_none_that_it_did_not_keep(
    calibrated: lates.CalibratedModel, findings: Findings, predictions: dict[str, Predictions]
) -> None:
    assert {member.name: member.contribution for member in findings.members} == calibrated.contributions
    accuracies = {member.name: member.accuracy.value for member in findings.members if member.accuracy}
    right = predictions["clean"].right
    assert accuracies == pytest.approx({name: float(own.double().mean()) for name, own in right.items()})
    assert list(accuracies) == calibrated.member_names


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


def test_dropout_s_samples_come_from_the_seed_and_members_are_their_mean(problem: Problem) -> None:
    sampled = lates.mc_dropout(problem.model, samples=3)
    calibrated = lates.calibrate(sampled, holdout=problem.holdout, blocks=[], progress=False)
    batches = [(problem.images, problem.labels)]
    state = calibrated.generator.get_state()
    one, other, again = (read_predictions(calibrated, batches, "test", seed=seed) for seed in (7, 8, 7))
    assert torch.equal(calibrated.generator.get_state(), state)
    assert torch.equal(one.logits[NETWORK], again.logits[NETWORK])
    assert not torch.equal(one.logits[NETWORK], other.logits[NETWORK])
    assert torch.equal(one.right["head"], one.logits[NETWORK].argmax(1) == problem.labels)


def test_a_batch_of_fewer_labels_than_rows_is_refused(calibrated: lates.CalibratedModel, problem: Problem) -> None:
    with pytest.raises(ValueError, match="A test batch has 4 labels, but the network gave 5 rows"):
        read_predictions(calibrated, [(problem.images[:5], problem.labels[:4])], "test", seed=0)


def test_a_head_fitted_to_another_loss_stands_beside_temperature_scaling(problem: Problem) -> None:
    scaled = lates.calibrate(problem.model, holdout=problem.holdout, blocks=[], loss="brier", progress=False)
    assert methods_of(scaled) == (NETWORK, TEMPERATURE, LATES)


def test_sets_are_called_by_their_names_as_text() -> None:
    assert read_sets({3: [], "fog": []}) == {"3": [], "fog": []}  # pyright: ignore[reportArgumentType]


@pytest.mark.filterwarnings("ignore:The budget allows")
def test_where_no_block_got_a_probe_there_is_nothing_beside_temperature(problem: Problem) -> None:
    calibrated = lates.calibrate(
        problem.model, train=problem.train, holdout=problem.holdout, budget=0.0, views=None, progress=False
    )
    assert len(calibrated.weights) > 1
    assert methods_of(calibrated) == (NETWORK, TEMPERATURE)
