"""Views, changed copies of a batch: inputs -> inputs that the network never saw.

A network has memorised its training inputs; probes trained on those very inputs inherit its overconfidence. Views repair this
and cost nothing at inference.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lates.network.augmentations import ChannelScale, flip, jitter, noise, robust, shift, swap
from lates.network.tokens import drop_tokens as drop_tokens  # public here, beside the other views
from lates.network.tokens import mask_tokens as mask_tokens
from lates.settings import ImageView

TableView = Literal["noise", "swap"]
ViewName = ImageView | TableView
Views = Literal["auto"] | ViewName | Callable[[Any], Any] | None
View = Callable[[Any, torch.Generator], Any]
"""A view as `extract` calls it: built-in views draw from the generator, a user's function from the seeded global one."""

IMAGE_NAMES: tuple[ImageView, ...] = get_args(ImageView)
TABLE_NAMES: tuple[TableView, ...] = get_args(TableView)
NAMES: tuple[ViewName, ...] = (*IMAGE_NAMES, *TABLE_NAMES)

PIXELS = "pixel_values"
"""The key under which `transformers` passes images."""


def find_inputs(name: ViewName, inputs: Any) -> Tensor | None:
    """What the view of that name changes in a batch's inputs, images of at most four channels or table rows; None where there
    is no such tensor."""
    images = name in IMAGE_NAMES
    values = inputs.get(PIXELS) if images and isinstance(inputs, Mapping) else inputs
    if isinstance(values, tuple) and len(values) == 1:
        values = values[0]
    if not isinstance(values, Tensor) or not (values.is_floating_point() or values.dtype == torch.uint8):
        return None
    fits = values.dim() == 4 and values.shape[1] <= 4 if images else values.dim() == 2
    return values if fits else None


def require_inputs(name: ViewName, inputs: Any, option: str = "views", role: str = "given") -> Tensor:
    """The same; an error where there is none, which names the option and the loader."""
    if (values := find_inputs(name, inputs)) is not None:
        return values
    images, given = name in IMAGE_NAMES, isinstance(inputs, Tensor)
    received = f"{inputs.dtype} tensor of shape {list(inputs.shape)}" if given else type(inputs).__name__
    needed = "images [n, channels, h, w]" if images else "table rows [n, columns]"
    most = ", of at most four channels" if images else ""
    raise ValueError(
        f'{option}="{name}" needs {needed}, floating-point or uint8{most}; the {role} inputs are a {received}. '
        f"Pass {option}=None or a function inputs -> inputs."
    )


def make_view(name: ViewName, scale: ChannelScale) -> View:
    """The built-in view of that name, for inputs that hold images or are table rows."""
    changes: dict[ViewName, Callable[[Tensor, torch.Generator], Tensor]] = {
        "flip": flip,
        "shift": shift,
        "jitter": lambda images, generator: jitter(shift(images, generator), scale, generator),
        "robust": lambda images, generator: robust(images, scale, generator),
        "noise": lambda rows, generator: noise(rows, scale, generator),
        "swap": swap,
    }

    def view(inputs: Any, generator: torch.Generator) -> Any:
        changed = changes[name](require_inputs(name, inputs), generator)
        return {**inputs, PIXELS: changed} if isinstance(inputs, Mapping) else changed

    return view
