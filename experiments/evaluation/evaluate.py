"""Every method on every test set: a trained network and its data -> scores, block means and facts."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import lates
from experiments.data.datasets import ImageSet, as_inputs
from experiments.evaluation.clock import Clock
from experiments.evaluation.dropout import CALIBRATED, OFF, SAMPLES, calibrate_draws, predict_draws
from experiments.evaluation.environment import describe_environment, multiply_in_float32
from experiments.evaluation.image_blocks import Blocks
from experiments.evaluation.measured_sets import MeasuredSets
from experiments.evaluation.measuring import CorruptedSets, PredictAll, Report, Scores, measure_sets
from experiments.evaluation.methods import HEAD, METHODS, Fitted
from experiments.evaluation.prepared import DENSITY, MIRRORED, PAPER, VIEWS, Prepared, Recorded, prepare

KIND_OF = {PAPER: "lates_paper", DENSITY: "density", MIRRORED: "tta_mirror"}
"""What must be prepared, beside the views -> how the names of the methods that need it begin."""


@dataclass(frozen=True)
class CellData:
    """The images of a cell, on its device: what trained the network, what it has not seen, what is reported."""

    train: ImageSet
    holdout: ImageSet
    test: ImageSet
    split: str


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The scores of each method on each test set, block means of the test images, and everything else that is known."""

    scores: Scores
    blocks: Blocks
    facts: Mapping[str, Any]


def evaluate_network(
    network: nn.Module,
    data: CellData,
    sets: CorruptedSets,
    *,
    seed: int,
    mc_dropout: bool = False,
    methods: Collection[str] = tuple(METHODS),
    per_class: bool = True,
    training_seconds: float = 0.0,
    deadline: float = math.inf,
    report: Report = lambda stage, done, total: None,
    kept: MeasuredSets | None = None,
    workers: int | None = None,
) -> Evaluation:
    """Fit the methods and measure them on every set that is not `kept`, in this many processes beside a GPU. Once `deadline`,
    by `time.monotonic()`, has passed: `OutOfTimeError`."""
    device = next(network.parameters()).device
    torch.backends.cudnn.benchmark = True
    multiply_in_float32()
    clock = Clock(device, deadline)
    network.eval()
    report("fitting", 0, 1)
    fitted = fit_for_dropout(network, data, seed, clock) if mc_dropout else fit_methods(network, data, seed, clock, methods)
    report("fitting", 1, 1)
    with clock("evaluation"):
        scores, blocks = measure_sets(fitted.predict, sets, deadline, report, per_class, kept, workers)
    seconds = {"training": training_seconds, **clock.seconds}
    facts = {
        **describe_environment(device),
        "split": data.split,
        "rows": {"train": len(data.train), "holdout": len(data.holdout), "test": len(data.test)},
        "seconds": {stage: round(value, 4) for stage, value in seconds.items()},
        "parameters": count_parameters(network),
        "flops": count_flops(network, data.test),
        "probe_accuracy": fitted.probe_accuracy,
        "methods": fitted.described,
    }
    return Evaluation(scores, blocks, facts)


# Fitting


@dataclass(frozen=True, eq=False)
class FittedMethods:
    """How all methods of a network predict, and what the results say about them."""

    predict: PredictAll
    described: Mapping[str, Mapping[str, Any]]
    probe_accuracy: Mapping[str, float]


def fit_methods(
    network: nn.Module,
    data: CellData,
    seed: int,
    clock: Clock,
    methods: Collection[str],
    views: Collection[str] = tuple(VIEWS),
) -> FittedMethods:
    """These methods, with probes of these `views` and what else they need."""
    needed = [kind for kind, method in KIND_OF.items() if any(name.startswith(method) for name in methods)]
    prepared = prepare(network, data.train, data.holdout, seed, clock, [*views, *needed])
    fitted: dict[str, Fitted] = {}
    for name in methods:
        with clock("methods"):
            fitted[name] = METHODS[name](prepared)
    parameters, flops = count_parameters(network), count_flops(network, data.test)
    described = {name: method.describe(parameters, flops) for name, method in fitted.items()}

    def predict(test: ImageSet) -> Mapping[str, Tensor]:
        return predict_methods(fitted, prepared.read(test))

    return FittedMethods(predict, described, measure_probes(prepared, prepared.readers["plain"](data.test, {})))


def predict_methods(fitted: Mapping[str, Fitted], recorded: Recorded) -> dict[str, Tensor]:
    """method -> logits [n, classes]"""
    with torch.no_grad():
        return {name: method.predict(recorded[method.reads]).float() for name, method in fitted.items()}


def measure_probes(prepared: Prepared, features: lates.Features) -> dict[str, float]:
    """The accuracy of each block's probe, uncut and trained without views, and of the head, in depth order."""
    probes = {name: prepared.probes["none"][name].probe for name in prepared.blocks}
    members = lates.member_logits(probes, features)
    return {name: lates.metrics.accuracy(logits, features.labels) for name, logits in members.items()}


def fit_for_dropout(network: nn.Module, data: CellData, seed: int, clock: Clock) -> FittedMethods:
    """MC dropout's methods, on a hold-out and test sets that are drawn several times, beside some with dropout off."""
    off = fit_methods(network, data, seed, clock, OFF, ("none", "shift"))
    calibrated: dict[str, lates.CalibratedModel] = {}
    for name, options in CALIBRATED.items():
        with clock(name):
            calibrated[name] = calibrate_draws(network, data.train, data.holdout, seed, options)
    described = {name: describe_draws(model, network, data.test) for name, model in calibrated.items()}
    loss = calibrated["mcd_temperature"].fit.nll_network
    alone = {**described["mcd_temperature"], "weights": {HEAD: 1.0}, "holdout_nll": loss}
    models = {"mcd": lates.mc_dropout(network, SAMPLES, seed=seed), **calibrated}

    def predict(test: ImageSet) -> Mapping[str, Tensor]:
        return {**off.predict(test), **predict_draws(models, test)}

    return FittedMethods(predict, {**off.described, "mcd": alone, **described}, off.probe_accuracy)


def describe_draws(model: lates.CalibratedModel, network: nn.Module, test: ImageSet) -> dict[str, Any]:
    """What the results say of a calibration of MC dropout. FLOPs: those added to as many passes of the network."""
    ranks = (len(values) for name, values in model.named_parameters() if name.endswith(".down"))
    return {
        "weights": model.weights,
        "contributions": model.contributions,
        "ranks": dict(zip(model.member_names, ranks, strict=False)),  # the head, named last, has none
        "parameters": model.added_parameters / count_parameters(network),
        "flops": count_flops(model, test) / (model.samples * count_flops(network, test)) - 1,
        "holdout_nll": model.fit.nll,
        "holdout_accuracies": model.holdout_accuracies,
    }


def count_flops(network: nn.Module, test: ImageSet) -> int:
    """Of one image, as torch counts them: two for each multiplication in matrix products and convolutions."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(as_inputs(test.images[:1]))
    return counter.get_total_flops()


def count_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
