"""scikit-learn: its temperature method around a classifier whose decision function is the logits themselves."""

from importlib import import_module

import numpy as np

from benchmarks.adapters.arrays import native as native
from benchmarks.adapters.arrays import softmax as softmax

BASE, CALIBRATION = import_module("sklearn.base"), import_module("sklearn.calibration")
FROZEN, METRICS = import_module("sklearn.frozen"), import_module("sklearn.metrics")


class _Logits(BASE.ClassifierMixin, BASE.BaseEstimator):
    """A classifier that was fitted elsewhere: rows of X are its logits."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "_Logits":
        self.classes_ = np.arange(X.shape[1])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return X.argmax(axis=1)

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return X


def temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    network = FROZEN.FrozenEstimator(_Logits().fit(logits, labels))
    fitted = CALIBRATION.CalibratedClassifierCV(network, method="temperature").fit(logits, labels)
    return float(fitted.calibrated_classifiers_[0].calibrators[0].beta_)


def brier(probabilities: np.ndarray, labels: np.ndarray) -> float:
    classes = np.arange(probabilities.shape[1])
    return METRICS.brier_score_loss(labels, probabilities, labels=classes, scale_by_half=False)


def nll(probabilities: np.ndarray, labels: np.ndarray) -> float:
    return METRICS.log_loss(labels, probabilities, labels=np.arange(probabilities.shape[1]))


def auc(probabilities: np.ndarray, labels: np.ndarray) -> float:
    probabilities = probabilities.astype(np.float64)  # its check that rows sum to one is too fine for float32
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return METRICS.roc_auc_score(labels, probabilities, multi_class="ovr", labels=np.arange(probabilities.shape[1]))
