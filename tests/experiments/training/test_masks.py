"""Dropout while a network trains: every step has masks of its own, also where one captured step is replayed."""

import pytest
import torch

from experiments.data.datasets import ImageSet
from experiments.training.hyperparameters import Hyperparameters
from experiments.training.loop import train_network
from experiments.training.networks import WideResNet

IMAGES = 4
SAME = 1e-5
"""So far apart may be two losses of one thing on a GPU."""
STILL = Hyperparameters(epochs=6, batch=IMAGES, rate=0.0, weight_decay=0.0)
"""An epoch is one batch of all images, and nothing is learnt."""
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
]


def losses(device: str, *, dropout: float, seed: int) -> tuple[float, ...]:
    """Of each epoch. The images are one, symmetric, and of one class: neither their order nor their flips make a difference."""
    torch.manual_seed(0)
    half = torch.randint(256, (1, 3, 32, 16), dtype=torch.uint8)
    image = torch.cat((half, half.flip(-1)), -1)
    data = ImageSet(image.expand(IMAGES, -1, -1, -1).clone(), torch.zeros(IMAGES, dtype=torch.long), tuple("abcdefghij"))
    return train_network(STILL, WideResNet(10, 1, 10, dropout), data.to(device), seed=seed, device=device).losses


@pytest.mark.parametrize("device", DEVICES)
def test_each_step_draws_its_own_masks_and_a_seed_repeats_them(device: str) -> None:
    still = losses(device, dropout=0.0, seed=1)
    assert still == pytest.approx([still[0]] * len(still), abs=SAME), "nothing but masks tells these steps apart"
    first = losses(device, dropout=0.5, seed=1)
    between = torch.tensor(first).sort().values.diff()
    assert between.min() > 2 * SAME
    assert losses(device, dropout=0.5, seed=1) == pytest.approx(first, abs=SAME)
    assert losses(device, dropout=0.5, seed=2) != pytest.approx(first, abs=100 * SAME)
