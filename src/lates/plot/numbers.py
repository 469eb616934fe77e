"""What the pictures show, as numbers: nothing here draws, and what draws computes nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lates import metrics
from lates.metrics import Array, Reliability
from lates.model import CalibratedModel
from lates.network import HEAD
from lates.stack import Stack

Methods = Array | Mapping[str, Array]
"""Logits [n, classes], or method -> logits"""


@dataclass(frozen=True, eq=False)
class Diagram:
    """A reliability diagram, its calibration error, and what a perfectly calibrated model would measure."""

    name: str
    bins: Reliability
    ece: float
    floor: float


@dataclass(frozen=True)
class RiskCurve:
    """(coverage, risk) at every hundredth of the inputs, most confident first, and the area under it."""

    name: str
    points: tuple[tuple[float, float], ...]
    area: float


@dataclass(frozen=True)
class Bar:
    """One member's share of the weights."""

    name: str
    share: float
    is_head: bool


@dataclass(frozen=True)
class BudgetPoint:
    """Parameters added, as a share of the network's, and the cross-validated log-loss on the hold-out."""

    added: float
    nll: float


def prepare_reliability(logits: Methods, labels: Array, bins: int) -> list[Diagram]:
    return [
        Diagram(
            name,
            metrics.reliability(own, labels, bins),
            metrics.ece(own, labels, bins),
            metrics.ece_floor(own, bins),
        )
        for name, own in _named(logits)
    ]


def prepare_risk_coverage(logits: Methods, labels: Array) -> list[RiskCurve]:
    rows = {name: metrics.describe_rows(own, labels) for name, own in _named(logits)}
    areas = {name: metrics.aurc(own, labels) for name, own in _named(logits)}
    return [RiskCurve(name, metrics.risk_coverage_of_rows(own), areas[name]) for name, own in rows.items()]


def prepare_contributions(calibrated: CalibratedModel | Stack) -> list[Bar]:
    """In the order of depth, the head last; an ensemble's networks one after the other."""
    shares = calibrated.contributions
    return [Bar(name, share, name.rsplit("/", 1)[-1] == HEAD) for name, share in shares.items()]


def prepare_budget(calibrated: CalibratedModel | Stack) -> list[BudgetPoint]:
    """Temperature scaling, this fit, then larger budgets."""
    fit = calibrated.fit if isinstance(calibrated, CalibratedModel) else calibrated
    if not fit.budgets:
        raise ValueError(
            "This fit has no budget curve: its budget was not binding, so nothing else was tried, or it is of an ensemble, "
            "which keeps none. Calibrate one network with a smaller budget, such as budget=0.01."
        )
    return [BudgetPoint(*point) for point in zip(fit.budgets, fit.budget_nll, strict=True)]


def _named(logits: Methods) -> Iterator[tuple[str, Array]]:
    if not isinstance(logits, Mapping):
        yield "", logits
        return
    if not logits:
        raise ValueError("No method came; expected logits [n, classes], or method -> logits with at least one.")
    yield from ((str(name), own) for name, own in logits.items())
