"""The report's numbers are those of the metrics."""

from typing import Any

import pytest
import torch

import lates
from lates import metrics
from lates.report import LATES, NETWORK, TEMPERATURE, Predictions, read_predictions
from lates.report.findings import Findings, measure
from lates.report.predictions import methods_of
from tests.conftest import Problem, loader_of


def test_methods_are_the_network_temperature_scaling_and_the_calibrated_model(
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


def test_each_set_is_compared_on_its_own_draws_from_the_seed(
    calibrated: lates.CalibratedModel, predictions: dict[str, Predictions]
) -> None:
    found = measure(calibrated, predictions, None, seed=7)
    for name, one in predictions.items():
        expected = metrics.compare(one.logits, one.labels, baselines=[NETWORK, TEMPERATURE], seed=7)
        assert found.sets[name] == expected
    assert list(found.test.differences[LATES]) == [NETWORK, TEMPERATURE]
    assert {member.name: member.accuracy for member in found.members} == calibrated.holdout_accuracies
    assert {member.name: member.contribution for member in found.members} == calibrated.contributions


def test_diagrams_count_wrong_answers_despite_rounding(findings: Findings) -> None:
    """49 times 1 / 49 is less than 1 in floating point."""
    logits, labels = torch.tensor([[2.0, 0.0]]).repeat(49, 1), torch.ones(49).long()
    labels[0] = 0
    assert metrics.reliability(logits, labels).errors.sum() == 48
    for method, diagram in findings.diagrams.items():
        wrong = findings.test.rows * (1 - findings.test.measured[method]["accuracy"].value)
        assert int(diagram.errors.sum()) == pytest.approx(wrong)


def test_coverage_curve_ends_at_the_error_rate_and_its_area_is_the_aurc(
    findings: Findings,
) -> None:
    for method, curve in findings.coverage.items():
        assert [coverage for coverage, _ in curve] == sorted({coverage for coverage, _ in curve})
        assert curve[-1] == pytest.approx((1.0, 1 - findings.test.measured[method]["accuracy"].value))
        area = sum(risk for _, risk in curve) / len(curve)
        assert area == pytest.approx(findings.test.measured[method]["aurc"].value, abs=0.01)


def test_classes_are_ordered_by_an_error_whose_mean_is_the_classwise_ece(
    findings: Findings, predictions: dict[str, Predictions]
) -> None:
    errors = [one.error for one in findings.classes[LATES]]
    assert errors == sorted(errors, reverse=True)
    for method, logits in predictions["clean"].logits.items():
        mean = sum(one.error for one in findings.classes[method]) / len(errors)
        assert mean == pytest.approx(metrics.classwise_ece(logits, predictions["clean"].labels), abs=1e-12)
        assert findings.points["auc"][method] == metrics.auc(logits, predictions["clean"].labels)
    assert sum(one.rows for one in findings.classes[LATES]) == findings.test.rows
    sure, top = predictions["clean"].logits[LATES].double().softmax(1).max(1)
    for one in findings.classes[LATES]:
        chosen = top == int(one.name)
        assert one.rows == int((predictions["clean"].labels == int(one.name)).sum())
        assert one.confidence == pytest.approx(float(sure[chosen].mean()))
        assert one.predicted == int(chosen.sum())
        assert one.precision == pytest.approx(float((predictions["clean"].labels[chosen] == int(one.name)).double().mean()))


def test_class_names_that_occur_twice_get_their_number(
    calibrated: lates.CalibratedModel, predictions: dict[str, Predictions]
) -> None:
    names = ["crane", "crane", *(str(c) for c in range(8))]
    found = measure(calibrated, predictions, names, seed=0)
    assert {one.name for one in found.classes[LATES]} == {"crane (0)", "crane (1)", *names[2:]}


def read_one(calibrated: lates.CalibratedModel, loader: Any, seed: int = 0) -> Predictions:
    return read_predictions(calibrated, {"test": loader}, seed=seed)["test"]


def test_predictions_leave_out_ignored_rows_and_refuse_unknown_labels(
    calibrated: lates.CalibratedModel, problem: Problem
) -> None:
    labels = problem.labels.clone()
    labels[:100] = -100
    assert read_one(calibrated, loader_of(problem.images, labels)).labels.shape == (900,)
    labels[0] = 10
    with pytest.raises(ValueError, match="10"):
        read_one(calibrated, loader_of(problem.images, labels))
    with pytest.raises(ValueError, match="A test batch has 4 labels, but the network gave 5 rows"):
        read_one(calibrated, [(problem.images[:5], problem.labels[:4])])
    with pytest.raises(ValueError, match="No row is left"):
        read_one(calibrated, [(problem.images[:5], torch.full((5,), -100))])


def test_predictions_with_dropout_are_the_mean_of_samples_from_the_seed(problem: Problem) -> None:
    sampled = lates.mc_dropout(problem.model, samples=3)
    calibrated = lates.calibrate(sampled, holdout=problem.holdout, blocks=[], progress=False)
    batches = [(problem.images, problem.labels)]
    state = calibrated.generator.get_state()
    one, other, again = (read_one(calibrated, batches, seed) for seed in (7, 8, 7))
    assert torch.equal(calibrated.generator.get_state(), state)
    assert torch.equal(one.logits[NETWORK], again.logits[NETWORK])
    assert not torch.equal(one.logits[NETWORK], other.logits[NETWORK])


def test_methods_include_lates_only_where_it_differs_from_temperature_scaling(problem: Problem) -> None:
    other_loss = lates.calibrate(problem.model, holdout=problem.holdout, blocks=[], loss="brier", progress=False)
    assert methods_of(other_loss) == (NETWORK, TEMPERATURE, LATES)
    with pytest.warns(UserWarning, match="The budget allows"):
        no_probe = lates.calibrate(
            problem.model, train=problem.train, holdout=problem.holdout, budget=0.0, views=None, progress=False
        )
    assert len(no_probe.weights) > 1
    assert methods_of(no_probe) == (NETWORK, TEMPERATURE)
