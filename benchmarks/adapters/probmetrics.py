"""probmetrics: a bisection on logits; and its other calibrators, fitted on the first half of the rows."""

from functools import partial
from importlib import import_module

from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.adapters.tensors import native as native

CALIBRATORS = import_module("probmetrics.calibrators")
DISTRIBUTIONS = import_module("probmetrics.distributions")


def temperature(logits: Tensor, labels: Tensor) -> float:
    calibrator = CALIBRATORS.TemperatureScalingCalibrator()
    calibrator.fit_torch(DISTRIBUTIONS.CategoricalLogits(logits), labels)
    return float(calibrator.invtemp_)


def _log_loss_of(calibrator: str, logits: Tensor, labels: Tensor) -> float:
    """Of the second half."""
    half, fitted = len(labels) // 2, getattr(CALIBRATORS, calibrator)()
    fitted.fit_torch(DISTRIBUTIONS.CategoricalLogits(logits[:half]), labels[:half])
    predicted = fitted.predict_proba_torch(DISTRIBUTIONS.CategoricalLogits(logits[half:])).get_logits()
    return float(cross_entropy(predicted.double(), labels[half:]))


vector_scaling = partial(_log_loss_of, "VectorScalingCalibrator")
svs = partial(_log_loss_of, "SVSCalibrator")
sms = partial(_log_loss_of, "SMSCalibrator")
ets = partial(_log_loss_of, "ETSCalibrator")
