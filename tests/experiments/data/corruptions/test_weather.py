"""Fog, frost and snow against scipy or a plain loop."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from experiments.data.corruptions import SEVERITIES, corrupt
from experiments.data.corruptions.constants import CIFAR
from experiments.data.corruptions.draws import Draws
from experiments.data.corruptions.weather import plasma
from tests.experiments.data.corruptions.references import (
    CPU,
    FEW,
    SEED,
    SHADES,
    as_bytes,
    assert_pixels,
    draws,
    grey,
    smeared,
    unit,
    zoomed,
)


def fractal(source: Draws, side: int, decay: float) -> np.ndarray:
    """Diamond–square point by point, for the first image of `source`."""
    height, step, roughness = np.zeros((side, side)), side, 1.0
    while step > 1:
        half, cells = step // 2, side // step
        chance = {kind: source.uniform(f"{kind} {step}", cells, cells)[0] for kind in ("centres", "across", "down")}
        for kind, down, right in (("centres", half, half), ("across", 0, half), ("down", half, 0)):
            for i in range(cells):
                for j in range(cells):
                    y, x = i * step + down, j * step + right
                    diagonal, straight = ((-half, -half), (-half, half), (half, -half), (half, half)), (
                        (-half, 0), (half, 0), (0, -half), (0, half),
                    )  # fmt: skip
                    around = diagonal if kind == "centres" else straight
                    mean = sum(height[(y + dy) % side, (x + dx) % side] for dy, dx in around) / 4
                    height[y, x] = mean + roughness * (2 * chance[kind][i, j].item() - 1)
        step, roughness = half, roughness / decay**2
    return (height - height.min()) / np.ptp(height)


def test_plasma_is_the_diamond_square_fractal() -> None:
    source = Draws(SEED, "fog", 8, 2, CPU)
    np.testing.assert_allclose(plasma(source, 16, 1.75)[0], fractal(source, 16, 1.75), atol=1e-12)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_fog(severity: int) -> None:
    images = FEW[:, :, :, :20]
    amount, decay = CIFAR["fog"][severity - 1]
    mist = plasma(draws("fog", severity, len(images)), 32, decay).numpy()[:, None, :, :20]
    brightest = unit(images).max(axis=(1, 2, 3), keepdims=True)
    expected = (unit(images) + amount * mist) * brightest / (brightest + amount)
    assert_pixels(corrupt(images, "fog", severity, SEED), as_bytes(expected))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_frost_adds_each_photograph_equally_often(severity: int) -> None:
    keep, amount = CIFAR["frost"][severity - 1]
    values = corrupt(grey(40, 500), "frost", severity, SEED)
    expected = as_bytes(keep * 40 / 255 + amount * np.array(SHADES) / 255)
    seen, times = np.unique(values[:, :, 0, 0].numpy(), axis=0, return_counts=True)
    np.testing.assert_array_equal(seen, np.unique(expected, axis=0))
    assert stats.chisquare(times).pvalue > 0.001
    assert bool((values == values[:, :, :1, :1]).all())


def test_frost_crops_every_fifth_pixel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATES_FROST", str(tmp_path))
    rows, columns = np.mgrid[0:300, 0:400]
    chart = np.stack([rows // 5 * 3, columns // 5 * 3, (rows % 5) * 10 + columns % 5], axis=-1).astype(np.uint8)
    for number in range(1, 6):
        Image.fromarray(chart).save(tmp_path / f"frost{number}.png")
    _, amount = CIFAR["frost"][1]
    crops = corrupt(grey(0, 400), "frost", 2, SEED).numpy()
    assert (crops[:, 2] == as_bytes(amount * np.array(22) / 255)).all(), "pixels 5·d + 2 in both directions"
    for lines, size in ((crops[:, 0, :, 5], 300 // 5), (crops[:, 1, 5, :], 400 // 5)):
        possible = as_bytes(amount * 3 * (np.arange(size - 32)[:, None] + np.arange(32)) / 255)
        start = (lines[:, None] == possible).all(axis=2)
        assert (start.sum(axis=1) == 1).all(), "32 neighbouring pixels"
        assert start.any(axis=0).all(), "every corner occurs"


def test_missing_frost_photographs_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATES_FROST", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"No frost1\.png or frost1\.jpg in the frost folder"):
        corrupt(FEW, "frost", 1, SEED)
    monkeypatch.delenv("LATES_FROST")
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(FileNotFoundError, match="imagecorruptions-imaug"):
        corrupt(FEW, "frost", 1, SEED)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_snow(severity: int) -> None:
    mean, deviation, zoom, threshold, radius, sigma, keep = CIFAR["snow"][severity - 1]
    source = draws("snow", severity, len(FEW))
    flakes = zoomed(mean + deviation * source.normal("flakes", 1, 32, 32).numpy(), zoom)
    flakes = as_bytes(np.where(flakes < threshold, 0, flakes)) / 255
    angles = -135 + 90 * source.uniform("angle").numpy()
    flakes = [smeared(layer, angle, radius, sigma) for layer, angle in zip(flakes, angles, strict=True)]
    flakes = as_bytes(np.stack(flakes)) / 255
    images = unit(FEW)
    light = (0.299 * images[:, 0] + 0.587 * images[:, 1] + 0.114 * images[:, 2])[:, None]
    expected = keep * images + (1 - keep) * np.maximum(images, 1.5 * light + 0.5)
    assert_pixels(corrupt(FEW, "snow", severity, SEED), as_bytes(expected + flakes + np.rot90(flakes, 2, (2, 3))))
