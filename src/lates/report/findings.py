"""All numbers of the report: nothing here draws, and what draws computes nothing."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from lates import metrics
from lates.metrics import Comparison, Reliability, Rows, Selector, fit_selector
from lates.model import CalibratedModel
from lates.network import HEAD
from lates.report.predictions import Predictions

RISKS = (0.01, 0.02, 0.05, 0.1)


@dataclass(frozen=True)
class Member:
    """One member of the stack. `accuracy`, alone on the hold-out and as trained, is None where the file does not say."""

    network: int
    name: str
    weight: float
    contribution: float
    accuracy: float | None

    @property
    def is_head(self) -> bool:
        return self.name == HEAD


@dataclass(frozen=True)
class ClassScore:
    """A class under one method: how many test inputs have it as their label; the calibration error of its probability; how
    often it was predicted, with what mean confidence and how often correctly, both NaN where it never was."""

    name: str
    rows: int
    error: float
    predicted: int
    confidence: float
    precision: float


@dataclass(frozen=True)
class Findings:
    """`sets` begins with the plain test set, to which everything but the charts of shifts refers.

    `points` are metrics without an interval, by name and method; `classes` are by method, the class with the largest error of
    the main one first; `selectors` are by the error rate allowed and by method.
    """

    calibrated: CalibratedModel
    sets: dict[str, Comparison]
    points: dict[str, dict[str, float]]
    diagrams: dict[str, Reliability]
    coverage: dict[str, tuple[tuple[float, float], ...]]
    members: tuple[Member, ...]
    classes: dict[str, tuple[ClassScore, ...]]
    selectors: dict[float, dict[str, Selector]]

    @property
    def test(self) -> Comparison:
        return next(iter(self.sets.values()))

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self.test.measured)

    @property
    def main(self) -> str:
        """The method that the report is about."""
        return self.methods[-1]

    @property
    def baseline(self) -> str:
        """The strongest method that the main one is compared with."""
        return self.methods[-2]


def measure(
    calibrated: CalibratedModel,
    predictions: Mapping[str, Predictions],
    class_names: Sequence[str] | None,
    seed: int,
) -> Findings:
    """Measure everything on the first set, and compare the methods on every set."""
    sets = {
        name: metrics.compare(one.logits, one.labels, baselines=list(one.logits)[:-1], seed=seed)
        for name, one in predictions.items()
    }
    plain = next(iter(predictions.values()))
    rows, errors = plain.by_method(metrics.describe_rows), plain.by_method(metrics.class_errors)
    return Findings(
        calibrated,
        sets,
        points={
            "classwise_ece": {method: float(values.mean()) for method, values in errors.items()},
            "auc": plain.by_method(metrics.auc),
        },
        diagrams=plain.by_method(metrics.reliability),
        coverage={method: metrics.risk_coverage_of_rows(described) for method, described in rows.items()},
        members=members_of(calibrated),
        classes=classes_of(plain, rows, errors, class_names),
        selectors={risk: plain.by_method(partial(fit_selector, risk=risk, seed=seed)) for risk in RISKS},
    )


def members_of(calibrated: CalibratedModel) -> tuple[Member, ...]:
    contributions, accuracies = calibrated.contributions, calibrated.holdout_accuracies
    members: list[Member] = []
    for full, weight in calibrated.weights.items():
        number, name = full.split("/", 1) if len(calibrated.networks) > 1 else ("0", full)
        members.append(Member(int(number), name, weight, contributions[full], accuracies.get(full)))
    return tuple(members)


def classes_of(
    predictions: Predictions, rows: Mapping[str, Rows], errors: Mapping[str, Tensor], names: Sequence[str] | None
) -> dict[str, tuple[ClassScore, ...]]:
    order = errors[list(errors)[-1]].argsort(descending=True, stable=True)
    classes = len(order)
    names = unique_names(range(classes) if names is None else names)
    counts = torch.bincount(predictions.labels, minlength=classes)
    scores: dict[str, tuple[ClassScore, ...]] = {}
    for method, logits in predictions.logits.items():
        top = logits.argmax(1)
        times = torch.bincount(top, minlength=classes)
        sums = (torch.bincount(top, each, minlength=classes) for each in (rows[method].confidence, rows[method].correct))
        columns = (order, counts[order], errors[method][order], times[order], *((each / times)[order] for each in sums))
        lines = zip(*(column.tolist() for column in columns), strict=True)
        scores[method] = tuple(ClassScore(names[c], *values) for c, *values in lines)
    return scores


def unique_names(names: Iterable[object]) -> list[str]:
    """As text; names that occur more than once, as ImageNet's "crane" does, get their class's number."""
    texts = [str(name) for name in names]
    counts = Counter(texts)
    return [text if counts[text] == 1 else f"{text} ({number})" for number, text in enumerate(texts)]
