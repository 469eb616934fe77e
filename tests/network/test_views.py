"""Views stay images of the same kind, are drawn anew each time, and do not care how the images are scaled."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import lates
from lates.network.augmentations import (
    BRIGHTNESS,
    CONTRAST,
    REACH,
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
from lates.network.reading import ImageView, Reading
from lates.network.views import IMAGE_NAMES, PIXELS, DrawView, choose_view, find_images, make_view

CPU = torch.device("cpu")
seeds = st.integers(0, 2**31)


def draw_images(n: int = 16, channels: int = 3, side: int = 16, seed: int = 0) -> Tensor:
    """Images in [0, 1], float64, each channel with a contrast of its own."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.rand(n, channels, side, side, generator=generator, dtype=torch.float64)
    return raw * torch.linspace(0.3, 1, channels, dtype=torch.float64)[:, None, None]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def view_once(name: ImageView, images: Tensor, seed: int = 0) -> Tensor:
    return make_view(name, measure_channels(images))(images, seeded(seed))


def choose(views: Any, loader: Any, **options: Any) -> DrawView | None:
    return choose_view(Reading("train", views=views, **options), loader, CPU)


def crops_of(images: Tensor) -> Tensor:
    """Every shift of every image, edges repeated: [n, c, rows, columns, h, w]."""
    height, width = images.shape[2:]
    tall, wide = int(height * REACH), int(width * REACH)
    padded = F.pad(images, (wide, wide, tall, tall), mode="replicate")
    return padded.unfold(2, height, 1).unfold(3, width, 1)


def only_shifted(changed: Tensor, images: Tensor) -> Tensor:
    """Which of the changed images [n] are a shift of theirs."""
    matches = (crops_of(images) == changed[:, :, None, None]).all(-1).all(-1).all(1)
    return matches.flatten(1).any(1)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(IMAGE_NAMES), seeds, st.floats(0.01, 100), st.floats(-50, 50))
def test_normalising_the_inputs_changes_nothing_but_the_scale(
    name: ImageView, seed: int, scale: float, offset: float
) -> None:
    images = draw_images()
    scales = scale * torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)[:, None, None]
    expected = (view_once(name, images, seed) - offset) / scales
    assert torch.allclose(view_once(name, (images - offset) / scales, seed), expected, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("name", IMAGE_NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.uint8])
def test_views_keep_shape_dtype_and_range_and_leave_the_input_alone(name: ImageView, dtype: torch.dtype) -> None:
    images = (draw_images() * 255).to(dtype)
    before = images.clone()
    changed = view_once(name, images)
    assert (changed.shape, changed.dtype) == (images.shape, dtype)
    assert torch.equal(images, before)
    assert not torch.equal(changed, images)
    low, high = (edge(images.float(), (0, 2, 3)) for edge in (torch.amin, torch.amax))
    assert bool((changed.float() >= low[:, None, None]).all())
    assert bool((changed.float() <= high[:, None, None]).all())


@pytest.mark.parametrize("name", IMAGE_NAMES)
def test_the_generator_decides_every_draw_is_fresh_and_the_global_state_takes_no_part(name: ImageView) -> None:
    images, generator, untouched = draw_images(), seeded(3), torch.get_rng_state()
    view = make_view(name, measure_channels(images))
    first, second = view(images, generator), view(images, generator)
    assert torch.equal(torch.get_rng_state(), untouched)
    torch.manual_seed(5)
    assert torch.equal(view(images, seeded(3)), first)
    assert not torch.equal(second, first)


def test_public_functions_draw_from_the_global_state_by_default() -> None:
    images = draw_images()
    scale = measure_channels(images)
    views = lates.views
    for change in (views.flip, views.shift, partial(views.jitter, scale=scale), partial(views.robust, scale=scale)):
        torch.manual_seed(3)
        first, second = change(images), change(images)
        torch.manual_seed(3)
        assert torch.equal(change(images), first)
        assert not torch.equal(second, first)


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


def test_a_robust_view_only_shifts_every_second_image() -> None:
    images = draw_images(n=400, side=8)
    changed = robust(images, measure_channels(images), seeded())
    assert 160 < int(only_shifted(changed, images).sum()) < 240


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


def test_shifts_reach_every_offset() -> None:
    ramp = torch.arange(16.0).expand(500, 1, 16, 16)
    offsets = shift(ramp, seeded())[:, 0, 8, 8] - 8
    assert sorted(set(offsets.tolist())) == [-2, -1, 0, 1, 2]


def test_jitter_is_as_strong_as_stated_in_units_of_the_deviation() -> None:
    images = torch.zeros(4000, 2, 4, 4, dtype=torch.float64)
    deviation = torch.tensor([2.0, 10.0], dtype=torch.float64)[:, None, None]
    infinite = torch.full_like(deviation, torch.inf)
    changed = jitter(images, ChannelScale(deviation, -infinite, infinite), seeded())
    means = (changed / deviation).mean((2, 3))
    assert torch.allclose(means.std(0), torch.full((2,), (BRIGHTNESS**2 + TINT**2) ** 0.5).double(), rtol=0.05)
    assert float(torch.corrcoef(means.T)[0, 1]) == pytest.approx(BRIGHTNESS**2 / (BRIGHTNESS**2 + TINT**2), abs=0.05)


@pytest.mark.parametrize("name", ["jitter", "robust"])
def test_a_constant_channel_stays_as_it_is(name: ImageView) -> None:
    images = torch.cat([draw_images(channels=2), torch.full((16, 1, 16, 16), 0.5).double()], dim=1)
    assert torch.equal(view_once(name, images)[:, 2], images[:, 2])
    assert bool(view_once(name, images[:1, :, :1, :1]).isfinite().all())


@pytest.mark.parametrize("name", IMAGE_NAMES)
def test_images_are_found_and_replaced_in_a_mapping(name: ImageView) -> None:
    images, mask = draw_images(), torch.ones(16)
    changed = make_view(name, measure_channels(images))({PIXELS: images, "mask": mask}, seeded())
    assert changed["mask"] is mask
    assert torch.equal(changed[PIXELS], view_once(name, images))


@pytest.mark.parametrize(
    "inputs",
    [
        torch.zeros(2, 5),
        torch.zeros(2, 8, 4, 4),
        torch.zeros(2, 3, 4, 4, dtype=torch.int64),
        (torch.zeros(2, 3, 4, 4), torch.zeros(2)),
        {"input_ids": torch.zeros(2, 7).long()},
        "text",
    ],
)
def test_other_inputs_hold_no_images(inputs: Any) -> None:
    loader = [(inputs, torch.zeros(2).long())]
    assert find_images(inputs) is None
    assert choose("auto", loader) is None
    came = r"the train inputs are a (torch\.\w+ tensor of shape|tuple|dict|str)"
    for name in IMAGE_NAMES:
        with pytest.raises(ValueError, match=rf'views="{name}" needs images .*; {came}.*Pass views=None or a function'):
            choose(name, loader)


def test_a_built_in_view_refuses_a_later_batch_without_images() -> None:
    with pytest.raises(ValueError, match=r'views="flip" needs images .*Pass views=None'):
        make_view("flip", measure_channels(draw_images()))(torch.zeros(2, 5), seeded())


def test_auto_is_what_the_settings_say() -> None:
    images = draw_images()
    loader = [(images, torch.zeros(16).long())]
    expected: dict[ImageView, lates.Settings] = {"robust": lates.DEFAULT, "flip": lates.PAPER}
    for name, choices in expected.items():
        view = choose("auto", loader, settings=choices)
        assert view is not None
        assert torch.equal(view(images, seeded()), view_once(name, images))
    assert choose("auto", loader, settings=lates.Settings(views=None)) is None


def test_the_deviation_comes_from_all_images_of_one_size() -> None:
    images = draw_images()
    labels = torch.zeros(8).long()
    loader = [(images[:8], labels), (images[8:], labels), (images[:8, :, :8], labels)]
    view = choose("jitter", loader)
    assert view is not None
    assert torch.equal(view(images, seeded()), view_once("jitter", images))


def test_a_user_s_function_is_called_with_the_inputs_alone() -> None:
    view = choose(torch.neg, [])
    assert view is not None
    assert torch.equal(view(torch.ones(2), seeded()), -torch.ones(2))


def test_an_unknown_name_is_answered_with_those_known() -> None:
    wrong: Any = "jiter"
    with pytest.raises(
        ValueError,
        match=r'Unknown views="jiter"\. Known: None, flip, shift, jitter, robust, noise, swap, auto, or a function',
    ):
        choose(wrong, [])
