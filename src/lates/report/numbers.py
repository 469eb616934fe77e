"""All that the report shows, as numbers: nothing here draws, and what draws computes nothing."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lates.blocks import HEAD
from lates.metrics import auc, ece_floor
from lates.metrics.calibration import class_errors, reliability_of_rows
from lates.metrics.intervals import Interval
from lates.metrics.rows import Rows, describe_rows
from lates.model import CalibratedModel
from lates.report.predictions import Predictions
from lates.report.resampling import Intervals, draws_for, resample
from lates.voters import Voter

NORMAL = 1.959964  # the 97.5 % quantile
COVERAGE_STEPS = 100


@dataclass(frozen=True)
class Bin:
    """Confidences in ]low, high]: how many, how many of them right; means are NaN where empty.

    `likely` is Wilson's 95 % interval of the accuracy.
    """

    low: float
    high: float
    count: int
    right: int
    confidence: float
    accuracy: float
    likely: tuple[float, float]


@dataclass(frozen=True)
class Member:
    """One member of the stack: `accuracy`, on the test set, is None for a block without a vote, of which no probe is kept.

    `holdout_accuracy`, of the probe as trained, is None where the calibration's file does not say.
    """

    network: int
    name: str
    weight: float
    contribution: float
    accuracy: Interval | None
    holdout_accuracy: float | None

    @property
    def is_head(self) -> bool:
        return self.name == HEAD


@dataclass(frozen=True)
class ClassNumbers:
    """One class. By method: `error`, its share of the classwise ECE; `predicted`, how often it was the answer, how sure on
    average (`confidence`) and how often rightly (`precision`), both NaN where it never was."""

    name: str
    rows: int
    error: dict[str, float]
    predicted: dict[str, int]
    confidence: dict[str, float]
    precision: dict[str, float]


@dataclass(frozen=True)
class SetNumbers:
    """One test set: each method's metrics, the last method's paired differences to the others, and the ECE's floor."""

    name: str
    rows: int
    draws: int
    measured: dict[str, Intervals]
    differences: dict[str, Intervals]
    ece_floor: dict[str, float]


@dataclass(frozen=True)
class Subject:
    """What was calibrated."""

    network: str
    networks: int
    samples: int
    parameters: int
    added_parameters: int
    classes: int
    members: int
    voting: int
    loss: str
    holdout_rows: int
    nll_network: float
    nll_temperature: float
    nll: float
    certified: bool
    temperatures: tuple[float, ...]
    changed_tensors: int


@dataclass(frozen=True)
class Findings:
    """`sets` begins with the plain test set, on which all but the shift curves are drawn."""

    subject: Subject
    methods: tuple[str, ...]
    sets: tuple[SetNumbers, ...]
    points: dict[str, dict[str, float]]
    bins: dict[str, tuple[Bin, ...]]
    coverage: dict[str, tuple[tuple[float, float], ...]]
    members: tuple[Member, ...]
    classes: tuple[ClassNumbers, ...]

    @property
    def main(self) -> str:
        """The method that the report is about."""
        return self.methods[-1]

    @property
    def test(self) -> SetNumbers:
        return self.sets[0]


def find(
    calibrated: CalibratedModel,
    predictions: Mapping[str, Predictions],
    class_names: Sequence[str] | None,
    seed: int,
) -> Findings:
    """Measure everything on the first set, the metrics on every set."""
    plain = next(iter(predictions.values()))
    resampled = {name: resample(own, seed) for name, own in predictions.items()}
    sets = tuple(
        SetNumbers(
            name,
            own.rows,
            draws_for(own.rows),
            measured=resampled[name][0],
            differences=resampled[name][1],
            ece_floor={method: ece_floor(logits, seed=seed) for method, logits in own.logits.items()},
        )
        for name, own in predictions.items()
    )
    rows = {method: describe_rows(logits, plain.labels) for method, logits in plain.logits.items()}
    errors = {method: class_errors(logits, plain.labels) for method, logits in plain.logits.items()}
    accuracies = next(iter(resampled.values()))[2]
    return Findings(
        describe_subject(calibrated),
        tuple(plain.logits),
        sets,
        points={
            "classwise_ece": {method: float(own.mean()) for method, own in errors.items()},
            "auc": {method: auc(logits, plain.labels) for method, logits in plain.logits.items()},
        },
        bins={method: bins_of(own) for method, own in rows.items()},
        coverage={method: coverage_of(own) for method, own in rows.items()},
        members=members_of(calibrated, accuracies),
        classes=classes_of(plain, rows, errors, class_names),
    )


def describe_subject(calibrated: CalibratedModel) -> Subject:
    networks = [voter.network for voter in calibrated.voters if isinstance(voter, Voter)]
    fit, weights = calibrated.fit, calibrated.weights
    return Subject(
        network=type(networks[0].network).__name__,
        networks=len(networks),
        samples=calibrated.samples,
        parameters=sum(p.numel() for network in networks for p in network.parameters()),
        added_parameters=calibrated.added_parameters,
        classes=fit.classes,
        members=len(weights),
        voting=sum(weight > 0 for weight in weights.values()),
        loss=fit.loss,
        holdout_rows=fit.rows,
        nll_network=fit.nll_network,
        nll_temperature=fit.nll_temperature,
        nll=fit.nll,
        certified=fit.certified,
        temperatures=tuple(1 / weight if weight > 0 else math.inf for weight in fit.temperature_weights),
        changed_tensors=sum(len(voter.network_then()[1]) for voter in calibrated.voters if isinstance(voter, Voter)),
    )


def default_title(subject: Subject) -> str:
    """The class alone says little: many a network is a Sequential."""
    return f"{subject.network}, {subject.classes:,} classes"


def bins_of(rows: Rows) -> tuple[Bin, ...]:
    """The reliability diagram's bins, those that `lates.metrics.ece` sums over."""
    diagram = reliability_of_rows(rows)
    edges, counts = diagram.edges.tolist(), diagram.counts.tolist()
    right = [
        round(share * count) if count else 0 for share, count in zip(diagram.accuracy.tolist(), counts, strict=True)
    ]
    columns = zip(
        edges[:-1], edges[1:], counts, right, diagram.confidence.tolist(), diagram.accuracy.tolist(), strict=True
    )
    return tuple(Bin(*values, likely=wilson(values[3], values[2])) for values in columns)


def wilson(right: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, right / count: all p with |right - count p| <= z sqrt(count p (1 - p))."""
    if not count:
        return math.nan, math.nan
    share, z2 = right / count, NORMAL**2 / count
    centre = (share + z2 / 2) / (1 + z2)
    reach = math.sqrt(z2 * share * (1 - share) + z2**2 / 4) / (1 + z2)
    return max(0.0, centre - reach), min(1.0, centre + reach)


def coverage_of(rows: Rows) -> tuple[tuple[float, float], ...]:
    """(coverage, risk): the error rate among the most confident share of rows; ties share their mean error."""
    confidence, order = rows.confidence.sort(descending=True)
    _, tie, sizes = confidence.unique_consecutive(return_inverse=True, return_counts=True)
    errors = torch.bincount(tie, weights=1 - rows.correct[order]) / sizes
    n = len(rows)
    risk = errors[tie].cumsum(0) / torch.arange(1, n + 1)
    kept = sorted({max(1, math.ceil(n * step / COVERAGE_STEPS)) for step in range(1, COVERAGE_STEPS + 1)})
    return tuple((k / n, float(risk[k - 1])) for k in kept)


def members_of(calibrated: CalibratedModel, accuracies: Mapping[str, Interval]) -> tuple[Member, ...]:
    contributions, several = calibrated.contributions, len(calibrated.voters) > 1
    alone = calibrated.holdout_accuracies
    members: list[Member] = []
    for full, weight in calibrated.weights.items():
        place, name = full.split("/", 1) if several else ("0", full)
        known = (accuracies.get(full), alone.get(full))
        members.append(Member(int(place), name, weight, contributions[full], *known))
    return tuple(members)


def unique_names(names: Iterable[object]) -> list[str]:
    """As text; of names that occur twice, as ImageNet's cranes do, each gets its class's number."""
    texts = [str(name) for name in names]
    counts = Counter(texts)
    return [text if counts[text] == 1 else f"{text} ({number})" for number, text in enumerate(texts)]


def classes_of(
    predictions: Predictions, rows: Mapping[str, Rows], errors: Mapping[str, Tensor], names: Sequence[str] | None
) -> tuple[ClassNumbers, ...]:
    """Every class, that with the largest error of the main method first."""
    classes = predictions.classes
    names = unique_names(names if names is not None else range(classes))
    counts = torch.bincount(predictions.labels, minlength=classes).tolist()
    answered: dict[str, list[int]] = {}
    confidence: dict[str, list[float]] = {}
    precision: dict[str, list[float]] = {}
    for method, logits in predictions.logits.items():
        top, own = logits.argmax(1), rows[method]
        times = torch.bincount(top, minlength=classes)
        answered[method] = times.tolist()
        confidence[method] = (torch.bincount(top, own.confidence, minlength=classes) / times).tolist()
        precision[method] = (torch.bincount(top, own.correct, minlength=classes) / times).tolist()
    main = list(errors)[-1]
    order = errors[main].argsort(descending=True, stable=True).tolist()
    return tuple(
        ClassNumbers(
            names[c],
            counts[c],
            error={method: float(own[c]) for method, own in errors.items()},
            predicted={method: own[c] for method, own in answered.items()},
            confidence={method: own[c] for method, own in confidence.items()},
            precision={method: own[c] for method, own in precision.items()},
        )
        for c in order
    )
