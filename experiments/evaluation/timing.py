"""How long a calibration takes beside the training of its network: both measured alone on one device.

Training is timed by its first epochs, all of which take as long, and reckoned to the schedule; compiling is
counted once. Then `lates.calibrate` with its defaults is run a few times on the network that was trained in full, from images
that are on the device already, as they are in training.

    python -m experiments timing --network vgg16 --dataset cifar100 --data DIR --run runs/cifar100-vgg16-s0 --out results/timing
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch import nn

import lates
from experiments.data.datasets import ImageSet
from experiments.data.files import DamagedError, format_json, parse_json, write_whole
from experiments.evaluation.clock import Clock
from experiments.evaluation.environment import describe_environment, multiply_in_float32
from experiments.evaluation.loading import add_arguments, load_network
from experiments.evaluation.prepared import Batches
from experiments.training.checkpoints import Progress
from experiments.training.hyperparameters import choose_hyperparameters
from experiments.training.loop import train_network
from experiments.training.networks import build_network

EPOCHS, REPEATS = 6, 3


@dataclass(frozen=True)
class Timing:
    """Seconds: of each epoch timed, the first with all that comes before it; and of each calibration."""

    recipe_epochs: int
    epochs: tuple[float, ...]
    calibrations: tuple[float, ...]

    @property
    def training(self) -> float:
        return self.epochs[0] + (self.recipe_epochs - 1) * median(self.epochs[1:])

    @property
    def share(self) -> float:
        """Of the training's time."""
        return median(self.calibrations) / self.training


def time_training(network: nn.Module, dataset: str, train: ImageSet, device: torch.device) -> tuple[float, ...]:
    ends = [perf_counter()]

    def report(progress: Progress) -> None:
        ends.append(perf_counter())  # the loss of the epoch was read: the device has done its work

    hyper = replace(choose_hyperparameters(dataset), epochs=EPOCHS)
    train_network(hyper, network, train, seed=0, device=device, report=report)
    return tuple(after - before for before, after in pairwise(ends))


def time_calibration(network: nn.Module, train: ImageSet, holdout: ImageSet) -> tuple[float, ...]:
    """The first, in which kernels are chosen and memory is taken, is not counted."""
    clock, stages = Clock(train.images.device), [str(place) for place in range(REPEATS + 1)]
    for stage in stages:
        with clock(stage):
            lates.calibrate(network, train=Batches(train), holdout=Batches(holdout), progress=False)
    return tuple(clock.seconds[stage] for stage in stages[1:])


def read_timing(file: Path) -> Timing:
    try:
        facts = parse_json(file.read_bytes())
        return Timing(facts["recipe_epochs"], tuple(facts["epochs"]), tuple(facts["calibrations"]))
    except (DamagedError, KeyError, TypeError) as error:
        raise DamagedError(f"{file} is damaged ({error}). Run `python -m experiments timing` again.") from error


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments timing", description=__doc__)
    add_arguments(parser)
    chosen = parser.parse_args(arguments)
    if chosen.weights is not None:
        parser.error("--weights: nobody knows how long a released network was trained. Pass --run.")
    device = torch.device(chosen.device)
    trained = load_network(chosen)
    fresh = build_network(chosen.network, len(trained.train.classes))
    epochs = time_training(fresh, chosen.dataset, trained.train, device)
    multiply_in_float32()
    calibrations = time_calibration(trained.network, trained.train, trained.holdout)
    seconds = [tuple(round(each, 4) for each in measured) for measured in (epochs, calibrations)]
    timing = Timing(choose_hyperparameters(chosen.dataset).epochs, *seconds)
    facts = {
        "network": chosen.network,
        "dataset": chosen.dataset,
        "recipe_epochs": timing.recipe_epochs,
        "epochs": timing.epochs,
        "calibrations": timing.calibrations,
        **describe_environment(device),
    }
    place = chosen.out / f"{chosen.dataset}-{chosen.network}"
    write_whole(place / "timing.json", format_json(facts, indent=2))
    print(f"training {timing.training:.1f} s, calibration {median(timing.calibrations):.2f} s: {100 * timing.share:.2f} %")
