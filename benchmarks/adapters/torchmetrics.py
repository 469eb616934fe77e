"""torchmetrics' functions: logits as they are."""

from importlib import import_module

from torch import Tensor

from benchmarks.adapters.tensors import native as native

METRICS = import_module("torchmetrics.functional.classification")


def ece(logits: Tensor, labels: Tensor) -> float:
    return float(METRICS.multiclass_calibration_error(logits, labels, num_classes=logits.shape[1], n_bins=15))


def auc(logits: Tensor, labels: Tensor) -> float:
    return float(METRICS.multiclass_auroc(logits, labels, num_classes=logits.shape[1]))
