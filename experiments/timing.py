"""How long a calibration takes beside the training of its network: both measured alone on one device.

Training is timed by its first epochs, all of which take as long, and reckoned to the recipe's number of them; compiling is
counted once. Then `lates.calibrate` with its defaults is run a few times on the network that was trained in full, from images
that are on the device already, as they are in training.

    python -m experiments.timing --network vgg16 --dataset cifar100 --data DIR --run runs/cifar100-vgg16-s0 --out results/timing
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import nn

import lates
from experiments.checkpoints import Progress, write_atomically
from experiments.data import ImageSet
from experiments.material import Batches
from experiments.networks import build_network
from experiments.provenance import describe_surroundings, multiply_in_full
from experiments.schedules import choose_recipe
from experiments.trained import add_arguments, load_trained
from experiments.training import train_network

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

    recipe = replace(choose_recipe(dataset), epochs=EPOCHS)
    train_network(recipe, network, train, seed=0, device=device, report=report)
    return tuple(after - before for before, after in pairwise(ends))


def time_calibration(network: nn.Module, train: ImageSet, holdout: ImageSet) -> tuple[float, ...]:
    """The first, in which kernels are chosen and memory is taken, is not counted."""

    def calibrate() -> None:
        lates.calibrate(network, train=Batches(train), holdout=Batches(holdout), progress=False)

    return tuple(_seconds(calibrate) for _ in range(REPEATS + 1))[1:]


def _seconds(work: Callable[[], None]) -> float:
    started = perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return perf_counter() - started


def read_timing(file: Path) -> Timing:
    found: dict[str, Any] = json.loads(file.read_text())
    return Timing(found["recipe_epochs"], tuple(found["epochs"]), tuple(found["calibrations"]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.timing", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    trained = load_trained(arguments)
    fresh = build_network(arguments.network, len(trained.available.classes))
    epochs = time_training(fresh, arguments.dataset, trained.train, device)
    multiply_in_full()
    calibrations = time_calibration(trained.network, trained.train, trained.holdout)
    seconds = [tuple(round(each, 4) for each in measured) for measured in (epochs, calibrations)]
    timing = Timing(choose_recipe(arguments.dataset).epochs, *seconds)
    facts = {
        "network": arguments.network,
        "dataset": arguments.dataset,
        "recipe_epochs": timing.recipe_epochs,
        "epochs": timing.epochs,
        "calibrations": timing.calibrations,
        **describe_surroundings(device),
    }
    place = arguments.out / f"{arguments.dataset}-{arguments.network}"
    place.mkdir(parents=True, exist_ok=True)
    write_atomically(place / "timing.json", json.dumps(facts, indent=2).encode())
    print(
        f"training {timing.training:.1f} s, calibration {median(timing.calibrations):.2f} s: {100 * timing.share:.2f} %"
    )


if __name__ == "__main__":
    main()
