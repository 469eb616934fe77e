"""Views: inputs -> inputs that the network never saw.

A network has memorised its training inputs; probes trained on those very inputs inherit its overconfidence. Views repair this
and cost nothing at inference. The functions here choose the view; `augmentations` (images and tables) and `tokens` have
the changes themselves.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

import torch
from torch import Tensor

from lates.network.augmentations import (
    ChannelScale,
    flip,
    jitter,
    measure_channels,
    noise,
    robust,
    shift,
    swap,
)
from lates.network.batches import read_batches
from lates.network.reading import ImageView, Reading, TableView, ViewName
from lates.network.tokens import TokenView, choose_tokens, find_tokens
from lates.network.tokens import drop_tokens as drop_tokens  # public here, beside the other views
from lates.network.tokens import mask_tokens as mask_tokens

DrawView = Callable[[Any, torch.Generator], Any]
"""A view as `extract` calls it: built-in views draw from the generator, a user's function from the seeded global one."""
IMAGE_NAMES: tuple[ImageView, ...] = get_args(ImageView)
TABLE_NAMES: tuple[TableView, ...] = get_args(TableView)
NAMES: tuple[ViewName, ...] = (*IMAGE_NAMES, *TABLE_NAMES)

PIXELS = "pixel_values"
"""The key under which `transformers` passes images."""

MEASURED_ROWS = 1024
"""The scale of channels and columns is measured on this many inputs."""

MEASURED: tuple[ViewName, ...] = ("jitter", "robust", "noise")
"""The views that need this scale."""

IMAGES_NEEDED = "needs images [n, channels, h, w], floating-point or uint8, of at most four channels"
ROWS_NEEDED = "needs table rows [n, columns], floating-point or uint8"


def choose_view(reading: Reading, loader: Iterable[Any], device: torch.device) -> DrawView | None:
    """The function that draws views: None, the user's, or a built-in one on the scale of the loader's channels.

    For text "auto" needs the tokenizer.
    """
    views, role, tokenizer = reading.views, reading.role, reading.tokenizer
    if views is None or isinstance(views, TokenView):
        return views
    if callable(views):
        return lambda inputs, _: views(inputs)
    option = reading.views_option
    if views not in (*NAMES, "auto"):
        raise ValueError(
            f'Unknown {option}="{views}". Known: None, {", ".join(NAMES)}, auto, or a function inputs -> inputs.'
        )
    if views == "auto" and tokenizer is not None:
        first = next(iter(read_batches(loader, device, role)))
        if find_tokens(first.inputs) is not None:
            return choose_tokens(tokenizer)
    name = reading.settings.views if views == "auto" else views
    if name is None:
        return None
    needed = MEASURED_ROWS if name in MEASURED else 1
    rows: list[Tensor] = []
    for batch in read_batches(loader, device, role):
        values = find_inputs(name, batch.inputs)
        if values is None and views == "auto":
            return None
        if values is None:
            raise ValueError(
                f'{option}="{views}" {_needed(name)}; the {role} inputs are {_describe(batch.inputs)}. Pass {option}=None or a '
                "function inputs -> inputs."
            )
        if rows and values.shape[1:] != rows[0].shape[1:]:
            break
        rows.append(values)
        if sum(map(len, rows)) >= needed:
            break
    return make_view(name, measure_channels(torch.cat(rows)))


def find_inputs(name: ViewName, inputs: Any) -> Tensor | None:
    """What the view of that name changes in a batch's inputs, or None."""
    return find_images(inputs) if name in IMAGE_NAMES else find_rows(inputs)


def find_images(inputs: Any) -> Tensor | None:
    """The images [n, c, h, w] in a batch's inputs (floating-point or uint8, at most four channels), or None."""
    images = inputs.get(PIXELS) if isinstance(inputs, Mapping) else inputs
    values = _find_values(images, dimensions=4)
    return None if values is None or values.shape[1] > 4 else values


def find_rows(inputs: Any) -> Tensor | None:
    """The table rows [n, columns] that a batch's inputs are (floating-point or uint8), or None."""
    return _find_values(inputs, dimensions=2)


def make_view(name: ViewName, scale: ChannelScale) -> DrawView:
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
        values = find_inputs(name, inputs)
        if values is None:
            raise ValueError(f'views="{name}" {_needed(name)}. Pass views=None or a function inputs -> inputs.')
        changed = changes[name](values, generator)
        return {**inputs, PIXELS: changed} if isinstance(inputs, Mapping) else changed

    return view


def _find_values(inputs: Any, dimensions: int) -> Tensor | None:
    if isinstance(inputs, tuple) and len(inputs) == 1:
        inputs = inputs[0]
    if not isinstance(inputs, Tensor) or inputs.dim() != dimensions:
        return None
    return inputs if inputs.is_floating_point() or inputs.dtype == torch.uint8 else None


def _needed(name: ViewName) -> str:
    return IMAGES_NEEDED if name in IMAGE_NAMES else ROWS_NEEDED


def _describe(inputs: Any) -> str:
    if isinstance(inputs, Tensor):
        return f"a {inputs.dtype} tensor of shape {list(inputs.shape)}"
    return f"a {type(inputs).__name__}"
