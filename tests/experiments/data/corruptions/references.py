"""What the tests of corruptions compare with, in float64; references that need chance read the same `Draws`."""

import math

import numpy as np
import torch
from scipy import ndimage, stats
from torch import Tensor

from experiments.data.corruptions.draws import Draws
from experiments.data.datasets import SAMPLE, load_sample

CPU = torch.device("cpu")
SEED = 3
SHADES = ((250, 250, 250), (200, 220, 255), (120, 130, 140), (30, 60, 90), (0, 0, 0))
CIFAR10 = load_sample(SAMPLE)[1].images
FEW = CIFAR10[::20]
LARGE = FEW[:2].repeat_interleave(3, dim=2).repeat_interleave(2, dim=3)[:, :, :70, :]


def draws(name: str, severity: int, count: int) -> Draws:
    return Draws(SEED, f"{name} {severity}", 0, count, CPU)


def unit(images: Tensor) -> np.ndarray:
    return images.numpy().astype(np.float64) / 255


def as_bytes(values: np.ndarray) -> np.ndarray:
    return np.floor(np.clip(values, 0, 1) * 255 + 1e-6)


def assert_pixels(images: Tensor, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(images.numpy(), expected)


def grey(level: int, count: int = 40) -> Tensor:
    return torch.full((count, 3, 32, 32), level, dtype=torch.uint8)


def blurred(images: np.ndarray, sigma: float) -> np.ndarray:
    return ndimage.gaussian_filter(images, (0, 0, sigma, sigma), mode="nearest", truncate=4)


def smeared(image: np.ndarray, degrees: float, radius: float, sigma: float) -> np.ndarray:
    """One-sided motion blur of [c, h, w], tap after tap, on an edge-padded image."""
    reach = 2 * int(radius)
    height, width = image.shape[-2:]
    padded = np.pad(image, ((0, 0), (reach, reach), (reach, reach)), mode="edge")
    taps = stats.norm.pdf(np.arange(reach + 1), scale=sigma)
    total = np.zeros_like(image)
    for i, tap in enumerate(taps / taps.sum()):
        down = reach + math.ceil(i * math.sin(math.radians(degrees)) - 0.5)
        right = reach + math.ceil(i * math.cos(math.radians(degrees)) - 0.5)
        total += tap * padded[:, down : down + height, right : right + width]
    return total


def zoomed(images: np.ndarray, factor: float) -> np.ndarray:
    for axis in (2, 3):
        size = images.shape[axis]
        crop = math.ceil(size / factor)
        start = (size - crop) // 2
        images = images.take(range(start, start + crop), axis)
        images = np.asarray(ndimage.zoom(images, [factor if a == axis else 1 for a in range(4)], order=1))
        trim = (images.shape[axis] - size) // 2
        images = images.take(range(trim, trim + size), axis)
    return images
