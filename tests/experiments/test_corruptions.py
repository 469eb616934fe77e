"""Every corruption against an independent reference in float64: scipy, Pillow, colorsys or a plain loop.

References for random corruptions read the same `Draws` and do the rest their own way.
"""

import colorsys
import io
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import ndimage, stats
from torch import Tensor

from experiments.corruptions import (
    CIFAR100_C,
    LIKE_JITTER,
    NAMES,
    SEVERITIES,
    STANDARD,
    UNLIKE_JITTER,
    contact_sheet,
    corrupt,
)
from experiments.corruptions.blur import wandering_sources
from experiments.corruptions.constants import CIFAR, IMAGENET
from experiments.corruptions.draws import Draws, Words, philox
from experiments.corruptions.droplets import distance_to, equalised, outlines, water_relief
from experiments.corruptions.weather import plasma

CPU = torch.device("cpu")
SEED = 3
WITHOUT_CHANCE = (
    "defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression", "gaussian_blur", "saturate",
)  # fmt: skip
SHADES = ((250, 250, 250), (200, 220, 255), (120, 130, 140), (30, 60, 90), (0, 0, 0))

with np.load(Path(__file__).parent / "cifar10_600.npz") as _stored:
    CIFAR10 = torch.from_numpy(_stored["test_images"])
FEW = CIFAR10[::20]
LARGE = FEW[:2].repeat_interleave(3, dim=2).repeat_interleave(2, dim=3)[:, :, :70, :]


@pytest.fixture(scope="session")
def frost_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five photographs of one shade each, of different sizes."""
    folder = tmp_path_factory.mktemp("frost")
    for number, shade in enumerate(SHADES, start=1):
        Image.new("RGB", (400 + 10 * number, 300 + 20 * number), shade).save(folder / f"frost{number}.png")
    return folder


@pytest.fixture(autouse=True)
def _frost_at_hand(frost_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATES_FROST", str(frost_folder))


def draws(name: str, severity: int, count: int) -> Draws:
    return Draws(SEED, f"{name} {severity}", 0, count, CPU)


def unit(images: Tensor) -> np.ndarray:
    return images.numpy().astype(np.float64) / 255


def as_bytes(values: np.ndarray) -> np.ndarray:
    return np.floor(np.clip(values, 0, 1) * 255 + 1e-6)


def assert_pixels(images: Tensor, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(images.numpy(), expected)


# ---- what holds for all of them -------------------------------------------------------------------------------------


def test_the_sets_of_names() -> None:
    assert len(NAMES) == len(set(NAMES)) == 19
    assert len(STANDARD) == 15
    assert set(NAMES) - set(STANDARD) == {"gaussian_blur", "saturate", "spatter", "speckle_noise"}
    assert len(CIFAR100_C) == 17
    assert set(NAMES) - set(CIFAR100_C) == {"motion_blur", "snow"}
    assert set(LIKE_JITTER).isdisjoint(UNLIKE_JITTER)
    assert set(LIKE_JITTER) | set(UNLIKE_JITTER) == set(NAMES)
    for table in (CIFAR, IMAGENET):
        assert set(table) == set(NAMES)
        assert all(len(levels) == len(SEVERITIES) for levels in table.values())


@pytest.mark.parametrize("name", NAMES)
def test_an_image_has_one_result_however_the_set_is_cut(name: str) -> None:
    before = FEW.clone()
    for severity in SEVERITIES:
        whole = corrupt(FEW, name, severity, SEED)
        assert whole.dtype == torch.uint8
        assert whole.shape == FEW.shape
        assert not torch.equal(whole, FEW)
        pieces = [corrupt(FEW[a:b], name, severity, SEED, first=a) for a, b in ((0, 1), (1, 7), (7, 10))]
        assert torch.equal(torch.cat(pieces), whole)
    assert torch.equal(FEW, before)


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides_all_chance(name: str) -> None:
    twins = FEW[:1].repeat(4, 1, 1, 1)
    result = corrupt(twins, name, 4, 2**63 + 1)
    assert torch.equal(result, corrupt(twins, name, 4, 2**63 + 1))
    assert torch.equal(result, corrupt(twins, name, 4, 1)) == (name in WITHOUT_CHANCE)
    assert bool((result == result[:1]).all()) == (name in WITHOUT_CHANCE), "each image draws for itself"


@pytest.mark.parametrize("name", NAMES)
def test_other_sizes_and_no_images(name: str) -> None:
    for height, width in ((16, 40), (65, 16)):
        images = torch.zeros(2, 3, height, width, dtype=torch.uint8)
        assert corrupt(images, name, 5, SEED).shape == images.shape
        assert corrupt(images[:0], name, 5, SEED).shape == (0, 3, height, width)


def test_sets_larger_than_one_pass() -> None:
    many = CIFAR10.repeat(4, 1, 1, 1)
    whole = corrupt(many, "shot_noise", 2, SEED)
    assert torch.equal(whole[700:], corrupt(many[700:], "shot_noise", 2, SEED, first=700))


def test_results_are_truncated_not_rounded() -> None:
    half = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    half[..., :16] = 255
    # (1 − ½)·¾ + ½ = .875, of 255: 223.125; (0 − ½)·¾ + ½ = .125, of 255: 31.875
    assert corrupt(half, "contrast", 1, SEED).unique().tolist() == [31, 223]


def test_size_chooses_the_constants() -> None:
    for side, factor in ((64, 0.15), (65, 0.05)):
        half = torch.zeros(1, 3, side, 64, dtype=torch.uint8)
        half[..., :32] = 255
        assert corrupt(half, "contrast", 5, SEED).max() == int((0.5 + 0.5 * factor) * 255)


@pytest.mark.parametrize(
    ("images", "name", "severity", "seed", "error", "message"),
    [
        (FEW, "gausian_noise", 1, 0, ValueError, r'Unknown corruption "gausian_noise"\. .*gaussian_noise'),
        (FEW, "fog", 6, 0, ValueError, "Unknown severity 6"),
        (FEW, "fog", 0, 0, ValueError, "Unknown severity 0"),
        (FEW.float() / 255, "fog", 1, 0, TypeError, "float32; corruptions take uint8"),
        (FEW.numpy(), "fog", 1, 0, TypeError, "ndarray; expected a torch tensor"),
        (FEW.permute(0, 2, 3, 1), "fog", 1, 0, ValueError, r"\[10, 32, 32, 3\]; expected \[n, 3, h, w\]"),
        (FEW[..., :8], "fog", 1, 0, ValueError, "at least 16"),
        (FEW, "fog", 1, -1, ValueError, "Seed -1"),
    ],
)
def test_bad_input_is_refused(
    images: Tensor, name: str, severity: int, seed: int, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        corrupt(images, name, severity, seed)


def test_a_negative_number_of_the_first_image_is_refused() -> None:
    with pytest.raises(ValueError, match="First image number -1"):
        corrupt(FEW, "fog", 1, 0, first=-1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", NAMES)
def test_cuda_draws_what_the_cpu_draws(name: str) -> None:
    for images in (CIFAR10, LARGE):
        for severity in SEVERITIES:
            there = corrupt(images.cuda(), name, severity, SEED)
            assert there.device.type == "cuda"
            apart = (there.cpu().int() - corrupt(images, name, severity, SEED).int()).abs()
            assert (apart > 0).double().mean() < 1e-4


# ---- random numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_its_published_answers(counter: str, key: str, expected: str) -> None:
    words = Words(*(torch.tensor(int(word, 16)) for word in counter.split()))
    low, high = (int(word, 16) for word in key.split())
    assert " ".join(f"{int(word):08x}" for word in philox(words, (low, high))) == expected


def test_draws_are_uniform_normal_and_independent() -> None:
    source = Draws(SEED, "test", 5, 40, CPU)
    uniform = source.uniform("a", 2501)
    assert stats.kstest(uniform.flatten(), "uniform").pvalue > 0.01
    assert stats.kstest(source.normal("a", 2501).flatten(), "norm").pvalue > 0.01
    others = [
        source.uniform("b", 2501),
        uniform.roll(1, 0),
        uniform.roll(1, 1),
        Draws(SEED + 1, "test", 5, 40, CPU).uniform("a", 2501),
        Draws(SEED + 2**32, "test", 5, 40, CPU).uniform("a", 2501),
        Draws(SEED, "tess", 5, 40, CPU).uniform("a", 2501),
    ]
    for other in others:
        assert abs(np.corrcoef(uniform.flatten(), other.flatten())[0, 1]) < 4 / math.sqrt(uniform.numel())


# ---- noise ----------------------------------------------------------------------------------------------------------


def grey(level: int, count: int = 40) -> Tensor:
    return torch.full((count, 3, 32, 32), level, dtype=torch.uint8)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_and_speckle_noise_have_their_deviation(severity: int) -> None:
    for name, level, scale in (("gaussian_noise", 128, 255), ("speckle_noise", 100, 100)):
        (deviation,) = CIFAR[name][severity - 1]
        values = corrupt(grey(level), name, severity, SEED).double() - level
        assert values.std().item() == pytest.approx(scale * deviation, rel=0.02)
        assert values.mean().item() == pytest.approx(-0.5, abs=0.4), "truncation costs half a grey level"
    assert corrupt(grey(0), "speckle_noise", severity, SEED).max() == 0


@pytest.mark.parametrize(("severity", "level"), [(1, 1), (1, 120), (5, 200), (5, 255)])
def test_shot_noise_is_poisson(severity: int, level: int) -> None:
    (photons,) = CIFAR["shot_noise"][severity - 1]
    values = corrupt(grey(level), "shot_noise", severity, SEED).numpy().ravel()
    counts = np.arange(int(photons) + 1)
    chance = stats.poisson.pmf(counts, level * photons / 255)
    chance[-1] = 1 - chance[:-1].sum()  # everything brighter is clipped
    expected = np.bincount((counts / photons * 255 + 1e-6).astype(int), weights=chance, minlength=256) * values.size
    observed = np.bincount(values, minlength=256)
    usual = expected > 20
    assert observed[expected == 0].sum() == 0
    observed, expected = (np.append(x[usual], x[~usual].sum() + 1e-9) for x in (observed, expected))
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 0.001


def test_shot_noise_leaves_black_alone() -> None:
    assert corrupt(grey(0), "shot_noise", 5, SEED).max() == 0


@pytest.mark.parametrize("severity", SEVERITIES)
def test_impulse_noise_hits_its_share(severity: int) -> None:
    (share,) = CIFAR["impulse_noise"][severity - 1]
    values = corrupt(grey(77), "impulse_noise", severity, SEED)
    assert values.unique().tolist() == [0, 77, 255]
    for extreme in (0, 255):
        assert stats.binomtest(int((values == extreme).sum()), values.numel(), share / 2).pvalue > 0.001


# ---- blur -----------------------------------------------------------------------------------------------------------


def blurred(images: np.ndarray, sigma: float) -> np.ndarray:
    return ndimage.gaussian_filter(images, (0, 0, sigma, sigma), mode="nearest", truncate=4)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_blur(severity: int) -> None:
    for images, table in ((FEW, CIFAR), (LARGE, IMAGENET)):
        (sigma,) = table["gaussian_blur"][severity - 1]
        assert_pixels(corrupt(images, "gaussian_blur", severity, SEED), as_bytes(blurred(unit(images), sigma)))


@pytest.mark.parametrize(
    "name", ["gaussian_blur", "defocus_blur", "zoom_blur", "motion_blur", "glass_blur", "pixelate"]
)
@pytest.mark.parametrize("level", [1, 100, 255])
def test_blur_leaves_a_flat_image_alone(name: str, level: int) -> None:
    for severity in SEVERITIES:
        assert torch.equal(corrupt(grey(level, 1), name, severity, SEED), grey(level, 1))


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
            [
                [walked(channel, moves, reach) for channel in image]
                for image, moves in zip(expected, offsets, strict=True)
            ]
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


@pytest.mark.parametrize("severity", SEVERITIES)
def test_motion_blur(severity: int) -> None:
    for images, table in ((FEW, CIFAR), (LARGE, IMAGENET)):
        angles = 90 * draws("motion_blur", severity, len(images)).uniform("angle").numpy() - 45
        expected = [
            smeared(image, angle, *table["motion_blur"][severity - 1])
            for image, angle in zip(unit(images), angles, strict=True)
        ]
        assert_pixels(corrupt(images, "motion_blur", severity, SEED), as_bytes(np.stack(expected)))


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


# ---- weather --------------------------------------------------------------------------------------------------------


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


def test_frost_crops_every_fifth_pixel(tmp_path: Path) -> None:
    rows, columns = np.mgrid[0:300, 0:400]
    chart = np.stack([rows // 5 * 3, columns // 5 * 3, (rows % 5) * 10 + columns % 5], axis=-1).astype(np.uint8)
    for number in range(1, 6):
        Image.fromarray(chart).save(tmp_path / f"frost{number}.png")
    _, amount = CIFAR["frost"][1]
    crops = corrupt(grey(0, 400), "frost", 2, SEED, frost_folder=tmp_path).numpy()
    assert (crops[:, 2] == as_bytes(amount * np.array(22) / 255)).all(), "pixels 5·d + 2 in both directions"
    for lines, size in ((crops[:, 0, :, 5], 300 // 5), (crops[:, 1, 5, :], 400 // 5)):
        possible = as_bytes(amount * 3 * (np.arange(size - 32)[:, None] + np.arange(32)) / 255)
        start = (lines[:, None] == possible).all(axis=2)
        assert (start.sum(axis=1) == 1).all(), "32 neighbouring pixels"
        assert start.any(axis=0).all(), "every corner occurs"


def test_frost_covers_images_larger_than_the_photographs() -> None:
    assert corrupt(torch.zeros(2, 3, 500, 64, dtype=torch.uint8), "frost", 1, SEED).shape == (2, 3, 500, 64)


def test_missing_frost_photographs_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"No frost1\.png or frost1\.jpg in the frost folder"):
        corrupt(FEW, "frost", 1, SEED, frost_folder=tmp_path)
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


# ---- spatter --------------------------------------------------------------------------------------------------------

OPENCV_OUTLINES = """
....#...........
..##.##.........
.##...##........
##..#..##.......
.....#..#.......
....##...#......
....#...#..###..
##.....##.#..#..
.##...##....##..
..#####....##.#.
........#.##..#.
........###...#.
........#.....#.
..........#..#..
.........#####..
.............#..
"""


def test_outlines_are_those_of_opencv() -> None:
    row, column = np.mgrid[0:16, 0:16]
    layer = np.where((row - 5) ** 2 + (column - 4) ** 2 < 18, 180 + (7 * row**2 + 13 * column) % 60, 0)
    layer += np.where((row - 10) ** 2 + 2 * (column - 11) ** 2 < 20, 40 + 25 * ((row + column) % 7), 0)
    layer += np.where(row + column > 27, 8 * (row - 8), 0)
    edges = outlines(torch.from_numpy(layer).double()[None, None])[0, 0]
    assert "\n".join("".join(".#"[int(edge)] for edge in line) for line in edges) == OPENCV_OUTLINES.strip()


def chamfer(down: int, right: int) -> float:
    """Knight's moves as far as they serve, the rest in steps or diagonals."""
    long, short = max(abs(down), abs(right)), min(abs(down), abs(right))
    if 2 * short <= long:
        return 2.1969 * short + (long - 2 * short)
    return 2.1969 * (long - short) + 1.4 * (2 * short - long)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 999), count=st.integers(0, 6))
def test_distances_are_shortest_paths(seed: int, count: int) -> None:
    places = np.random.default_rng(seed).integers(0, 24, size=(count, 2))
    edges = torch.zeros(1, 1, 24, 24, dtype=torch.bool)
    edges[0, 0, places[:, 0], places[:, 1]] = True
    expected = [[min([20.0, *(chamfer(y - a, x - b) for a, b in places)]) for x in range(24)] for y in range(24)]
    np.testing.assert_allclose(distance_to(edges)[0, 0], expected, atol=2e-4)


def test_equalised_levels_follow_their_cumulative_count() -> None:
    layer = torch.tensor([[5, 5, 7, 7], [7, 9, 200, 200]], dtype=torch.float64)[None, None]
    # 6 pixels lie above the darkest level: 3, 4 and 6 of them up to levels 7, 9 and 200
    expected = [[0, 0, 128, 128], [128, 170, 255, 255]]
    assert equalised(layer)[0, 0].tolist() == expected
    flat = torch.full((1, 1, 4, 4), 20.0, dtype=torch.float64)
    assert torch.equal(equalised(flat), flat)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_spatter(severity: int) -> None:
    mean, deviation, sigma, threshold, strength, mud = CIFAR["spatter"][severity - 1]
    liquid = mean + deviation * draws("spatter", severity, len(FEW)).normal("liquid", 1, 32, 32).numpy()
    liquid = blurred(liquid, sigma)
    if mud:
        cover = blurred((liquid > threshold).astype(np.float64), strength)
        cover[cover < 0.8] = 0
        expected = (1 - cover) * unit(FEW) + cover * np.reshape((63, 42, 20), (3, 1, 1)) / 255
    else:
        deep = (np.where(liquid < threshold, 0, liquid) * 255).astype(np.int64).astype(np.uint8)
        shine = relief(deep)
        assert 0 < (shine > 0).mean() < 0.5
        expected = unit(FEW) + strength * shine * np.reshape((175, 238, 238), (3, 1, 1)) / 255
    assert_pixels(corrupt(FEW, "spatter", severity, SEED), as_bytes(expected))


def relief(liquid: np.ndarray) -> np.ndarray:
    """The relief of uint8 `[n, 1, h, w]`, image by image, by scipy and numpy from the distances on."""
    emboss = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    result = np.zeros(liquid.shape)
    for i, layer in enumerate(liquid[:, 0]):
        deep = torch.from_numpy(layer).double()[None, None]
        distance = distance_to(outlines(deep))[0, 0].numpy()
        height = ndimage.uniform_filter(distance, 3, mode="mirror").astype(np.float32).astype(int)
        above = height.size - (height == height.min()).sum()
        ranks = above - (height[..., None, None] < height).sum(axis=(2, 3))
        height = np.round(255 * ranks / above)
        height = np.clip(ndimage.correlate(height, emboss, mode="mirror"), 0, 255)
        height = layer * np.round(ndimage.uniform_filter(height.astype(np.float64), 3, mode="mirror"))
        result[i, 0] = height / height.max()
    return result


def test_a_dry_lens_shows_nothing() -> None:
    assert water_relief(torch.zeros(1, 1, 16, 16, dtype=torch.float64)).max() == 0


# ---- digital --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast(severity: int) -> None:
    (factor,) = CIFAR["contrast"][severity - 1]
    mean = unit(FEW).mean(axis=(2, 3), keepdims=True)
    assert_pixels(corrupt(FEW, "contrast", severity, SEED), as_bytes((unit(FEW) - mean) * factor + mean))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_and_saturation_are_those_of_hsv(severity: int) -> None:
    colours = torch.tensor([0, 1, 60, 128, 200, 254, 255], dtype=torch.uint8)
    images = torch.cartesian_prod(colours, colours, colours)[: 18 * 19].T.reshape(1, 3, 18, 19)
    (amount,) = CIFAR["brightness"][severity - 1]
    factor, shift = CIFAR["saturate"][severity - 1]
    brighter, saturated = np.empty(images.shape), np.empty(images.shape)
    for row, column in np.ndindex(18, 19):
        hue, saturation, value = colorsys.rgb_to_hsv(*unit(images)[0, :, row, column])
        brighter[0, :, row, column] = colorsys.hsv_to_rgb(hue, saturation, min(value + amount, 1))
        saturated[0, :, row, column] = colorsys.hsv_to_rgb(hue, min(saturation * factor + shift, 1), value)
    assert_pixels(corrupt(images, "brightness", severity, SEED), as_bytes(brighter))
    assert_pixels(corrupt(images, "saturate", severity, SEED), as_bytes(saturated))


def as_pictures(images: Tensor) -> list[Image.Image]:
    return [Image.fromarray(image) for image in images.permute(0, 2, 3, 1).contiguous().numpy()]


@pytest.mark.parametrize("severity", SEVERITIES)
def test_jpeg_compression_is_that_of_pillow(severity: int) -> None:
    (quality,) = CIFAR["jpeg_compression"][severity - 1]
    expected = []
    for picture in as_pictures(FEW):
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=int(quality))
        expected.append(np.asarray(Image.open(file)).transpose(2, 0, 1))
    assert_pixels(corrupt(FEW, "jpeg_compression", severity, SEED), np.stack(expected))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_pixelate_is_that_of_pillow(severity: int) -> None:
    for images, table in ((FEW, CIFAR), (FEW[:, :, :19, :29], CIFAR), (LARGE, IMAGENET)):
        (share,) = table["pixelate"][severity - 1]
        height, width = images.shape[-2:]
        small = [
            picture.resize((int(width * share), int(height * share)), Image.Resampling.BOX)
            for picture in as_pictures(images)
        ]
        expected = [np.asarray(picture.resize((width, height), Image.Resampling.BOX)) for picture in small]
        assert_pixels(corrupt(images, "pixelate", severity, SEED), np.stack(expected).transpose(0, 3, 1, 2))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_elastic_transform(severity: int) -> None:
    for images, table in ((FEW, CIFAR), (LARGE, IMAGENET)):
        shift, smoothness, affine = table["elastic_transform"][severity - 1]
        height, width = images.shape[-2:]
        source = draws("elastic_transform", severity, len(images))
        moves = affine * (2 * source.uniform("affine", 3, 2).numpy() - 1)
        noise = shift * (2 * source.uniform("displacement", 2, height, width).numpy() - 1)
        reach, centre = min(height, width) // 3, np.array([width // 2, height // 2])
        points = centre + reach * np.array([[1, 1], [1, -1], [-1, -1]])
        grid = np.mgrid[0:height, 0:width].astype(np.float64)
        expected = np.empty(images.shape)
        for i, image in enumerate(unit(images)):
            columns = np.linalg.inv(np.column_stack([points + moves[i], np.ones(3)])) @ points  # [x y 1] @ columns
            linear, offset = columns[:2].T[::-1, ::-1], columns[2][::-1]  # scipy counts rows first
            dx, dy = (ndimage.gaussian_filter(d, smoothness, mode="reflect", truncate=3) for d in noise[i])
            for c, channel in enumerate(image):
                turned = ndimage.affine_transform(channel, linear, offset, order=1, mode="mirror")
                expected[i, c] = ndimage.map_coordinates(turned, grid + np.stack([dy, dx]), order=1, mode="reflect")
        assert_pixels(corrupt(images, "elastic_transform", severity, SEED), as_bytes(expected))


# ---- for the eye ----------------------------------------------------------------------------------------------------


def test_the_contact_sheet_shows_every_cell(tmp_path: Path, frost_folder: Path) -> None:
    contact_sheet(FEW[:2], tmp_path / "sheet.png", SEED, frost_folder=frost_folder)
    with Image.open(tmp_path / "sheet.png") as picture:
        sheet = np.asarray(picture.convert("RGB"))
    strips = sheet[::2, ::2]
    for shown in (FEW[1], corrupt(FEW[:2], "saturate", 5, SEED)[1]):
        wanted = shown.permute(1, 2, 0).numpy()
        windows = np.lib.stride_tricks.sliding_window_view(strips, wanted.shape)[:, :, 0]
        corners = (windows[:, :, 0, 0] == wanted[0, 0]).all(axis=-1)
        assert any((windows[y, x] == wanted).all() for y, x in np.argwhere(corners))
