"""A trained CIFAR network with its data, for the commands that examine one."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from experiments.data.datasets import CIFAR, ImageSet, load_cifar
from experiments.data.splits import Split, split_indices
from experiments.training.checkpoints import check_shapes, load_tensors
from experiments.training.networks import NETWORKS, build_network


@dataclass(frozen=True, eq=False)
class LoadedNetwork:
    """A network, in eval mode, with the training images on its device and their split."""

    network: nn.Module
    available: ImageSet
    split: Split

    @property
    def train(self) -> ImageSet:
        return self.available.select(self.split.train)

    @property
    def holdout(self) -> ImageSet:
        return self.available.select(self.split.holdout)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--network", required=True, choices=NETWORKS)
    parser.add_argument("--dataset", required=True, choices=CIFAR)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--run", required=True, type=Path, help="the folder that experiments.train wrote")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")


def load_network(arguments: argparse.Namespace, seed: int = 0) -> LoadedNetwork:
    path = arguments.run / "network.safetensors"
    if (stored := load_tensors(path)) is None:
        raise SystemExit(f"{arguments.run} holds no trained network; run python -m experiments.train first.")
    available, _ = load_cifar(CIFAR[arguments.dataset], arguments.data)
    split = split_indices(available.labels, train_fraction=0.9, holdout_fraction=0.1, seed=seed)
    network = build_network(arguments.network, len(available.classes))
    check_shapes(stored[0], network.state_dict(), path)
    network.load_state_dict(stored[0])
    return LoadedNetwork(network.to(arguments.device).eval(), available.to(arguments.device), split)
