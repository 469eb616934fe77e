"""Every blur against scipy or a plain loop."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from experiments.data.corruptions import SEVERITIES, corrupt
from experiments.data.corruptions.blur import wandering_sources
from experiments.data.corruptions.constants import CIFAR, IMAGENET
from tests.experiments.data.corruptions.references import (
    FEW,
    LARGE,
    SEED,
    as_bytes,
    assert_pixels,
    blurred,
    draws,
    smeared,
    unit,
    zoomed,
)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_blur(severity: int) -> None:
    for images, table in ((FEW, CIFAR), (LARGE, IMAGENET)):
        (sigma,) = table["gaussian_blur"][severity - 1]
        assert_pixels(corrupt(images, "gaussian_blur", severity, SEED), as_bytes(blurred(unit(images), sigma)))


def walked(image: np.ndarray, offsets: np.ndarray, reach: int) -> np.ndarray:
    """The published walk, pixel after pixel; `image` is [h, w], `offsets` [2, h, w]."""
    image = image.copy()
    height, width = image.shape
    for row in range(height - reach, reach, -1):
        for column in range(width - reach, reach, -1):
            image[row, column] = image[row + offsets[0, row, column], column + offsets[1, row, column]]
    return image


@settings(max_examples=40, deadline=None)
@given(
    height=st.integers(6, 14),
    width=st.integers(6, 14),
    reach=st.integers(1, 4),
    always_ahead=st.booleans(),
    seed=st.integers(0, 999),
)
def test_the_glass_walk_overwrites_in_order(height: int, width: int, reach: int, always_ahead: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    offsets = random.integers(-reach, reach, size=(3, 2, height, width))
    if always_ahead:  # long chains: every pixel takes what its right or lower neighbour has just become
        offsets = np.maximum(offsets, 0)
    original = np.arange(height * width).reshape(height, width)
    sources = wandering_sources(torch.from_numpy(offsets), reach).numpy()
    for mine, given_offsets in zip(sources, offsets, strict=True):
        np.testing.assert_array_equal(mine.reshape(height, width), walked(original, given_offsets, reach))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_glass_blur(severity: int) -> None:
    images = FEW[:3]
    sigma, reach, rounds = CIFAR["glass_blur"][severity - 1]
    reach, rounds = int(reach), int(rounds)
    source = draws("glass_blur", severity, len(images))
    expected = as_bytes(blurred(unit(images), sigma))
    for turn in range(rounds):
        chance = source.uniform(f"offsets {turn}", 2, 32, 32).numpy()
        offsets = np.floor(chance * 2 * reach).astype(int) - reach
        expected = np.stack(
            [[walked(channel, moves, reach) for channel in image] for image, moves in zip(expected, offsets, strict=True)]
        )
    assert_pixels(corrupt(images, "glass_blur", severity, SEED), as_bytes(blurred(expected / 255, sigma)))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_defocus_blur(severity: int) -> None:
    for images, table in ((FEW, CIFAR), (LARGE, IMAGENET)):
        radius, alias = table["defocus_blur"][severity - 1]
        reach, taps_reach = (8, 1) if radius <= 8 else (int(radius), 2)
        rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1]
        disk = (np.hypot(rows, columns) <= radius).astype(np.float64)
        disk = ndimage.gaussian_filter(disk / disk.sum(), alias, mode="mirror", radius=taps_reach)
        expected = ndimage.correlate(unit(images), disk[None, None], mode="mirror")
        assert_pixels(corrupt(images, "defocus_blur", severity, SEED), as_bytes(expected))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_motion_blur(severity: int) -> None:
    for images, table in ((FEW, CIFAR), (LARGE, IMAGENET)):
        angles = 90 * draws("motion_blur", severity, len(images)).uniform("angle").numpy() - 45
        expected = [
            smeared(image, angle, *table["motion_blur"][severity - 1])
            for image, angle in zip(unit(images), angles, strict=True)
        ]
        assert_pixels(corrupt(images, "motion_blur", severity, SEED), as_bytes(np.stack(expected)))


@pytest.mark.parametrize(
    ("severity", "small", "large"),
    [
        (1, np.arange(1, 1.06, 0.01), np.arange(1, 1.11, 0.01)),
        (2, np.arange(1, 1.11, 0.01), np.arange(1, 1.16, 0.01)),
        (3, np.arange(1, 1.16, 0.01), np.arange(1, 1.21, 0.02)),
        (4, np.arange(1, 1.21, 0.01), np.arange(1, 1.26, 0.02)),
        (5, np.arange(1, 1.26, 0.01), np.arange(1, 1.31, 0.03)),
    ],
)
def test_zoom_blur(severity: int, small: np.ndarray, large: np.ndarray) -> None:
    for images, factors in ((FEW, small), (LARGE, large)):
        expected = (unit(images) + sum(zoomed(unit(images), factor) for factor in factors)) / (len(factors) + 1)
        assert_pixels(corrupt(images, "zoom_blur", severity, SEED), as_bytes(expected))
