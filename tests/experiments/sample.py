"""A small real problem, shared by the tests of methods, evaluation and runner: 600 CIFAR-10 images, a tiny network."""

from dataclasses import replace
from functools import cache

import torch
from torch import nn

from experiments.data.datasets import SAMPLE, ImageSet, as_inputs, load_sample
from experiments.data.splits import split_indices
from experiments.evaluation.evaluate import CellData
from experiments.recipes import RECIPES, Recipe
from experiments.training.hyperparameters import Hyperparameters
from experiments.training.loop import train_network
from experiments.training.networks import build_network

SHORT = Hyperparameters(epochs=4, batch=40, rate=0.05, weight_decay=5e-4)
FEW_METHODS = ("network", "temperature", "lates_none_1", "lates_paper")
CORRUPTIONS, SEVERITIES = ("contrast", "gaussian_noise"), (5,)


@cache
def sample_data() -> CellData:
    available, test = load_sample(SAMPLE)
    split = split_indices(available.labels, train_fraction=0.7, holdout_fraction=0.3, seed=0)
    return CellData(available.select(split.train), available.select(split.holdout), test, split.digest)


def train_on_sample(network: nn.Module) -> nn.Module:
    train_network(SHORT, network, sample_data().train, seed=0, device="cpu")
    return network


@cache
def tiny_network(name: str) -> nn.Module:
    """Trained for a few epochs, in evaluation."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        network = build_network(name, 10)
    return train_on_sample(network)


def accuracy_of(network: nn.Module, images: ImageSet) -> float:
    with torch.no_grad():
        return float((network(as_inputs(images.images)).argmax(1) == images.labels).float().mean())


def tiny_recipe(seeds: tuple[int, ...] = (0,)) -> Recipe:
    """The smallest grid that goes through every stage, with a part of the methods: what a method does is tested elsewhere."""
    training = replace(SHORT, epochs=2)
    grid = {"networks": ("tiny_vgg",), "seeds": seeds, "training": training, "corruptions": ("contrast",)}
    return replace(RECIPES["smoke"], methods=FEW_METHODS, **grid)
