"""The changes themselves: images stay images, table rows keep their columns, all as strong as stated."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lates.network.augmentations import (
    BRIGHTNESS,
    CONTRAST,
    LARGEST_SHIFT,
    ROW_NOISE,
    SWAP_SHARE,
    TINT,
    ChannelScale,
    autocontrast,
    equalize,
    flip,
    jitter,
    measure_channels,
    posterize,
    robust,
    shift,
    solarize,
    warp,
)
from tests.network.test_views import draw_images, draw_rows, seeded, view_once


def only_shifted(changed: Tensor, images: Tensor) -> Tensor:
    """Which of the changed images [n] are a shift of theirs, edges repeated."""
    height, width = images.shape[2:]
    tall, wide = int(height * LARGEST_SHIFT), int(width * LARGEST_SHIFT)
    padded = F.pad(images, (wide, wide, tall, tall), mode="replicate")
    crops = padded.unfold(2, height, 1).unfold(3, width, 1)  # [n, c, rows, columns, h, w]
    return (crops == changed[:, :, None, None]).all(-1).all(-1).all(1).flatten(1).any(1)


def test_a_flip_mirrors_whole_images_or_leaves_them() -> None:
    images = draw_images(n=400)
    changed = flip(images, seeded())
    same = (changed == images).flatten(1).all(1)
    mirrored = (changed == images.flip(-1)).flatten(1).all(1)
    assert bool((same ^ mirrored).all())
    assert 160 < int(mirrored.sum()) < 240


@pytest.mark.parametrize("size", [(16, 8), (9, 24), (4, 4)])
def test_a_shift_is_a_crop_of_the_image_with_its_edges_repeated(size: tuple[int, int]) -> None:
    images = draw_images(n=60, side=24)[:, :, : size[0], : size[1]]
    assert bool(only_shifted(shift(images, seeded()), images).all())


def test_shifts_reach_every_offset() -> None:
    ramp = torch.arange(16.0).expand(500, 1, 16, 16)
    offsets = shift(ramp, seeded())[:, 0, 8, 8] - 8
    assert sorted(set(offsets.tolist())) == [-2, -1, 0, 1, 2]


def test_a_robust_view_only_shifts_every_second_image() -> None:
    images = draw_images(n=400, side=8)
    changed = robust(images, measure_channels(images), seeded())
    assert 160 < int(only_shifted(changed, images).sum()) < 240


def test_jitter_is_as_strong_as_stated_in_units_of_the_deviation() -> None:
    images = torch.zeros(4000, 2, 4, 4, dtype=torch.float64)
    deviation = torch.tensor([2.0, 10.0], dtype=torch.float64)[:, None, None]
    infinite = torch.full_like(deviation, torch.inf)
    changed = jitter(images, ChannelScale(deviation, -infinite, infinite), seeded())
    means = (changed / deviation).mean((2, 3))
    assert torch.allclose(means.std(0), torch.full((2,), (BRIGHTNESS**2 + TINT**2) ** 0.5).double(), rtol=0.05)
    assert float(torch.corrcoef(means.T)[0, 1]) == pytest.approx(BRIGHTNESS**2 / (BRIGHTNESS**2 + TINT**2), abs=0.05)


def test_contrast_stretches_each_channel_around_its_own_mean_by_a_positive_factor() -> None:
    images = draw_images(n=200) + torch.arange(200.0)[:, None, None, None]
    still, wide = torch.zeros(3, 1, 1), torch.full((3, 1, 1), torch.inf)  # of no deviation, so that nothing is added
    changed = jitter(images, ChannelScale(still, -wide, wide), seeded())
    centre = images.mean((2, 3), keepdim=True)
    torch.testing.assert_close(changed.mean((2, 3), keepdim=True), centre)
    factors = (changed - centre) / (images - centre)
    torch.testing.assert_close(factors, factors[:, :1, :1, :1].expand_as(factors), atol=1e-6, rtol=1e-6)
    logs = factors[:, 0, 0, 0].log()
    assert float(logs.mean()) == pytest.approx(0, abs=4 * CONTRAST / 200**0.5)
    assert float(logs.std()) == pytest.approx(CONTRAST, rel=0.2)


@pytest.mark.parametrize("bits", [3, 6])
def test_operations_on_values_match_those_of_8_bit_images(bits: int) -> None:
    image_ops, image = pytest.importorskip("PIL.ImageOps"), pytest.importorskip("PIL.Image")
    pixels = (draw_images(n=1, channels=1, side=256)[0, 0] ** 2 * 600).clamp(20, 230).to(torch.uint8)
    ours, theirs = pixels[None, None] / 255, image.fromarray(pixels.numpy())
    pairs = [
        (posterize(ours, torch.tensor(bits)), image_ops.posterize(theirs, bits), 0),
        (solarize(ours, torch.tensor(100 / 255)), image_ops.solarize(theirs, 100), 0),
        (autocontrast(ours), image_ops.autocontrast(theirs), 1),
        (equalize(ours), image_ops.equalize(theirs), 2),
    ]
    for changed, expected, levels in pairs:
        difference = changed[0, 0] * 255 - torch.from_numpy(np.array(expected))
        assert float(difference.abs().max()) <= levels + 1e-3


def test_warps_rotate_translate_and_shear() -> None:
    images, none = draw_images(n=2), torch.zeros(2).double()
    quarter = warp(images, none + torch.pi / 2, (none, none), (none, none))
    torch.testing.assert_close(quarter, images.rot90(1, (2, 3)))
    moved = warp(images, none, (none, none), (none + 2 / 16, none))
    torch.testing.assert_close(moved[..., :-2], images[..., 2:])
    sheared = warp(images, none, (none + 1, none), (none, none))  # row y moves by y, counted from the centre
    torch.testing.assert_close(sheared[..., 8, :], (images[..., 8, :] + images[..., 8, [*range(1, 16), 15]]) / 2)


# Table rows


def test_noise_is_as_strong_as_stated_in_units_of_the_column() -> None:
    rows = draw_rows(4000)
    added = (view_once("noise", rows) - rows)[:, :3] / torch.tensor([1.0, 10.0, 0.1])
    torch.testing.assert_close(added.std(0), torch.full((3,), ROW_NOISE), rtol=0.05, atol=0)
    assert float(torch.corrcoef(added.T).sub(torch.eye(3)).abs().max()) < 0.06


def test_swapped_entries_come_from_their_column_in_another_row() -> None:
    rows = torch.arange(400.0).repeat(3, 1).T + torch.tensor([0, 1000, 2000])
    changed = view_once("swap", rows)
    moved = changed != rows
    assert float(moved.float().mean()) == pytest.approx(SWAP_SHARE, abs=0.03)
    assert torch.equal(changed.div(1000, rounding_mode="floor"), rows.div(1000, rounding_mode="floor"))
    assert 0 < int(moved.all(1).sum()) < 0.1 * len(rows), "entries move alone, not rows"
    assert torch.equal(view_once("swap", rows[:1]), rows[:1]), "a single row has nothing to swap with"
