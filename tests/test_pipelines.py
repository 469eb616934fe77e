"""The estimators among scikit-learn's own tools: searches through a pipeline, scorers, frozen models, pages."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_html_repr

import lates
from tests.problems import sharpened

LOGITS, LABELS = (values.numpy() for values in sharpened(2.0, n=400, classes=3))
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)


def pipeline() -> Pipeline:
    """Probabilities, their logarithms, a temperature."""
    logs = FunctionTransformer(np.log, feature_names_out="one-to-one")
    return Pipeline([("logs", logs), ("scaling", lates.TemperatureScaling())])


def test_a_search_reaches_the_estimator_by_its_step() -> None:
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
def test_their_scorers_agree_with_our_metrics(scorer: str, sign: int, metric: Callable[..., float]) -> None:
    fitted = pipeline().fit(PROBABILITIES, LABELS)
    logits = np.log(fitted.predict_proba(PROBABILITIES))
    score = get_scorer(scorer)(fitted, PROBABILITIES, LABELS)
    assert score == pytest.approx(sign * metric(logits, LABELS), rel=1e-9)


def test_it_can_be_frozen_and_shown_on_a_page() -> None:
    fitted = pipeline().fit(PROBABILITIES, LABELS)
    frozen = FrozenEstimator(fitted).fit(PROBABILITIES[:5], LABELS[:5])
    np.testing.assert_array_equal(frozen.predict_proba(PROBABILITIES), fitted.predict_proba(PROBABILITIES))
    assert "TemperatureScaling" in estimator_html_repr(fitted)


def test_data_frames_are_taken_as_the_arrays_they_hold() -> None:
    frame, series = pd.DataFrame(LOGITS), pd.Series(LABELS)
    plain, framed = lates.TemperatureScaling().fit(LOGITS, LABELS), lates.TemperatureScaling().fit(frame, series)
    assert framed.temperature_ == plain.temperature_
    assert framed.score(frame, series) == plain.score(LOGITS, LABELS)
    np.testing.assert_array_equal(framed.predict_proba(frame), plain.predict_proba(LOGITS))
    piped: Any = pipeline().set_output(transform="pandas").fit(pd.DataFrame(PROBABILITIES), series)
    assert piped["scaling"].temperature_ == pytest.approx(plain.temperature_, rel=1e-6)
