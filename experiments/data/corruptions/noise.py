"""Noise: every value of every pixel draws for itself. Images are float64 `[n, 3, h, w]` in [0, 1]."""

import math

import torch
from torch import Tensor

from experiments.data.corruptions.draws import Draws


def gaussian_noise(images: Tensor, draws: Draws, deviation: float) -> Tensor:
    """x + deviation · z, z standard normal."""
    return images + deviation * draws.normal("noise", *images.shape[1:])


def speckle_noise(images: Tensor, draws: Draws, deviation: float) -> Tensor:
    """x + x · deviation · z: noise in proportion to the light."""
    return images + images * deviation * draws.normal("noise", *images.shape[1:])


def shot_noise(images: Tensor, draws: Draws, photons: float) -> Tensor:
    """Poisson(x · photons) / photons, by inversion.

    Eight bits allow only 256 rates, so all distribution functions P(N <= j) = Q(j + 1, rate) fit in one table. Adding k
    to the row of grey level k makes the flattened table one rising sequence, and one search draws every pixel's count.
    """
    longest = math.ceil(photons + 12 * math.sqrt(photons) + 30)
    levels = torch.arange(256, dtype=torch.float64, device=images.device)
    counts = torch.arange(longest, dtype=torch.float64, device=images.device)
    below = torch.special.gammaincc(counts + 1, (levels * photons / 255)[:, None])
    table = (levels[:, None] + below).flatten()
    level = (images * 255).round()
    place = torch.searchsorted(table, level + draws.uniform("noise", *images.shape[1:]))
    return (place - level * longest) / photons


def impulse_noise(images: Tensor, draws: Draws, share: float) -> Tensor:
    """A `share` of the values becomes 0 or 1, half each."""
    chance = draws.uniform("noise", *images.shape[1:])
    salted = torch.where(chance > 1 - share / 2, 1.0, images)
    return torch.where(chance < share / 2, 0.0, salted)
