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
Views = Literal["auto"] | ViewName | Callable[[Any], Any] | None
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
        try:
            values = find_inputs(name, inputs, option, role)
        except ValueError:
            if views == "auto":
                return None
            raise
        if rows and values.shape[1:] != rows[0].shape[1:]:
            break
        rows.append(values)
        if sum(map(len, rows)) >= MEASURED_ROWS:
            break
    return make_view(name, measure_channels(torch.cat(rows)))


def find_inputs(name: ViewName, inputs: Any, option: str = "views", role: str = "given") -> Tensor:
    """What the view of that name changes in a batch's inputs: images of at most four channels, or table rows."""
    images = name in IMAGE_NAMES
    values = inputs
    if images and isinstance(inputs, Mapping):
        values = inputs.get(PIXELS)
    if isinstance(values, tuple) and len(values) == 1:
        values = values[0]
    if (
        isinstance(values, Tensor)
        and (values.is_floating_point() or values.dtype == torch.uint8)
        and (values.dim() == 4 and values.shape[1] <= 4 if images else values.dim() == 2)
    ):
        return values
    given = isinstance(inputs, Tensor)
    received = f"{inputs.dtype} tensor of shape {list(inputs.shape)}" if given else type(inputs).__name__
    needed = "images [n, channels, h, w]" if images else "table rows [n, columns]"
    most = ", of at most four channels" if images else ""
    raise ValueError(
        f'{option}="{name}" needs {needed}, floating-point or uint8{most}; the {role} inputs are a {received}. '
        f"Pass {option}=None or a function inputs -> inputs."
    )


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
        changed = changes[name](find_inputs(name, inputs), generator)
        return {**inputs, PIXELS: changed} if isinstance(inputs, Mapping) else changed

    return view
