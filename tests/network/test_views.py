"""What holds for every view, and how the view is chosen."""

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import lates
from lates.network import Reading
from lates.network.augmentations import measure_channels
from lates.network.views import (
    IMAGE_NAMES,
    NAMES,
    PIXELS,
    TABLE_NAMES,
    View,
    ViewName,
    make_view,
)
from lates.settings import ImageView

CPU = torch.device("cpu")
IMAGES_OR_ROWS = pytest.mark.parametrize("name", NAMES)


def draw_images(n: int = 16, channels: int = 3, side: int = 16, seed: int = 0) -> Tensor:
    """Images in [0, 1], float64, each channel with a contrast of its own."""
    raw = torch.rand(n, channels, side, side, generator=seeded(seed), dtype=torch.float64)
    return raw * torch.linspace(0.3, 1, channels, dtype=torch.float64)[:, None, None]


def draw_rows(n: int = 100, seed: int = 0) -> Tensor:
    """Table rows whose columns have the deviations 1, 10, 0.1 and 0."""
    return 5 + torch.tensor([1.0, 10.0, 0.1, 0.0]) * torch.randn(n, 4, generator=seeded(seed))


def draw_inputs(name: ViewName) -> Tensor:
    return draw_images() if name in IMAGE_NAMES else draw_rows()


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def view_once(name: ViewName, inputs: Tensor, seed: int = 0) -> Tensor:
    return make_view(name, measure_channels(inputs))(inputs, seeded(seed))


def choose(views: Any, loader: Any, **options: Any) -> View | None:
    return Reading("train", views=views, **options).choose_view(loader, CPU)


def unlabelled(*inputs: Any) -> list[tuple[Any, Tensor]]:
    """Batches whose labels do not matter."""
    return [(each, torch.zeros(len(each)).long()) for each in inputs]


# What holds for every view


@IMAGES_OR_ROWS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.uint8])
def test_views_keep_shape_dtype_and_range_and_leave_the_input_alone(name: ViewName, dtype: torch.dtype) -> None:
    inputs = (draw_inputs(name) * 20).abs().clamp(max=255).to(dtype)
    before = inputs.clone()
    changed = view_once(name, inputs)
    assert (changed.shape, changed.dtype) == (inputs.shape, dtype)
    assert torch.equal(inputs, before)
    assert not torch.equal(changed, inputs)
    if name != "noise":
        per_channel = inputs.float().transpose(0, 1).flatten(1)
        low, high = per_channel.amin(1), per_channel.amax(1)
        values = changed.float().transpose(0, 1).flatten(1)
        assert bool(((values >= low[:, None]) & (values <= high[:, None])).all())


@IMAGES_OR_ROWS
def test_the_generator_decides_every_draw_is_fresh_and_the_global_state_takes_no_part(name: ViewName) -> None:
    inputs, generator, untouched = draw_inputs(name), seeded(3), torch.get_rng_state()
    view = make_view(name, measure_channels(inputs))
    first, second = view(inputs, generator), view(inputs, generator)
    assert torch.equal(torch.get_rng_state(), untouched)
    torch.manual_seed(5)
    assert torch.equal(view(inputs, seeded(3)), first)
    assert not torch.equal(second, first)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(IMAGE_NAMES), st.integers(0, 2**31), st.floats(0.01, 100), st.floats(-50, 50))
def test_normalising_the_inputs_changes_nothing_but_the_scale(name: ImageView, seed: int, scale: float, offset: float) -> None:
    images = draw_images()
    scales = scale * torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)[:, None, None]
    expected = (view_once(name, images, seed) - offset) / scales
    assert torch.allclose(view_once(name, (images - offset) / scales, seed), expected, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("name", ["jitter", "robust", "noise", "swap"])
def test_a_constant_channel_or_column_stays_as_it_is(name: ViewName) -> None:
    inputs = draw_rows()
    if name in IMAGE_NAMES:
        inputs = torch.cat([draw_images(channels=3), torch.full((16, 1, 16, 16), 0.5).double()], dim=1)
    assert torch.equal(view_once(name, inputs)[:, 3], inputs[:, 3])
    assert bool(view_once(name, inputs[:1]).isfinite().all())


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


@pytest.mark.parametrize("name", TABLE_NAMES)
def test_calibrating_with_views_of_rows_repeats_from_the_seed(name: ViewName) -> None:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    batches = [(torch.randn(100, 4, generator=seeded(seed)), torch.arange(100) % 3) for seed in range(4)]

    def features_of(seed: int) -> Tensor:
        return torch.cat(list(lates.extract(model, batches[:2], views=name, passes=2, seed=seed).blocks.values()), 1)

    assert torch.equal(features_of(0), features_of(0))
    assert not torch.equal(features_of(0), features_of(1))
    loaders: dict[str, Any] = {"train": batches[:2], "holdout": batches[2:]}
    calibrated = lates.calibrate(model, **loaders, views=name, holdout_views=name, budget=None, progress=False)
    assert calibrated.fit.certified


# The choice


@pytest.mark.parametrize("name", IMAGE_NAMES)
def test_images_are_found_and_replaced_in_a_mapping(name: ImageView) -> None:
    images, mask = draw_images(), torch.ones(16)
    changed = make_view(name, measure_channels(images))({PIXELS: images, "mask": mask}, seeded())
    assert changed["mask"] is mask
    assert torch.equal(changed[PIXELS], view_once(name, images))


@pytest.mark.parametrize(
    ("inputs", "fitting"),
    [
        (torch.zeros(2, 5), TABLE_NAMES),
        (torch.zeros(2, 3, 4, 4), IMAGE_NAMES),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), IMAGE_NAMES),
        (torch.zeros(2, 8, 4, 4), ()),
        (torch.zeros(2, 5).long(), ()),
        (torch.zeros(2, 3, 4, 4).long(), ()),
        ((torch.zeros(2, 3, 4, 4), torch.zeros(2)), ()),
        ({"input_ids": torch.zeros(2, 7).long(), "attention_mask": torch.ones(2, 7)}, ()),
        ("ab", ()),
    ],
)
def test_views_of_other_inputs_are_refused_and_auto_has_none(inputs: Any, fitting: tuple[ViewName, ...]) -> None:
    loader = unlabelled(inputs)
    assert (choose("auto", loader) is not None) == (fitting == IMAGE_NAMES)
    for name in NAMES:
        if name in fitting:
            assert choose(name, loader) is not None
            continue
        needed = "images" if name in IMAGE_NAMES else "table rows"
        came = r"the train inputs are a (torch\.\w+ tensor of shape|tuple|dict|str)"
        with pytest.raises(ValueError, match=rf'views="{name}" needs {needed} .*; {came}.*Pass views=None or a fun'):
            choose(name, loader)


def test_a_built_in_view_refuses_a_later_batch_without_images() -> None:
    with pytest.raises(ValueError, match=r'views="flip" needs images .*Pass views=None'):
        make_view("flip", measure_channels(draw_images()))(torch.zeros(2, 5), seeded())


def test_auto_is_what_the_settings_say() -> None:
    images = draw_images()
    expected: dict[ImageView, lates.Settings] = {"robust": lates.DEFAULT, "flip": lates.PAPER}
    for name, choices in expected.items():
        view = choose("auto", unlabelled(images), settings=choices)
        assert view is not None
        assert torch.equal(view(images, seeded()), view_once(name, images))
    assert choose("auto", iter(()), settings=lates.Settings(views=None)) is None  # without a look at the inputs


@pytest.mark.parametrize("name", ["jitter", "noise"])
def test_the_scale_is_measured_over_batches_of_one_size(name: ViewName) -> None:
    inputs = draw_inputs(name)
    view = choose(name, unlabelled(inputs[:8], inputs[8:], inputs[:8, :2]))
    assert view is not None
    assert torch.equal(view(inputs, seeded()), view_once(name, inputs))


def test_a_user_s_function_is_called_with_the_inputs_alone() -> None:
    view = choose(torch.neg, [])
    assert view is not None
    assert torch.equal(view(torch.ones(2), seeded()), -torch.ones(2))


def test_an_unknown_name_is_answered_with_those_known() -> None:
    with pytest.raises(
        ValueError,
        match=r'Unknown views="jiter"\. Known: None, flip, shift, jitter, robust, noise, swap, auto, or a function',
    ):
        choose("jiter", [])
