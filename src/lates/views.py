"""Views: inputs -> inputs that the network never saw.

A network has memorised its training images; probes trained on those very images inherit its overconfidence. Views (random
shifts, jitter, light noise) repair this and cost nothing at inference. Strengths are in units of the training inputs'
channel deviation, so images scaled to [0, 1] and normalised images are treated alike. Randomness comes from torch's global
generator, which `extract` seeds and afterwards restores.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lates.batches import read_batches
from lates.settings import Settings

View = Callable[[Any], Any]
Views = Literal["auto", "flip", "shift", "jitter"] | View | None
NAMES = ("flip", "shift", "jitter")

PIXELS = "pixel_values"
"""The key under which `transformers` passes images."""

REACH = 1 / 8
"""The largest shift, as a share of height and width (4 of 32 pixels)."""
BRIGHTNESS, TINT, CONTRAST, NOISE = 0.4, 0.15, 0.35, 0.3
"""Deviation of the brightness added, of the tint added per channel, of the log of contrast; the largest noise deviation."""

MEASURED_IMAGES = 1024
"""From so many images the channel deviation is taken."""

NEEDED = "needs images [n, channels, h, w], floating-point or uint8, of at most four channels"


@dataclass(frozen=True)
class ChannelScale:
    """Deviation, minimum and maximum of the training inputs per channel, each [c, 1, 1]."""

    deviation: Tensor
    low: Tensor
    high: Tensor


def choose_view(
    views: Views, loader: Iterable[Any], device: torch.device, role: str, settings: Settings
) -> View | None:
    """The function that draws views: None, the user's, or a built-in one in units of the loader's channel deviation."""
    if views is None or callable(views):
        return views
    option = "holdout_views" if role == "holdout" else "views"
    if views not in (*NAMES, "auto"):
        raise ValueError(
            f'Unknown {option}="{views}". Known: None, {", ".join(NAMES)}, auto, or a function inputs -> inputs.'
        )
    name = settings.views if views == "auto" else views
    if name is None:
        return None
    needed = MEASURED_IMAGES if name == "jitter" else 1
    images: list[Tensor] = []
    for batch in read_batches(loader, device, role):
        found = find_images(batch.inputs)
        if found is None and views == "auto":
            return None
        if found is None:
            raise ValueError(
                f'{option}="{views}" {NEEDED}; the {role} inputs are {_describe(batch.inputs)}. Pass {option}=None or a '
                "function inputs -> inputs."
            )
        if images and found.shape[1:] != images[0].shape[1:]:
            break
        images.append(found)
        if sum(map(len, images)) >= needed:
            break
    return make_view(name, measure_channels(torch.cat(images)))


def measure_channels(images: Tensor) -> ChannelScale:
    values = images.double().transpose(0, 1).flatten(1)
    deviation, low, high = values.std(1, correction=0), values.amin(1), values.amax(1)
    return ChannelScale(*(value.to(_working_dtype(images))[:, None, None] for value in (deviation, low, high)))


def find_images(inputs: Any) -> Tensor | None:
    """The images [n, c, h, w] in a batch's inputs (floating-point or uint8, at most four channels), or None."""
    images = inputs.get(PIXELS) if isinstance(inputs, Mapping) else inputs
    if isinstance(images, tuple) and len(images) == 1:
        images = images[0]
    if not isinstance(images, Tensor) or images.dim() != 4 or images.shape[1] > 4:
        return None
    return images if images.is_floating_point() or images.dtype == torch.uint8 else None


def make_view(name: str, scale: ChannelScale) -> View:
    """The built-in view of that name, for inputs that hold images."""
    changes = {"flip": flip, "shift": shift, "jitter": lambda images: jitter(shift(images), scale)}
    change = changes[name]

    def view(inputs: Any) -> Any:
        images = find_images(inputs)
        if images is None:
            raise ValueError(f'views="{name}" {NEEDED}. Pass views=None or a function inputs -> inputs.')
        changed = change(images)
        return {**inputs, PIXELS: changed} if isinstance(inputs, Mapping) else changed

    return view


def flip(images: Tensor) -> Tensor:
    """Each image mirrored left to right with probability one half: the paper's views."""
    mirrored = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return torch.where(mirrored, images.flip(-1), images)


def shift(images: Tensor) -> Tensor:
    """Each image moved by up to `REACH` of its height and width, edge pixels repeated."""
    n, _, height, width = images.shape
    device = images.device
    rows = _shifted_positions(n, height, device)
    columns = _shifted_positions(n, width, device)
    batch = torch.arange(n, device=device)[:, None, None]
    return images.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def jitter(images: Tensor, scale: ChannelScale) -> Tensor:
    """Brightness, tint, contrast and light noise, each drawn per image, within the range of the training inputs."""
    n, channels = images.shape[:2]
    values = images.to(_working_dtype(images))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device=values.device, dtype=values.dtype)

    centre = values.mean((2, 3), keepdim=True)
    contrast = torch.exp(CONTRAST * normal(n, 1, 1, 1))
    offset = BRIGHTNESS * normal(n, 1, 1, 1) + TINT * normal(n, channels, 1, 1)
    strength = NOISE * torch.rand(n, 1, 1, 1, device=values.device, dtype=values.dtype)
    noise = strength * normal(*values.shape)
    changed = centre + contrast * (values - centre) + scale.deviation * (offset + noise)
    clipped = changed.clamp(scale.low, scale.high)
    return clipped if images.is_floating_point() else clipped.round().to(images.dtype)


def _working_dtype(images: Tensor) -> torch.dtype:
    return images.dtype if images.is_floating_point() else torch.float32


def _describe(inputs: Any) -> str:
    if isinstance(inputs, Tensor):
        return f"a {inputs.dtype} tensor of shape {list(inputs.shape)}"
    return f"a {type(inputs).__name__}"


def _shifted_positions(n: int, length: int, device: torch.device) -> Tensor:
    reach = int(length * REACH)
    offsets = torch.randint(-reach, reach + 1, (n, 1), device=device)
    return (torch.arange(length, device=device) + offsets).clamp(0, length - 1)
