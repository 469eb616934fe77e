"""Dropout while a network trains: every step has masks of its own, also where one captured step is replayed."""

import pytest
import torch

from experiments.data import ImageSet
from experiments.networks import WideResNet
from experiments.schedules import Recipe
from experiments.training import train_network

STILL = Recipe(epochs=6, batch=64, rate=0.0, weight_decay=0.0)
"""An epoch is one batch of all images, and nothing is learnt: epochs differ by their masks alone."""
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
]


def losses(device: str, *, dropout: float, seed: int) -> tuple[float, ...]:
    torch.manual_seed(0)
    half = torch.randint(256, (64, 3, 32, 16), dtype=torch.uint8)
    mirrored = torch.cat((half, half.flip(-1)), -1)  # so that left-right flips change nothing
    data = ImageSet(mirrored, torch.arange(64) % 10, tuple("abcdefghij")).to(device)
    network = WideResNet(10, 1, 10, dropout)
    return train_network(STILL, network, data, seed=seed, device=device).losses


@pytest.mark.parametrize("device", DEVICES)
def test_each_step_draws_its_own_masks_and_a_seed_repeats_them(device: str) -> None:
    first = losses(device, dropout=0.5, seed=1)
    gaps = torch.tensor(first)[:, None] - torch.tensor(first)[None, :]
    assert gaps.abs().fill_diagonal_(1).min() > 1e-5, "masks in common would repeat a loss to 1e-6"
    assert losses(device, dropout=0.5, seed=1) == pytest.approx(first, rel=1e-5)
    assert losses(device, dropout=0.5, seed=2) != pytest.approx(first, rel=1e-3)
    assert losses(device, dropout=0.0, seed=1) == pytest.approx(losses(device, dropout=0.0, seed=2), rel=1e-5)
