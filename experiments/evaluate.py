"""Every method on every test set: a trained network and its data -> `CellResults`.

One forward pass per test set serves all methods.
"""

import math
from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import lates
from experiments.data import ImageSet
from experiments.dropout import OFF, STACKS, fit_layer_stack, fit_temperature, predict_draws
from experiments.material import KINDS, Clock, as_inputs, gather_material
from experiments.measuring import CorruptedSets, Predict, Report, measure_sets
from experiments.methods import HEAD, METHODS, Fitted, Method
from experiments.provenance import describe_surroundings, multiply_in_full
from experiments.recording import Recorder, measure_probes, predict_methods
from experiments.results import Cell, CellResults


@dataclass(frozen=True)
class CellData:
    """The images of a cell, on its device: what trained the network, what nothing has seen, what is reported."""

    train: ImageSet
    holdout: ImageSet
    test: ImageSet
    split: str


def evaluate_cell(
    cell: Cell,
    network: nn.Module,
    data: CellData,
    sets: CorruptedSets,
    *,
    pool: Executor,
    training_seconds: float = 0.0,
    deadline: float = math.inf,
    report: Report = lambda stage, done, total: None,
) -> CellResults:
    """Fit every method of the cell and measure it on every set, in the `pool` that `measuring_pool` makes.

    Once `deadline`, by `time.monotonic()`, has passed: `OutOfTimeError`.
    """
    device = next(network.parameters()).device
    torch.backends.cudnn.benchmark = True
    multiply_in_full()
    clock = Clock(device, deadline)
    network.eval()
    report("fitting", 0, 1)
    prepare = prepare_dropout if cell.dropout > 0 else prepare_methods
    ready = prepare(network, data, cell.seed, clock)
    report("fitting", 1, 1)
    with clock("evaluation"):
        rows, blocks = measure_sets(ready.predict, sets, pool, deadline, report)
    seconds = {"training": training_seconds, **clock.seconds}
    facts = {
        **describe_surroundings(device),
        "split": data.split,
        "rows": {"train": len(data.train), "holdout": len(data.holdout), "test": len(data.test)},
        "seconds": {stage: round(value, 4) for stage, value in seconds.items()},
        "parameters": count_parameters(network),
        "flops": count_flops(network, data.test),
        "probe_accuracy": ready.probe_accuracy.get("grid", {}),
        "probe_accuracy_paper": ready.probe_accuracy.get("flat", {}),
        "methods": ready.described,
    }
    return CellResults(cell, rows, facts, blocks)


# Fitting


@dataclass(frozen=True, eq=False)
class Ready:
    """All methods of a cell, fitted: how they predict, and what the results say about them."""

    predict: Predict
    described: Mapping[str, Mapping[str, Any]]
    probe_accuracy: Mapping[str, Mapping[str, float]]


def prepare_methods(network: nn.Module, data: CellData, seed: int, clock: Clock) -> Ready:
    """Every method of the table."""
    return fit_methods(network, data, seed, clock, METHODS, KINDS)


def fit_methods(
    network: nn.Module,
    data: CellData,
    seed: int,
    clock: Clock,
    methods: Mapping[str, Method],
    kinds: Collection[str],
) -> Ready:
    """Some methods, with the `kinds` of probes that they need, for one forward pass.

    A method's seconds are what it would take by itself: its budget and stack, and its stages.
    """
    material = gather_material(network, data.train, data.holdout, seed, clock, kinds)
    own = Clock(clock.device, clock.deadline)
    parameters, flops = count_parameters(network), count_flops(network, data.test)
    fitted: dict[str, Fitted] = {}
    described: dict[str, dict[str, Any]] = {}
    for name, method in methods.items():
        with own(name):
            result = fitted[name] = method(material)
        described[name] = {
            "weights": dict(result.weights),
            "contributions": result.contributions,
            "ranks": result.ranks,
            "parameters": result.added_parameters / parameters,
            "flops": result.added_flops / flops,
            "stack_seconds": round(own.seconds[name], 4),
            "seconds": round(own.seconds[name] + sum(clock.seconds[stage] for stage in result.stages), 4),
        }
    recorder = Recorder(network, material)

    def predict(images: Tensor) -> Mapping[str, Tensor]:
        return predict_methods(fitted, recorder(as_inputs(images)))

    return Ready(predict, described, measure_probes(recorder, material, data.test))


def prepare_dropout(network: nn.Module, data: CellData, seed: int, clock: Clock) -> Ready:
    """MC dropout's methods, on a hold-out and test sets that are drawn several times, beside some with dropout off."""
    methods = {name: METHODS[name] for name in OFF}
    off = fit_methods(network, data, seed, clock, methods, kinds=("none", "shift"))
    with clock("mcd_temperature"):
        scaled = fit_temperature(network, data.holdout, seed)
    stacks: dict[str, lates.CalibratedModel] = {}
    for name, views in STACKS.items():
        with clock(name):
            stacks[name] = fit_layer_stack(network, data.train, data.holdout, views, seed)
    described = {
        name: {**describe_draws(model, network, data.test), "seconds": round(clock.seconds[name], 4)}
        for name, model in {"mcd_temperature": scaled, **stacks}.items()
    }
    alone = {"weights": {HEAD: 1.0}, "holdout_nll": scaled.fit.nll_network, "seconds": 0.0}

    def predict(images: Tensor) -> Mapping[str, Tensor]:
        return {**off.predict(images), **predict_draws(stacks, scaled.weights[HEAD], as_inputs(images))}

    of_draws = {"mcd": {**described["mcd_temperature"], **alone}, **described}
    return Ready(predict, {**off.described, **of_draws}, off.probe_accuracy)


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
