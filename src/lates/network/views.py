"""How a loader is read, and the views drawn of it: inputs -> inputs that the network never saw.

A network has memorised its training inputs; probes trained on those very inputs inherit its overconfidence. Views repair this
and cost nothing at inference.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lates.network.augmentations import ChannelScale, flip, jitter, measure_channels, noise, robust, shift, swap
from lates.network.batches import read_batches
from lates.network.tokens import Tokenizer, TokenView, find_replacement, find_tokens
from lates.network.tokens import drop_tokens as drop_tokens  # public here, beside the other views
from lates.network.tokens import mask_tokens as mask_tokens
from lates.settings import DEFAULT, Settings

ImageView = Literal["flip", "shift", "jitter", "robust"]
TableView = Literal["noise", "swap"]
ViewName = ImageView | TableView
View = Callable[[Any], Any]
Views = Literal["auto"] | ViewName | View | None
DrawView = Callable[[Any, torch.Generator], Any]
"""A view as `extract` calls it: built-in views draw from the generator, a user's function from the seeded global one."""

IMAGE_NAMES: tuple[ImageView, ...] = get_args(ImageView)
TABLE_NAMES: tuple[TableView, ...] = get_args(TableView)
NAMES: tuple[ViewName, ...] = (*IMAGE_NAMES, *TABLE_NAMES)

PIXELS = "pixel_values"
"""The key under which `transformers` passes images."""

MEASURED_ROWS = 1024
"""The scale of channels and columns is measured on this many inputs."""


@dataclass(frozen=True)
class Reading:
    """How a loader is read.

    role         the loader's name in errors and progress: "train", "holdout"
    blocks       None: all; an int: the last n; a list of names
    views        what changes the inputs in each pass
    views_option   what the caller names `views` in errors
    passes       None: as many as the settings say, one without views; with `plain_first` one plain and one changed
    plain_first  the first pass reads the inputs as they are, and a loader that shuffles does so alike in all passes
    tokenizer    of text, for views="auto"
    budget       matters where a pooling's width depends on it
    keep_logits  probes need no logits of the training split, which with many classes would be larger than all features
    half         features are kept in 16 bits wherever float16 has their range
    settings     poolings, views and passes where the above leave them open
    """

    role: str = "loader"
    blocks: Sequence[str] | int | None = None
    views: Views = None
    passes: int | None = 1
    plain_first: bool = False
    tokenizer: Tokenizer | None = None
    budget: float | None = None
    keep_logits: bool = True
    half: bool = False
    settings: Settings = DEFAULT
    views_option: str = "views"


def choose_view(reading: Reading, loader: Iterable[Any], device: torch.device) -> DrawView | None:
    """The function that draws views: None, the user's, or a built-in one on the scale of the loader's channels."""
    views, role, option = reading.views, reading.role, reading.views_option
    if views is None or isinstance(views, TokenView):
        return views
    if callable(views):
        return lambda inputs, _: views(inputs)
    if views not in (*NAMES, "auto"):
        raise ValueError(
            f'Unknown {option}="{views}". Known: None, {", ".join(NAMES)}, auto, or a function inputs -> inputs.'
        )
    if views == "auto" and reading.tokenizer is not None:
        inputs, _ = next(iter(read_batches(loader, device, role)))
        if find_tokens(inputs) is not None:
            return TokenView(tuple(reading.tokenizer.all_special_ids), find_replacement(reading.tokenizer))
    name = reading.settings.views if views == "auto" else views
    if name is None:
        return None
    rows: list[Tensor] = []
    for inputs, _ in read_batches(loader, device, role):
        values = find_inputs(name, inputs)
        if values is None and views == "auto":
            return None
        if values is None:
            tensor = isinstance(inputs, Tensor)
            came = f"{inputs.dtype} tensor of shape {list(inputs.shape)}" if tensor else type(inputs).__name__
            raise ValueError(
                f'{option}="{views}" {_needed(name)}; the {role} inputs are a {came}. Pass {option}=None or a function inputs '
                "-> inputs."
            )
        if rows and values.shape[1:] != rows[0].shape[1:]:
            break
        rows.append(values)
        if sum(map(len, rows)) >= MEASURED_ROWS:
            break
    return make_view(name, measure_channels(torch.cat(rows)))


def find_inputs(name: ViewName, inputs: Any) -> Tensor | None:
    """What the view of that name changes in a batch's inputs: images of at most four channels, or table rows; or None."""
    images = name in IMAGE_NAMES
    if images and isinstance(inputs, Mapping):
        inputs = inputs.get(PIXELS)
    if isinstance(inputs, tuple) and len(inputs) == 1:
        inputs = inputs[0]
    if not isinstance(inputs, Tensor) or inputs.dim() != (4 if images else 2) or (images and inputs.shape[1] > 4):
        return None
    return inputs if inputs.is_floating_point() or inputs.dtype == torch.uint8 else None


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


def _needed(name: ViewName) -> str:
    if name in IMAGE_NAMES:
        return "needs images [n, channels, h, w], floating-point or uint8, of at most four channels"
    return "needs table rows [n, columns], floating-point or uint8"
