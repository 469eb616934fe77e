"""The metrics of `lates.metrics` as torchmetrics classes: update(logits, labels), compute(), reset(), in a
`MetricCollection`, over processes. Their values are those of the functions of the same name, however the rows are batched.

Logits [n, classes] and labels [n], as everywhere in `lates`; of probabilities pass the logarithms. Most keep four numbers of
each row; those that look at single classes keep the logits. In a `MetricCollection` metrics of one kind keep them once.

>>> metrics = MetricCollection([NLL(), Brier(), ECE(bins=15)])
>>> for images, labels in loader:
...     metrics.update(calibrated(images), labels)
>>> metrics.compute()  # {"NLL": …, "Brier": …, "ECE": …}
"""

from abc import abstractmethod
from dataclasses import astuple
from typing import Any

import torch
from torch import Tensor

from lates.metrics.calibration import BINS, classwise_ece, ece_debiased_of_rows, ece_of_rows
from lates.metrics.ranking import auc, auc_keras, aurc_of_rows
from lates.metrics.rows import Rows, checked, describe_rows
from lates.metrics.scores import mean_brier, mean_brier_paper, mean_correct, mean_nll
from lates.metrics.smoothing import ece_smooth_of_rows

try:
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat
except ImportError as fault:
    raise ImportError(
        f"lates.integrations.torchmetrics needs torchmetrics, which does not import ({fault}). "
        'Run: pip install "lates[torchmetrics]"'
    ) from fault


class OfRows(Metric):
    """A metric of each row's confidence, correctness, log-loss and Brier score, of which alone it keeps [n, 4] float64.

    options   torchmetrics' own, such as dist_sync_on_step; it refuses those that it does not know
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    rows: list[Tensor]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_state("rows", default=[], dist_reduce_fx="cat")

    @abstractmethod
    def measure(self, rows: Rows) -> float: ...

    def update(self, logits: Tensor, labels: Tensor) -> None:
        rows = describe_rows(logits, labels)
        self.rows.append(torch.stack(astuple(rows), dim=1).to(self.device))

    def compute(self) -> Tensor:
        kept = dim_zero_cat(self.rows).cpu().T.contiguous()
        return torch.tensor(self.measure(Rows(*kept)), dtype=torch.float64, device=self.device)


class OfLogits(Metric):
    """A metric that looks at single classes, and so keeps all logits [n, classes] and labels [n]."""

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    logits: list[Tensor]
    labels: list[Tensor]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_state("logits", default=[], dist_reduce_fx="cat")
        self.add_state("labels", default=[], dist_reduce_fx="cat")

    @abstractmethod
    def measure(self, logits: Tensor, labels: Tensor) -> float: ...

    def update(self, logits: Tensor, labels: Tensor) -> None:
        logits, labels = checked(logits, labels)
        self.logits.append(logits.to(self.device))
        self.labels.append(labels.to(self.device))

    def compute(self) -> Tensor:
        value = self.measure(dim_zero_cat(self.logits), dim_zero_cat(self.labels))
        return torch.tensor(value, dtype=torch.float64, device=self.device)


class Accuracy(OfRows):
    """`lates.metrics.accuracy`"""

    higher_is_better = True

    def measure(self, rows: Rows) -> float:
        return mean_correct(rows)


class NLL(OfRows):
    """`lates.metrics.nll`"""

    def measure(self, rows: Rows) -> float:
        return mean_nll(rows)


class Brier(OfRows):
    """`lates.metrics.brier`"""

    def measure(self, rows: Rows) -> float:
        return mean_brier(rows)


class BrierPaper(OfRows):
    """`lates.metrics.brier_paper`"""

    def measure(self, rows: Rows) -> float:
        return mean_brier_paper(rows)


class ECE(OfRows):
    """`lates.metrics.ece`"""

    def __init__(self, bins: int = BINS, binning: str = "width", **options: Any) -> None:
        super().__init__(**options)
        self.bins, self.binning = bins, binning

    def measure(self, rows: Rows) -> float:
        return ece_of_rows(rows, self.bins, self.binning)


class ECEDebiased(OfRows):
    """`lates.metrics.ece_debiased`"""

    def __init__(self, bins: int = BINS, binning: str = "mass", **options: Any) -> None:
        super().__init__(**options)
        self.bins, self.binning = bins, binning

    def measure(self, rows: Rows) -> float:
        return ece_debiased_of_rows(rows, self.bins, self.binning)


class ECESmooth(OfRows):
    """`lates.metrics.ece_smooth`"""

    def measure(self, rows: Rows) -> float:
        return ece_smooth_of_rows(rows)


class AURC(OfRows):
    """`lates.metrics.aurc`"""

    def measure(self, rows: Rows) -> float:
        return aurc_of_rows(rows)


class ClasswiseECE(OfLogits):
    """`lates.metrics.classwise_ece`"""

    higher_is_better = False

    def __init__(self, bins: int = BINS, binning: str = "width", **options: Any) -> None:
        super().__init__(**options)
        self.bins, self.binning = bins, binning

    def measure(self, logits: Tensor, labels: Tensor) -> float:
        return classwise_ece(logits, labels, self.bins, self.binning)


class AUC(OfLogits):
    """`lates.metrics.auc`"""

    def measure(self, logits: Tensor, labels: Tensor) -> float:
        return auc(logits, labels)


class AUCKeras(OfLogits):
    """`lates.metrics.auc_keras`"""

    def measure(self, logits: Tensor, labels: Tensor) -> float:
        return auc_keras(logits, labels)
