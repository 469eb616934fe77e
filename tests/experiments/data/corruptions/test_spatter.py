"""Water and mud on the lens: outlines as OpenCV draws them, distances as a knight walks them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from experiments.data.corruptions import SEVERITIES, corrupt
from experiments.data.corruptions.constants import CIFAR
from experiments.data.corruptions.droplets import distance_to, equalised, outlines
from tests.experiments.data.corruptions.references import FEW, SEED, as_bytes, assert_pixels, blurred, draws, unit

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
