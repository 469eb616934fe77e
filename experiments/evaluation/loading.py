"""A trained CIFAR network with its data, for the commands that examine one."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from experiments.data.datasets import CIFAR, ImageSet, load_cifar
from experiments.data.splits import first_of_each_class, split_indices
from experiments.training.checkpoints import RunFolder, load_weights
from experiments.training.networks import NETWORKS, build_network
from experiments.training.released import HALVES, PROBE_IMAGES, load_released


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
    trained.add_argument(
        "--weights", type=Path, help="or a released state dict of a network that saw all training images"
    )
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")


def load_network(arguments: argparse.Namespace, seed: int = 0) -> LoadedNetwork:
    available, test = (images.to(arguments.device) for images in load_cifar(CIFAR[arguments.dataset], arguments.data))
    network = build_network(arguments.network, len(available.classes))
    if arguments.weights is None:
        if not load_weights(network, RunFolder(arguments.run, {}).finished):
            raise SystemExit(f"{arguments.run} holds no trained network; `python -m experiments run` trains one.")
        split = split_indices(available.labels, train_fraction=0.9, holdout_fraction=0.1, seed=seed)
        train, holdout, weights = available.select(split.train), available.select(split.holdout), None
    else:
        weights = load_released(network, arguments.weights)
        split = split_indices(test.labels, **HALVES)
        train = available.select(first_of_each_class(available.labels.cpu(), PROBE_IMAGES[arguments.dataset]))
        holdout = test.select(split.holdout)
    network = network.to(arguments.device, memory_format=torch.channels_last).eval()  # pyright: ignore
    return LoadedNetwork(network, train, holdout, split.digest, weights)
