"""Views: inputs -> inputs that the network never saw.

A network has memorised its training images; probes trained on those very images inherit its overconfidence. Views repair this
and cost nothing at inference. The functions here choose the view; `augmentations` has the changes themselves.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lates.network.augmentations import ChannelScale, flip, jitter, measure_channels, robust, shift
from lates.network.batches import read_batches
from lates.settings import Settings

ViewName = Literal["flip", "shift", "jitter", "robust"]
View = Callable[[Any], Any]
Views = Literal["auto"] | ViewName | View | None
DrawView = Callable[[Any, torch.Generator], Any]
"""A view as `extract` calls it: built-in views draw from the generator, a user's function from the seeded global one."""
NAMES: tuple[ViewName, ...] = get_args(ViewName)

PIXELS = "pixel_values"
"""The key under which `transformers` passes images."""

MEASURED_IMAGES = 1024
"""The channel scale is measured on this many images."""

NEEDED = "needs images [n, channels, h, w], floating-point or uint8, of at most four channels"


def choose_view(
    views: Views, loader: Iterable[Any], device: torch.device, role: str, settings: Settings
) -> DrawView | None:
    """The function that draws views: None, the user's, or a built-in one on the scale of the loader's channels."""
    if views is None:
        return None
    if callable(views):
        return lambda inputs, _: views(inputs)
    option = "holdout_views" if role == "holdout" else "views"
    if views not in (*NAMES, "auto"):
        raise ValueError(
            f'Unknown {option}="{views}". Known: None, {", ".join(NAMES)}, auto, or a function inputs -> inputs.'
        )
    name = settings.views if views == "auto" else views
    if name is None:
        return None
    needed = MEASURED_IMAGES if name in ("jitter", "robust") else 1
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


def find_images(inputs: Any) -> Tensor | None:
    """The images [n, c, h, w] in a batch's inputs (floating-point or uint8, at most four channels), or None."""
    images = inputs.get(PIXELS) if isinstance(inputs, Mapping) else inputs
    if isinstance(images, tuple) and len(images) == 1:
        images = images[0]
    if not isinstance(images, Tensor) or images.dim() != 4 or images.shape[1] > 4:
        return None
    return images if images.is_floating_point() or images.dtype == torch.uint8 else None


def make_view(name: ViewName, scale: ChannelScale) -> DrawView:
    """The built-in view of that name, for inputs that hold images."""
    changes: dict[ViewName, Callable[[Tensor, torch.Generator], Tensor]] = {
        "flip": flip,
        "shift": shift,
        "jitter": lambda images, generator: jitter(shift(images, generator), scale, generator),
        "robust": lambda images, generator: robust(images, scale, generator),
    }

    def view(inputs: Any, generator: torch.Generator) -> Any:
        images = find_images(inputs)
        if images is None:
            raise ValueError(f'views="{name}" {NEEDED}. Pass views=None or a function inputs -> inputs.')
        changed = changes[name](images, generator)
        return {**inputs, PIXELS: changed} if isinstance(inputs, Mapping) else changed

    return view


def _describe(inputs: Any) -> str:
    if isinstance(inputs, Tensor):
        return f"a {inputs.dtype} tensor of shape {list(inputs.shape)}"
    return f"a {type(inputs).__name__}"
