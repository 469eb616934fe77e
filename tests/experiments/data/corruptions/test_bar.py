"""CIFAR-10-C-bar: splines as scipy draws them, geometry in closed form, and what must stay untouched."""

import numpy as np
import pytest
import torch
from scipy import ndimage, stats

from experiments.data.corruptions import BAR_NAMES, SEVERITIES, corrupt
from experiments.data.corruptions.constants import BAR
from tests.experiments.data.corruptions.references import (
    CIFAR10,
    FEW,
    SEED,
    as_bytes,
    assert_pixels,
    draws,
    grey,
    unit,
)


@pytest.mark.parametrize("name", BAR_NAMES)
def test_severity_grows_the_distance_and_squares_of_other_sides_are_taken(name: str) -> None:
    images = [corrupt(CIFAR10, name, severity, SEED) for severity in SEVERITIES]
    distances = [np.square(unit(each) - unit(CIFAR10)).mean() for each in images]
    assert distances == sorted(distances)
    for others in (FEW[:2, :, :21, :21], FEW[:2].repeat(1, 1, 2, 2), FEW[:0]):
        assert corrupt(others, name, 1, SEED).shape == others.shape


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("checkerboard_cutout", 128),
        ("lines", 128),
        ("sparkles", 255),
        ("inverse_sparkles", 255),
        ("pinch_and_twirl", 77),
    ],
)
def test_images_of_one_level_stay(name: str, level: int) -> None:
    for severity in SEVERITIES:
        assert_pixels(corrupt(grey(level, 4), name, severity, SEED), grey(level, 4).numpy())


@pytest.mark.parametrize("severity", SEVERITIES)
def test_noise_has_its_published_share_and_deviation(severity: int) -> None:
    (dial,) = BAR["blue_noise_sample"][severity - 1]
    values = corrupt(grey(77), "blue_noise_sample", severity, SEED)
    assert values.unique().tolist() == [0, 77]
    assert (values == 0).double().mean() == pytest.approx(stats.norm.cdf(0.3 * dial - 2.5), rel=0.08)
    (dial,) = BAR["brownish_noise"][severity - 1]
    deviation = corrupt(grey(128), "brownish_noise", severity, SEED).double().std(dim=(2, 3), correction=0)
    assert deviation.max() == pytest.approx(6.4 * dial, rel=0.02), "less where it was clipped"


@pytest.mark.parametrize("severity", SEVERITIES)
def test_circular_motion_blur_is_that_of_scipy(severity: int) -> None:
    (dial,) = BAR["circular_motion_blur"][severity - 1]
    images, total = unit(FEW), np.zeros(FEW.shape)
    parts = np.linspace(-1, 1, 21)
    weights = np.exp(-2 * parts**2)
    for part, weight in zip(parts, weights, strict=True):
        total += weight * ndimage.rotate(images, 1.5 * dial * part, axes=(2, 3), reshape=False)
    assert_pixels(corrupt(FEW, "circular_motion_blur", severity, SEED), as_bytes(total / weights.sum()))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_transverse_chromatic_aberration_is_that_of_scipy(severity: int) -> None:
    (dial,) = BAR["transverse_chromatic_aberration"][severity - 1]
    order = draws("transverse_chromatic_aberration", severity, len(FEW)).uniform("order", 3).argsort(dim=1)
    expected = np.empty(FEW.shape)
    for place in np.ndindex(FEW.shape[:2]):
        enlarged = np.asarray(ndimage.zoom(unit(FEW)[place], 1 + dial / 40 * int(order[place]), prefilter=False))
        edge = (len(enlarged) - 32) // 2
        expected[place] = as_bytes(enlarged + 0.5 / 255)[edge : edge + 32, edge : edge + 32]
    assert_pixels(corrupt(FEW, "transverse_chromatic_aberration", severity, SEED), expected)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_ripple_takes_bilinear_samples_with_black_beyond(severity: int) -> None:
    (dial,) = BAR["ripple"][severity - 1]
    source = draws("ripple", severity, len(FEW))
    waves = 32 * (0.1 + 0.2 * source.uniform("wavelengths", 2, 1).numpy())
    phases = 2 * np.pi * source.uniform("phases", 2, 1).numpy()
    moved = np.arange(32) + 0.08 * dial * np.sin(2 * np.pi * np.arange(32) / waves + phases)
    expected = np.empty(FEW.shape)
    for image, channel in np.ndindex(FEW.shape[:2]):
        where = np.stack(np.meshgrid(*moved[image], indexing="ij"))
        padded = np.pad(unit(FEW)[image, channel], 4)
        expected[image, channel] = ndimage.map_coordinates(padded, where + 4, order=1)
    assert_pixels(corrupt(FEW, "ripple", severity, SEED), as_bytes(expected))


def test_pinch_and_twirl_leaves_centres_and_rims_and_turns_each_field_to_a_side() -> None:
    warped = corrupt(CIFAR10, "pinch_and_twirl", 5, SEED)
    rows, columns = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    distance = torch.hypot(rows.clamp(max=29) % 10 - 5.0, columns.clamp(max=29) % 10 - 5.0)
    still = (distance == 0) | (distance >= 5) | (rows >= 30) | (columns >= 30)
    assert torch.equal(warped[..., still], CIFAR10[..., still])
    assert (warped != CIFAR10)[..., ~still].double().mean() > 0.5
