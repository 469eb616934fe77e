"""The experiment: one network, three calibrations, four sets of test images, five metrics, and what chance could do."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn

from lates import metrics
from lates.algorithm import calibrate
from lates.demo.images import Split, Splits
from lates.demo.shifts import shift_split
from lates.metrics import Interval
from lates.model import CalibratedModel
from lates.progress import Progress

NETWORK, TEMPERATURE, LATES, JITTERED = "network as is", "temperature scaling", "LATES", "LATES, jittered views"
METRICS = {
    "accuracy": metrics.accuracy,
    "ece": metrics.ece,
    "nll": metrics.nll,
    "brier": metrics.brier,
    "auc": metrics.auc,
}
DRAWS = 200


@dataclass(frozen=True)
class Measured:
    """One method on one test set: its metrics, and their differences against temperature scaling (none for itself)."""

    values: dict[str, float]
    ece_floor: float
    against_temperature: dict[str, Interval]

    def verdict(self, metric: str) -> str:
        """Against temperature scaling: "better", "worse", or "equal" where the difference does not exceed chance."""
        difference = self.against_temperature.get(metric)
        if difference is None or not difference.excludes_zero:
            return "equal"
        return "better" if difference.favours(metric) else "worse"


@dataclass(frozen=True)
class Calibration:
    """What a calibration found and costs; `prediction_time` and `added_parameters` are shares of the network's own."""

    contributions: dict[str, float]
    added_parameters: float
    calibration_seconds: float
    prediction_time: float


@dataclass(frozen=True, eq=False)
class Calibrations:
    """The calibrated models by method, and the seconds that each took."""

    models: dict[str, CalibratedModel]
    seconds: dict[str, float]


@dataclass(frozen=True)
class Comparison:
    """All that the demonstration shows: `measured[test set][method]`, `calibrations[method]`."""

    parameters: int
    images: dict[str, int]
    seed: int
    measured: dict[str, dict[str, Measured]]
    calibrations: dict[str, Calibration]

    @property
    def tests(self) -> int:
        """How many differences were held against chance."""
        return sum(len(one.against_temperature) for methods in self.measured.values() for one in methods.values())

    def count(self, method: str, verdict: str) -> int:
        """How often the method was "better", "worse" or "equal" over all test sets and metrics."""
        return sum(
            methods[method].verdict(metric) == verdict for methods in self.measured.values() for metric in METRICS
        )


def compare(
    network: nn.Module,
    splits: Splits,
    made: Calibrations | None = None,
    *,
    seed: int = 0,
    draws: int = DRAWS,
    progress: Progress | None = None,
) -> Comparison:
    """Calibrate on train and hold-out, then measure every method on the test images and their shifted copies.

    made    calibrations of this network, where `calibrate_all` has made them already
    seed    of the views, the noise and the bootstrap
    draws   of the paired bootstrap behind each difference
    """
    report = progress or (lambda stage, done, total: None)
    made = made or calibrate_all(network, splits, seed=seed, progress=report)
    models: dict[str, nn.Module] = {NETWORK: network, **made.models}
    test_sets = shift_split(splits.test, seed)
    logits, ratios = predict_all(models, test_sets, report)
    measured: dict[str, dict[str, Measured]] = {}
    for done, (name, split) in enumerate(test_sets.items()):
        report("resampling", done, len(test_sets))
        measured[name] = measure_all(logits[name], split.labels, draws, seed)
    report("resampling", len(test_sets), len(test_sets))
    parameters = sum(value.numel() for value in network.parameters())
    return Comparison(
        parameters=parameters,
        images={"train": len(splits.train), "holdout": len(splits.holdout), "test": len(splits.test)},
        seed=seed,
        measured=measured,
        calibrations={
            name: Calibration(
                model.contributions, model.added_parameters / parameters, made.seconds[name], ratios[name]
            )
            for name, model in made.models.items()
        },
    )


def calibrate_all(
    network: nn.Module, splits: Splits, *, seed: int = 0, progress: Progress | None = None
) -> Calibrations:
    """Temperature scaling, LATES, and LATES with views."""
    report = progress or (lambda stage, done, total: None)
    train, holdout = splits.train.batches, splits.holdout.batches
    ways = {
        TEMPERATURE: lambda: calibrate(network, holdout=holdout, blocks=[], seed=seed, progress=False),
        LATES: lambda: calibrate(network, train=train, holdout=holdout, views=None, seed=seed, progress=False),
        JITTERED: lambda: calibrate(network, train=train, holdout=holdout, views="jitter", seed=seed, progress=False),
    }
    calibrated: dict[str, CalibratedModel] = {}
    seconds: dict[str, float] = {}
    for done, (name, way) in enumerate(ways.items()):
        report("calibrating", done, len(ways))
        start = time.perf_counter()
        calibrated[name] = way()
        seconds[name] = time.perf_counter() - start
    report("calibrating", len(ways), len(ways))
    return Calibrations(calibrated, seconds)


def predict_all(
    models: Mapping[str, nn.Module], test_sets: Mapping[str, Split], report: Progress
) -> tuple[dict[str, dict[str, Tensor]], dict[str, float]]:
    """The logits [n, classes] of every model on every set, and each model's time as a multiple of the first one's.

    The models take turns batch by batch, and the multiple is the median over batches: what else the machine does then
    disturbs all of them alike.
    """
    logits: dict[str, dict[str, Tensor]] = {}
    seconds: list[dict[str, float]] = []
    batches = sum(len(split.batches) for split in test_sets.values())
    for name, split in test_sets.items():
        parts: dict[str, list[Tensor]] = {method: [] for method in models}
        for images, _ in split.batches:
            taken: dict[str, float] = {}
            for method, model in models.items():
                start = time.perf_counter()
                with torch.inference_mode():
                    parts[method].append(model(images))
                taken[method] = time.perf_counter() - start
            seconds.append(taken)
            report("predicting", len(seconds), batches)
        logits[name] = {method: torch.cat(part) for method, part in parts.items()}
    first = next(iter(models))
    return logits, {method: median(taken[method] / taken[first] for taken in seconds) for method in models}


def measure_all(logits: Mapping[str, Tensor], labels: Tensor, draws: int, seed: int) -> dict[str, Measured]:
    """Every method's metrics on one test set; those of LATES also as paired differences against temperature scaling."""
    return {
        method: Measured(
            values={name: metric(own, labels) for name, metric in METRICS.items()},
            ece_floor=metrics.ece_floor(own),
            against_temperature={
                name: metrics.bootstrap(metric, own, labels, other=logits[TEMPERATURE], draws=draws, seed=seed)
                for name, metric in METRICS.items()
                if method in (LATES, JITTERED)
            },
        )
        for method, own in logits.items()
    }
