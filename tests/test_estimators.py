import pickle
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

import lates
from tests.problems import noisy_views, sharpened

ESTIMATORS = [lates.TemperatureScaling, lates.LogitStack]


def arrays(n: int = 400, classes: int = 4, members: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Members [n, classes, members] and labels."""
    logits, labels = noisy_views(n, classes, members)
    return torch.stack(logits, dim=2).numpy(), labels.numpy()


def test_what_is_learned_is_what_fit_stack_finds() -> None:
    members, labels = arrays()
    cases: list[tuple[str, float, Literal["exact", "sgd"]]]
    cases = [("nll", 0.0, "exact"), ("brier", 1.0, "exact"), ("nll", 0.5, "sgd")]
    for loss, regularise, solver in cases:
        expected = lates.fit_stack(members, labels, loss=loss, regularise=regularise, solver=solver)
        listed = lates.LogitStack(loss, regularise, solver).fit([*members.transpose(2, 0, 1)], labels)
        assert listed.weights_.tolist() == expected.weights.tolist()
        stack = lates.LogitStack(loss, regularise, solver).fit(members, labels)
        assert stack.weights_.tolist() == expected.weights.tolist()
        head = lates.fit_stack(members[:, :, -1:], labels, loss=loss, regularise=regularise)
        scaling = lates.TemperatureScaling(regularise, loss).fit(members[:, :, -1], labels)
        assert scaling.temperature_ == head.temperature


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_predictions_are_of_the_kind_that_was_given(kind: str, dtype: type) -> None:
    members, labels = arrays()
    members = members.astype(dtype)
    X = torch.from_numpy(members) if kind == "torch" else members
    y = torch.from_numpy(labels) if kind == "torch" else labels
    for estimator, given in ((lates.TemperatureScaling(), X[:, :, -1]), (lates.LogitStack(), X)):
        estimator.fit(given, y)
        logits = estimator.decision_function(given)
        probabilities, predicted = estimator.predict_proba(given), estimator.predict(given)
        for result in (logits, probabilities, predicted, estimator.weights_):
            assert isinstance(result, Tensor if kind == "torch" else np.ndarray)
        expected = members.astype(np.float64) @ np.asarray(estimator.weights_) if given.ndim == 3 else None
        if expected is not None:
            np.testing.assert_allclose(np.asarray(logits), expected, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(np.asarray(probabilities).sum(axis=1), 1, atol=1e-5)
        np.testing.assert_array_equal(np.asarray(predicted), np.asarray(logits).argmax(axis=1))
        assert np.asarray(probabilities).dtype == (np.float64 if dtype is np.float64 else np.float32)
        assert estimator.score(given, y) == pytest.approx(float((np.asarray(predicted) == labels).mean()))


def test_members_by_name_are_found_whatever_their_order() -> None:
    members, labels = arrays()
    named = {"early": members[:, :, 0], "late": members[:, :, 1], "head": members[:, :, 2]}
    stack = lates.LogitStack().fit(named, labels)
    assert list(stack.contributions_) == ["early", "late", "head"]
    shuffled = {name: named[name] for name in ("head", "early", "late")}
    np.testing.assert_array_equal(stack.predict_proba(shuffled), stack.predict_proba(named))
    assert isinstance(stack.predict_proba({**named, "head": torch.from_numpy(named["head"])}), Tensor)
    with pytest.raises(ValueError, match="The members are early, head; this stack was fitted to early, late, head"):
        stack.predict({"early": members[:, :, 0], "head": members[:, :, 2]})
    with pytest.raises(ValueError, match="The members are 0, 1, head; this stack was fitted to early, late, head"):
        stack.predict(members)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_parameters_are_read_set_cloned_and_shown(kind: type[lates.TemperatureScaling | lates.LogitStack]) -> None:
    estimator = kind(loss="brier", regularise=2.0)
    twin: Any = clone(estimator)
    assert twin is not estimator
    assert twin.get_params() == estimator.get_params()
    assert {**estimator.get_params(), "solver": 0} == {"loss": "brier", "prior": 2.0, "regularise": 2.0, "solver": 0}
    assert estimator.set_params(loss="nll") is estimator
    assert estimator.loss == "nll"
    assert twin.loss == "brier"
    assert eval(repr(twin), dict(vars(lates))).get_params() == twin.get_params()
    with pytest.raises(ValueError, match=rf'{kind.__name__} has no parameter "los". Parameters: '):
        estimator.set_params(los="nll")
    assert is_classifier(estimator)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_before_fit_there_is_nothing_to_predict(kind: type[lates.TemperatureScaling | lates.LogitStack]) -> None:
    estimator = kind()
    with pytest.raises(NotFittedError, match=rf"This {kind.__name__} is not fitted yet: call fit\(X, y\) first"):
        estimator.predict_proba(np.zeros((2, 3)))
    with pytest.raises(NotFittedError):
        check_is_fitted(estimator)
    assert not hasattr(estimator, "temperature_")
    X = arrays()[0] if kind is lates.LogitStack else arrays()[0][:, :, -1]
    check_is_fitted(estimator.fit(X, arrays()[1]))
    with pytest.raises(NotFittedError):
        check_is_fitted(clone(estimator))


@pytest.mark.parametrize(("loss", "close"), [("nll", 1e-5), ("brier", 1e-5), ("soft_ece", 5e-2)])  # that one jumps
def test_sample_weights_count_as_rows_that_occur_several_times(loss: str, close: float) -> None:
    members, labels = arrays(300)
    times = np.random.default_rng(0).integers(0, 4, 300)
    weighted = lates.LogitStack(loss, prior=0).fit(members, labels, sample_weight=0.1 * times)
    repeated = lates.LogitStack(loss, prior=0).fit(members.repeat(times, axis=0), labels.repeat(times))
    np.testing.assert_allclose(weighted.weights_, repeated.weights_, rtol=close)
    assert weighted.stack_.objective == pytest.approx(repeated.stack_.objective, rel=close)
    np.testing.assert_allclose(weighted.stack_.deviations, repeated.stack_.deviations)
    scored = weighted.score(members, labels, sample_weight=times)
    assert scored == pytest.approx(weighted.score(members.repeat(times, axis=0), labels.repeat(times)))
    head = members[:, :, -1]
    scaling = lates.TemperatureScaling(loss=loss).fit(head, labels, sample_weight=(times > 0).tolist())
    some = lates.TemperatureScaling(loss=loss).fit(head[times > 0], labels[times > 0])
    assert scaling.temperature_ == pytest.approx(some.temperature_, rel=1e-12)


def test_sample_weights_of_outliers_that_are_left_out_do_not_count() -> None:
    members, labels = arrays(200)
    head = members[:, :, -1]
    longer = np.append(head, 1000 * head[:1], axis=0), np.append(labels, labels[0])
    with pytest.warns(UserWarning, match="1 of 201 hold-out rows"):
        heavy = lates.TemperatureScaling().fit(*longer, sample_weight=[1.0] * 200 + [50.0])
    alone = lates.TemperatureScaling().fit(head, labels)
    assert heavy.temperature_ == pytest.approx(alone.temperature_, rel=1e-12)
    assert heavy.stack_.nll == pytest.approx(alone.stack_.nll, rel=1e-12)


def test_sample_weights_that_cannot_be_are_refused() -> None:
    members, labels = arrays(20)
    for weights, message in {
        (1.0,) * 19: r"row weights have shape \[19\]; expected \[20\]",
        (-1.0,) * 20: "must be finite and at least 0",
        (0.0,) * 20: "some above 0",
    }.items():
        with pytest.raises(ValueError, match=message):
            lates.LogitStack().fit(members, labels, sample_weight=weights)
    with pytest.raises(ValueError, match='row_weights are for solver="exact"'):
        lates.LogitStack(solver="sgd").fit(members, labels, sample_weight=np.ones(20))


def test_labels_may_be_names_in_the_order_of_the_columns() -> None:
    members, labels = arrays()
    head, names = members[:, :, -1], np.array(["ape", "bee", "cat", "dog"])
    scaling = lates.TemperatureScaling().fit(head, names[labels])
    assert scaling.classes_.tolist() == names.tolist()
    assert scaling.temperature_ == lates.TemperatureScaling().fit(head, labels).temperature_
    np.testing.assert_array_equal(scaling.predict(head), names[head.argmax(1)])
    assert scaling.score(head, list(names[labels])) == float((head.argmax(1) == labels).mean())
    scores = cross_val_score(lates.TemperatureScaling(), head, names[labels], cv=3, scoring="neg_log_loss")
    assert not np.isnan(scores).any()
    with pytest.raises(ValueError, match=r"name 3 classes \(ape, bee, cat, …\), but the logits have 4 columns"):
        lates.TemperatureScaling().fit(head[labels < 3], names[labels[labels < 3]])


def test_lists_and_whole_numbers_are_logits() -> None:
    members, labels = arrays()
    whole = members.round().astype(int)
    expected = lates.TemperatureScaling().fit(whole[:, :, -1].astype(float), labels)
    listed = lates.TemperatureScaling().fit(whole[:, :, -1].tolist(), labels.tolist())
    assert listed.temperature_ == expected.temperature_
    assert isinstance(listed.predict_proba(whole[:2, :, -1].tolist()), np.ndarray)
    tensors = lates.TemperatureScaling().fit(torch.from_numpy(whole[:, :, -1]), torch.from_numpy(labels))
    assert tensors.temperature_ == expected.temperature_
    stack = lates.LogitStack().fit({"early": whole[:, :, 0].tolist(), "head": whole[:, :, -1]}, labels)
    assert list(stack.contributions_) == ["early", "head"]


def test_searches_and_cross_validation_agree() -> None:
    members, labels = arrays(300)
    grid = GridSearchCV(lates.LogitStack(), {"regularise": [0.0, 1.0, 1000.0]}, scoring="neg_log_loss", cv=3)
    grid.fit(members, labels)
    assert grid.best_params_["regularise"] < 1000
    losses = cross_val_score(make_pipeline(lates.LogitStack()), members, labels, cv=3, scoring="neg_log_loss")
    assert losses.mean() == pytest.approx(grid.cv_results_["mean_test_score"][0], abs=1e-6)
    predicted: Any = cross_val_predict(lates.LogitStack(), members, labels, cv=3, method="predict_proba")
    assert lates.metrics.nll(np.log(predicted), labels) == pytest.approx(-losses.mean(), abs=0.02)


def test_logs_of_probabilities_are_logits_zeros_included_once_fitted() -> None:
    logits, labels = sharpened(2.0, n=500, classes=3)
    probabilities = logits.softmax(1)
    by_logits = lates.TemperatureScaling().fit(logits, labels)
    by_logs = lates.TemperatureScaling().fit(probabilities.log(), labels)
    assert by_logs.temperature_ == pytest.approx(by_logits.temperature_, rel=1e-8)
    certain = torch.tensor([[1.0, 0.0, 0.0]]).double()
    torch.testing.assert_close(by_logs.predict_proba(certain.log()), certain, atol=0, rtol=0)
    with pytest.warns(UserWarning, match="look like probabilities"):
        lates.TemperatureScaling().fit(probabilities, labels)


def test_bad_input_is_refused_with_the_way_out() -> None:
    members, labels = arrays()
    head = members[:, :, -1]
    with pytest.raises(TypeError, match="expected integers"):
        lates.TemperatureScaling().fit(head, labels.astype(float))
    with pytest.raises(TypeError, match="labels came as NoneType"):
        lates.TemperatureScaling().fit(head, None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="labels hold 4 in row 0"):
        lates.TemperatureScaling().fit(head, labels * 0 + 4)
    with pytest.raises(ValueError, match=r"members have shape \[400, 4\]; expected \[n, classes, members\]"):
        lates.LogitStack().fit(head, labels)
    with pytest.raises(TypeError, match="members came as NoneType"):
        lates.LogitStack().fit(None, labels)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="There are no members"):
        lates.LogitStack().fit(members[:, :, :0], labels)
    with pytest.raises(ValueError, match="Unknown loss"):
        lates.LogitStack(loss="hinge").fit(members, labels)
    scaling = lates.TemperatureScaling().fit(head, labels)
    with pytest.raises(ValueError, match=r'Member "head" has shape \[400, 3\]; expected \[400, 4\]'):
        scaling.predict(head[:, :3])
    with pytest.raises(ValueError, match="NaN in row 0"):
        scaling.predict(np.full((1, 4), np.nan))
    stack = lates.LogitStack().fit(members, labels)
    with pytest.raises(ValueError, match=r'Member "0" has shape \[5, 4\]; expected \[400, 4\]'):
        stack.predict({"0": members[:5, :, 0], "1": members[:, :, 1], "head": head})


def test_two_classes_score_by_roc_auc() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 80)
    logits = generator.normal(size=(80, 2)) + 2 * np.eye(2)[labels]
    assert cross_val_score(lates.TemperatureScaling(), logits, labels, scoring="roc_auc").min() > 0.5


LOGITS, LABELS = (values.numpy() for values in sharpened(2.0, n=400, classes=3))
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)


def pipeline() -> Pipeline:
    """Probabilities, their logarithms, a temperature."""
    logs = FunctionTransformer(np.log, feature_names_out="one-to-one")
    return Pipeline([("logs", logs), ("scaling", lates.TemperatureScaling())])


def test_search_reaches_the_estimator_by_its_step_in_a_pipeline() -> None:
    choices = {"scaling__regularise": [0.0, 1e4], "scaling__loss": ["nll", "brier"]}
    search = GridSearchCV(pipeline(), choices, scoring="neg_log_loss", cv=3).fit(PROBABILITIES, LABELS)
    assert search.best_params_["scaling__regularise"] == 0.0
    found: Any = search.best_estimator_
    assert found["scaling"].temperature_ == pytest.approx(2.0, rel=0.2)


@pytest.mark.parametrize(
    ("scorer", "sign", "metric"),
    [
        ("accuracy", 1, lates.metrics.accuracy),
        ("neg_log_loss", -1, lates.metrics.nll),
        ("roc_auc_ovr", 1, lates.metrics.auc),
    ],
)
def test_scikit_learn_s_scorers_agree_with_our_metrics(scorer: str, sign: int, metric: Callable[..., float]) -> None:
    fitted = pipeline().fit(PROBABILITIES, LABELS)
    logits = np.log(fitted.predict_proba(PROBABILITIES))
    score = get_scorer(scorer)(fitted, PROBABILITIES, LABELS)
    assert score == pytest.approx(sign * metric(logits, LABELS), rel=1e-9)


def test_pipeline_can_be_frozen_pickled_and_shown_on_a_page() -> None:
    fitted = pipeline().fit(PROBABILITIES, LABELS)
    frozen = FrozenEstimator(fitted).fit(PROBABILITIES[:5], LABELS[:5])
    for twin in (frozen, pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(twin.predict_proba(PROBABILITIES), fitted.predict_proba(PROBABILITIES))
    assert "TemperatureScaling" in estimator_html_repr(fitted)


def test_data_frames_are_taken_as_the_arrays_they_hold() -> None:
    frame, series = pd.DataFrame(LOGITS), pd.Series(LABELS)
    plain, framed = lates.TemperatureScaling().fit(LOGITS, LABELS), lates.TemperatureScaling().fit(frame, series)
    assert framed.temperature_ == plain.temperature_
    assert framed.score(frame, series) == plain.score(LOGITS, LABELS)
    np.testing.assert_array_equal(framed.predict_proba(frame), plain.predict_proba(LOGITS))
    piped: Any = pipeline().set_output(transform="pandas").fit(pd.DataFrame(PROBABILITIES), series)
    assert piped["scaling"].temperature_ == pytest.approx(plain.temperature_, rel=1e-6)
