"""Views stay images of the same kind, are drawn anew each time, and do not care how the images are scaled."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import lates
from lates.views import (
    BRIGHTNESS,
    CONTRAST,
    NAMES,
    PIXELS,
    REACH,
    TINT,
    ChannelScale,
    choose_view,
    find_images,
    flip,
    jitter,
    make_view,
    measure_channels,
    shift,
)

CPU = torch.device("cpu")
seeds = st.integers(0, 2**31)


def draw_images(n: int = 16, channels: int = 3, side: int = 16, seed: int = 0) -> Tensor:
    """Images in [0, 1], float64, each channel with a contrast of its own."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.rand(n, channels, side, side, generator=generator, dtype=torch.float64)
    return raw * torch.linspace(0.3, 1, channels, dtype=torch.float64)[:, None, None]


def view_once(name: str, images: Tensor, seed: int = 0) -> Tensor:
    view = make_view(name, measure_channels(images))
    torch.manual_seed(seed)
    return view(images)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(NAMES), seeds, st.floats(0.01, 100), st.floats(-50, 50))
def test_normalising_the_inputs_changes_nothing_but_the_scale(
    name: str, seed: int, scale: float, offset: float
) -> None:
    images = draw_images()
    scales = scale * torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)[:, None, None]
    expected = (view_once(name, images, seed) - offset) / scales
    assert torch.allclose(view_once(name, (images - offset) / scales, seed), expected, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.uint8])
def test_views_keep_shape_dtype_and_range_and_leave_the_input_alone(name: str, dtype: torch.dtype) -> None:
    images = (draw_images() * 255).to(dtype)
    before = images.clone()
    changed = view_once(name, images)
    assert (changed.shape, changed.dtype) == (images.shape, dtype)
    assert torch.equal(images, before)
    assert not torch.equal(changed, images)
    low, high = (edge(images.float(), (0, 2, 3)) for edge in (torch.amin, torch.amax))
    assert bool((changed.float() >= low[:, None, None]).all())
    assert bool((changed.float() <= high[:, None, None]).all())


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides_and_every_draw_is_fresh(name: str) -> None:
    images = draw_images()
    view = make_view(name, measure_channels(images))
    torch.manual_seed(3)
    first, second = view(images), view(images)
    torch.manual_seed(3)
    assert torch.equal(view(images), first)
    assert not torch.equal(second, first)


def test_contrast_stretches_each_channel_around_its_own_mean_by_a_positive_factor() -> None:
    images = draw_images(n=200) + torch.arange(200.0)[:, None, None, None]
    still, wide = torch.zeros(3, 1, 1), torch.full((3, 1, 1), torch.inf)  # of no deviation, so that nothing is added
    changed = jitter(images, ChannelScale(still, -wide, wide))
    centre = images.mean((2, 3), keepdim=True)
    torch.testing.assert_close(changed.mean((2, 3), keepdim=True), centre)
    factors = (changed - centre) / (images - centre)
    torch.testing.assert_close(factors, factors[:, :1, :1, :1].expand_as(factors), atol=1e-6, rtol=1e-6)
    logs = factors[:, 0, 0, 0].log()
    assert float(logs.mean()) == pytest.approx(0, abs=4 * CONTRAST / 200**0.5)
    assert float(logs.std()) == pytest.approx(CONTRAST, rel=0.2)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_a_flip_mirrors_whole_images_or_leaves_them(seed: int) -> None:
    images = draw_images(n=40)
    torch.manual_seed(seed)
    changed = flip(images)
    same = (changed == images).flatten(1).all(1)
    mirrored = (changed == images.flip(-1)).flatten(1).all(1)
    assert bool((same ^ mirrored).all())
    assert 5 < int(mirrored.sum()) < 35


@settings(max_examples=10, deadline=None)
@given(seeds, st.sampled_from([(16, 8), (9, 24), (4, 4)]))
def test_a_shift_is_a_crop_of_the_image_with_its_edges_repeated(seed: int, size: tuple[int, int]) -> None:
    height, width = size
    images = draw_images(n=6, side=24)[:, :, :height, :width]
    torch.manual_seed(seed)
    changed = shift(images)
    tall, wide = int(height * REACH), int(width * REACH)
    padded = F.pad(images, (wide, wide, tall, tall), mode="replicate")
    crops = padded.unfold(2, height, 1).unfold(3, width, 1)
    matches = (crops == changed[:, :, None, None]).all(-1).all(-1).all(1)
    assert bool(matches.flatten(1).any(1).all())


def test_shifts_reach_every_offset() -> None:
    ramp = torch.arange(16.0).expand(500, 1, 16, 16)
    torch.manual_seed(0)
    offsets = shift(ramp)[:, 0, 8, 8] - 8
    assert sorted(set(offsets.tolist())) == [-2, -1, 0, 1, 2]


def test_jitter_is_as_strong_as_stated_in_units_of_the_deviation() -> None:
    images = torch.zeros(4000, 2, 4, 4, dtype=torch.float64)
    deviation = torch.tensor([2.0, 10.0], dtype=torch.float64)[:, None, None]
    infinite = torch.full_like(deviation, torch.inf)
    torch.manual_seed(0)
    changed = jitter(images, ChannelScale(deviation, -infinite, infinite))
    means = (changed / deviation).mean((2, 3))
    assert torch.allclose(means.std(0), torch.full((2,), (BRIGHTNESS**2 + TINT**2) ** 0.5).double(), rtol=0.05)
    assert float(torch.corrcoef(means.T)[0, 1]) == pytest.approx(BRIGHTNESS**2 / (BRIGHTNESS**2 + TINT**2), abs=0.05)


def test_a_constant_channel_stays_as_it_is() -> None:
    images = torch.cat([draw_images(channels=2), torch.full((16, 1, 16, 16), 0.5).double()], dim=1)
    assert torch.equal(view_once("jitter", images)[:, 2], images[:, 2])
    assert bool(view_once("jitter", images[:1, :, :1, :1]).isfinite().all())


@pytest.mark.parametrize("name", NAMES)
def test_images_are_found_and_replaced_in_a_mapping(name: str) -> None:
    images, mask = draw_images(), torch.ones(16)
    view = make_view(name, measure_channels(images))
    torch.manual_seed(0)
    changed = view({PIXELS: images, "mask": mask})
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
    assert choose_view("auto", loader, CPU, "train", lates.DEFAULT) is None
    came = r"the train inputs are a (torch\.\w+ tensor of shape|tuple|dict|str)"
    for name in NAMES:
        with pytest.raises(ValueError, match=rf'views="{name}" needs images .*; {came}.*Pass views=None or a function'):
            choose_view(name, loader, CPU, "train", lates.DEFAULT)


def test_a_built_in_view_refuses_a_later_batch_without_images() -> None:
    with pytest.raises(ValueError, match=r'views="flip" needs images .*Pass views=None'):
        make_view("flip", measure_channels(draw_images()))(torch.zeros(2, 5))


def test_auto_is_what_the_settings_say() -> None:
    images = draw_images()
    loader = [(images, torch.zeros(16).long())]
    view = choose_view("auto", loader, CPU, "train", lates.PAPER)
    assert view is not None
    torch.manual_seed(0)
    assert torch.equal(view(images), view_once("flip", images))
    assert choose_view("auto", loader, CPU, "train", lates.Settings(views=None)) is None


def test_the_deviation_comes_from_all_images_of_one_size() -> None:
    images = draw_images()
    labels = torch.zeros(8).long()
    loader = [(images[:8], labels), (images[8:], labels), (images[:8, :, :8], labels)]
    view = choose_view("jitter", loader, CPU, "train", lates.DEFAULT)
    assert view is not None
    torch.manual_seed(0)
    assert torch.equal(view(images), view_once("jitter", images))


def test_none_and_the_user_s_function_pass_through() -> None:
    assert choose_view(None, [], CPU, "train", lates.DEFAULT) is None
    assert choose_view(torch.neg, [], CPU, "train", lates.DEFAULT) is torch.neg


def test_an_unknown_name_is_answered_with_those_known() -> None:
    wrong: Any = "jiter"
    with pytest.raises(
        ValueError, match=r'Unknown views="jiter"\. Known: None, flip, shift, jitter, auto, or a function'
    ):
        choose_view(wrong, [], CPU, "train", lates.DEFAULT)
