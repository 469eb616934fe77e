"""The demo's experiment: one network, three calibrations, four test sets."""

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
from lates.model import CalibratedModel
from lates.report import Predictions
from lates.runtime import Progress

NETWORK, TEMPERATURE, NO_VIEWS, LATES = "network as is", "temperature scaling", "LATES, no views", "LATES"


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A calibrated model, and how long the calibration took."""

    model: CalibratedModel
    seconds: float


@dataclass(frozen=True)
class Cost:
    """Where a calibration's weight lies and what it costs; parameters and prediction time relative to the network."""

    contributions: dict[str, float]
    added_parameters: float
    calibration_seconds: float
    prediction_time: float


@dataclass(frozen=True)
class Results:
    """Everything the demo shows: by test set the comparison of the methods and their AUC, by calibration its cost."""

    parameters: int
    images: dict[str, int]
    seed: int
    comparisons: dict[str, metrics.Comparison]
    auc: dict[str, dict[str, float]]
    costs: dict[str, Cost]


def calibrate_all(
    network: nn.Module, splits: Splits, *, seed: int = 0, progress: Progress | None = None
) -> dict[str, Calibrated]:
    """Temperature scaling, LATES without views, and LATES as a user calls it, by method."""
    data = {"train": splits.train.batches, "holdout": splits.holdout.batches}
    ways = {TEMPERATURE: {"blocks": []}, NO_VIEWS: {"views": None}, LATES: {}}
    calibrated: dict[str, Calibrated] = {}
    for done, (method, options) in enumerate(ways.items(), start=1):
        start = time.perf_counter()
        model = calibrate(network, **data, **options, seed=seed, progress=False)
        calibrated[method] = Calibrated(model, time.perf_counter() - start)
        if progress is not None:
            progress("calibrating", done, len(ways))
    return calibrated


def compare_all(
    network: nn.Module,
    splits: Splits,
    calibrated: Mapping[str, Calibrated],
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Results:
    """Measure every method on the test images and their shifted copies, against temperature scaling."""
    models: dict[str, nn.Module] = {NETWORK: network, **{name: one.model for name, one in calibrated.items()}}
    tests = shift_split(splits.test, seed)
    predictions, times = predict_all(models, tests, progress)
    parameters = sum(value.numel() for value in network.parameters())
    return Results(
        parameters=parameters,
        images={"train": len(splits.train), "holdout": len(splits.holdout), "test": len(splits.test)},
        seed=seed,
        comparisons={
            name: metrics.compare(one.logits, one.labels, baselines=[TEMPERATURE], seed=seed)
            for name, one in predictions.items()
        },
        auc={name: one.by_method(metrics.auc) for name, one in predictions.items()},
        costs={
            name: Cost(one.model.contributions, one.model.added_parameters / parameters, one.seconds, times[name])
            for name, one in calibrated.items()
        },
    )


def predict_all(
    models: Mapping[str, nn.Module], tests: Mapping[str, Split], progress: Progress | None = None
) -> tuple[dict[str, Predictions], dict[str, float]]:
    """Every model's logits on every test set, and its time as a multiple of the first model's.

    The models take turns on each batch, and the multiple is the median over batches: other load on the machine then
    affects all of them alike.
    """
    logits: dict[str, dict[str, list[Tensor]]] = {test: {method: [] for method in models} for test in tests}
    times: list[dict[str, float]] = []
    batches = [(test, images) for test, split in tests.items() for images, _ in split.batches]
    for test, images in batches:
        times.append({})
        for method, model in models.items():
            start = time.perf_counter()
            with torch.inference_mode():
                logits[test][method].append(model(images))
            times[-1][method] = time.perf_counter() - start
        if progress is not None:
            progress("predicting", len(times), len(batches))
    predictions = {
        test: Predictions(split.labels, {method: torch.cat(parts) for method, parts in logits[test].items()})
        for test, split in tests.items()
    }
    first = next(iter(models))
    return predictions, {method: median(batch[method] / batch[first] for batch in times) for method in models}
