"""The demo's experiment: one network, three calibrations, four test sets."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from operator import truediv
from statistics import median
from typing import Any

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
CALIBRATIONS: dict[str, dict[str, Any]] = {TEMPERATURE: {"blocks": []}, NO_VIEWS: {"views": None}, LATES: {}}
"""method -> options; LATES is as a user calls it."""


@dataclass(frozen=True)
class Cost:
    """The contributions of a calibration and what it costs; parameters and prediction time relative to the network."""

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


def run_experiment(
    network: nn.Module, splits: Splits, *, seed: int = 0, progress: Progress | None = None
) -> tuple[Results, CalibratedModel]:
    """Calibrate the network in three ways and measure all on the test images and their shifted copies; what was found, and
    the model calibrated by LATES."""
    data = {"train": splits.train.batches, "holdout": splits.holdout.batches}
    calibrated: dict[str, CalibratedModel] = {}
    seconds: dict[str, float] = {}
    for method, options in CALIBRATIONS.items():
        start = time.perf_counter()
        calibrated[method] = calibrate(network, **data, **options, seed=seed, progress=False)
        seconds[method] = time.perf_counter() - start
        if progress is not None:
            progress("calibrating", len(seconds), len(CALIBRATIONS))
    predictions, times = predict_all({NETWORK: network, **calibrated}, shift_split(splits.test, seed), progress)
    parameters = sum(value.numel() for value in network.parameters())
    results = Results(
        parameters=parameters,
        images={"train": len(splits.train), "holdout": len(splits.holdout), "test": len(splits.test)},
        seed=seed,
        comparisons={
            name: metrics.compare(one.logits, one.labels, baselines=[TEMPERATURE], seed=seed)
            for name, one in predictions.items()
        },
        auc={name: one.by_method(metrics.auc) for name, one in predictions.items()},
        costs={
            name: Cost(model.contributions, model.added_parameters / parameters, seconds[name], times[name])
            for name, model in calibrated.items()
        },
    )
    return results, calibrated[LATES]


def predict_all(
    models: Mapping[str, nn.Module], tests: Mapping[str, Split], progress: Progress | None = None
) -> tuple[dict[str, Predictions], dict[str, float]]:
    """Every model's logits on every test set, and its time as a multiple of the first model's.

    The models take turns on each batch, and the multiple is the median over batches: other load on the machine then
    affects all of them alike.
    """
    predictions: dict[str, Predictions] = {}
    times: dict[str, list[float]] = {method: [] for method in models}
    for test, split in tests.items():
        logits: dict[str, list[Tensor]] = {method: [] for method in models}
        for (images, _), (method, model) in product(split.batches, models.items()):
            start = time.perf_counter()
            with torch.inference_mode():
                logits[method].append(model(images))
            times[method].append(time.perf_counter() - start)
        predictions[test] = Predictions(split.labels, {method: torch.cat(parts) for method, parts in logits.items()})
        if progress is not None:
            progress("predicting", len(predictions), len(tests))
    first, *_ = times.values()
    return predictions, {method: median(map(truediv, each, first)) for method, each in times.items()}
