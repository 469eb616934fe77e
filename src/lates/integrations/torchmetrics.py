"""The metrics of `lates.metrics` as torchmetrics classes: update(logits, labels), compute(), reset(), in a
`MetricCollection`, over processes. Their values are those of the functions of the same name, however the rows are batched.

Logits [n, classes] and labels [n], as everywhere in `lates`; pass the logarithm of probabilities. Most keep four numbers per
row; those that look at single classes keep the logits. In a `MetricCollection`, metrics of one kind share what they keep.

>>> metrics = MetricCollection([NLL(), Brier(), ECE(bins=15)])
>>> for images, labels in loader:
...     metrics.update(calibrated(images), labels)
>>> metrics.compute()  # {"NLL": …, "Brier": …, "ECE": …}
"""

from collections.abc import Callable
from dataclasses import astuple
from inspect import signature
from typing import Any, ClassVar

import torch
from torch import Tensor

from lates import metrics
from lates.metrics import METRICS, Rows, checked, describe_rows
from lates.runtime import OptionalImport

with OptionalImport("torchmetrics", "lates.integrations.torchmetrics"):
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat


class _Metric(Metric):
    """A class for one function of `lates.metrics`. It takes, by name, the function's options, such as bins, and torchmetrics'
    own, such as dist_sync_on_step."""

    is_differentiable = False
    full_state_update = False
    function: ClassVar[Callable[..., float]]
    states: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, function: Callable[..., float] | None = None) -> None:
        if function is not None:
            cls.function, cls.higher_is_better = staticmethod(function), METRICS[function.__name__].larger_is_better

    def __init__(self, **options: Any) -> None:
        _, _, *known = signature(self.function).parameters  # after logits and labels
        self.arguments = {name: options.pop(name) for name in known if name in options}
        super().__init__(**options)
        for name in self.states:
            self.add_state(name, default=[], dist_reduce_fx="cat")


class RowMetric(_Metric):
    """A metric of each row's confidence, correctness, log-loss and Brier score, which it keeps as [n, 4] float64."""

    states = ("rows",)
    rows: list[Tensor]

    def update(self, logits: Tensor, labels: Tensor) -> None:
        self.rows.append(torch.stack(astuple(describe_rows(logits, labels)), dim=1).to(self.device))

    def compute(self) -> Tensor:
        rows = Rows(*dim_zero_cat(self.rows).cpu().T.contiguous())
        value = METRICS[self.function.__name__].of_rows(rows, **self.arguments)
        return torch.tensor(value, dtype=torch.float64, device=self.device)


class LogitMetric(_Metric):
    """A metric that looks at single classes and therefore keeps all logits [n, classes] and labels [n]."""

    states = ("logits", "labels")
    logits: list[Tensor]
    labels: list[Tensor]

    def update(self, logits: Tensor, labels: Tensor) -> None:
        logits, labels = checked(logits, labels)
        self.logits.append(logits.to(self.device))
        self.labels.append(labels.to(self.device))

    def compute(self) -> Tensor:
        value = self.function(dim_zero_cat(self.logits), dim_zero_cat(self.labels), **self.arguments)
        return torch.tensor(value, dtype=torch.float64, device=self.device)


class Accuracy(RowMetric, function=metrics.accuracy):
    """`lates.metrics.accuracy`"""


class NLL(RowMetric, function=metrics.nll):
    """`lates.metrics.nll`"""


class Brier(RowMetric, function=metrics.brier):
    """`lates.metrics.brier`"""


class BrierPaper(RowMetric, function=metrics.brier_paper):
    """`lates.metrics.brier_paper`"""


class ECE(RowMetric, function=metrics.ece):
    """`lates.metrics.ece`"""


class ECEDebiased(RowMetric, function=metrics.ece_debiased):
    """`lates.metrics.ece_debiased`"""


class ECESmooth(RowMetric, function=metrics.ece_smooth):
    """`lates.metrics.ece_smooth`"""


class AURC(RowMetric, function=metrics.aurc):
    """`lates.metrics.aurc`"""


class CoverageAtRisk(RowMetric, function=metrics.coverage_at_risk):
    """`lates.metrics.coverage_at_risk`"""


class ClasswiseECE(LogitMetric, function=metrics.classwise_ece):
    """`lates.metrics.classwise_ece`"""


class AUC(LogitMetric, function=metrics.auc):
    """`lates.metrics.auc`"""


class AUCKeras(LogitMetric, function=metrics.auc_keras):
    """`lates.metrics.auc_keras`"""
