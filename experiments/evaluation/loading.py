"""A trained CIFAR network with its data, for the commands that examine one."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from experiments.data.datasets import CIFAR, ImageSet, load_cifar
from experiments.data.splits import divide, first_of_each_class
from experiments.training.checkpoints import RunFolder
from experiments.training.networks import NETWORKS, build_network, place
from experiments.training.released import PROBE_IMAGES, divide_test, load_released


@dataclass(frozen=True, eq=False)
class LoadedNetwork:
    """A network, in eval mode, with its images on its device.

    train    what it was trained on, or a part of that
    split    the digest of how images were divided
    weights  the digest of the file, of a released network
    """

    network: nn.Module
    train: ImageSet
    holdout: ImageSet
    split: str
    weights: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--network", required=True, choices=NETWORKS)
    parser.add_argument("--dataset", required=True, choices=CIFAR)
    parser.add_argument("--data", required=True, type=Path)
    trained = parser.add_mutually_exclusive_group(required=True)
    trained.add_argument("--run", type=Path, help="a network's folder below `runs`, such as runs/cifar100-vgg16-s0")
    trained.add_argument("--weights", type=Path, help="or a released state dict of a network that saw all training images")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")


def load_network(arguments: argparse.Namespace, seed: int = 0) -> LoadedNetwork:
    available, test = (images.to(arguments.device) for images in load_cifar(CIFAR[arguments.dataset], arguments.data))
    network = build_network(arguments.network, len(available.classes))
    if arguments.weights is None:
        if RunFolder(arguments.run).load_finished(network) is None:
            raise SystemExit(f"{arguments.run} holds no trained network; `python -m experiments run` trains one.")
        weights, (train, holdout, split) = None, divide(available, 0.9, 0.1, seed)
    else:
        weights, (holdout, _, split) = load_released(network, arguments.weights), divide_test(test)
        train = available.select(first_of_each_class(available.labels.cpu(), PROBE_IMAGES[arguments.dataset]))
    return LoadedNetwork(place(network, arguments.device).eval(), train, holdout, split, weights)
