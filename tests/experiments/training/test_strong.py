"""Every kind of network of the strong recipe, small: it trains, and every kind of method can be fitted on it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from experiments.evaluation.clock import Clock
from experiments.evaluation.evaluate import predict_methods
from experiments.evaluation.methods import METHODS
from experiments.evaluation.prepared import prepare
from experiments.training.hyperparameters import STRONG
from experiments.training.loop import train_network
from experiments.training.networks import VGG, MobileNet, SmallViT
from tests.experiments.sample import sample_data

SMALL: dict[str, Callable[[], nn.Module]] = {
    "mobilenet": lambda: MobileNet(((1, 8, 1, 2), (2, 12, 2, 2), (2, 16, 1, 2)), 10),
    "convnet_group_norm": lambda: VGG([[8], [16], [32]], 10, norm=partial(nn.GroupNorm, 4)),
    "small_vit": lambda: SmallViT(32, 3, 2, 10),
}
SOME = (
    "temperature",
    "sms",
    "density_kth_ets",
    "head_refitted_robust",
    "last_layer_grid",
    "best_layer",
    "lates_robust_1",
)


@pytest.mark.parametrize("name", SMALL)
def test_a_small_network_of_each_kind_trains_and_calibrates(name: str) -> None:
    data, losses = sample_data(), list[float]()
    torch.manual_seed(0)
    network = SMALL[name]()
    hyper = replace(STRONG, epochs=4, batch=40, warmup_epochs=1)
    train_network(hyper, network, data.train, seed=0, device="cpu", report=lambda progress: losses.append(progress.losses[-1]))
    assert losses[-1] < losses[0]
    kinds = ("none", "robust", "density")
    prepared = prepare(network, data.train, data.holdout, 0, Clock(torch.device("cpu")), kinds)
    fitted = {method: METHODS[method](prepared) for method in SOME}
    predictions = predict_methods(fitted, prepared.read(data.test))
    for method, logits in predictions.items():
        assert logits.shape == (200, 10), method
        assert logits.isfinite().all(), method
