"""Test-time augmentation: log of the mean over views v of softmax(f(v(x))), then a temperature.

`views_of` draws the copies: the image with its mirror image, two forward passes, the least there is; or shifted copies, five
passes, what an ensemble of five networks costs at inference.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

import lates

SHIFTS = 5
Views = Callable[[Tensor], list[Tensor]]
"""images -> copies of them to average over"""


def with_mirror_image(images: Tensor) -> list[Tensor]:
    return [images, images.flip(-1)]


def shifted(seed: int) -> Views:
    """The image as it is and shifted copies of it, half of all mirrored; the same draws for every batch."""

    def views(images: Tensor) -> list[Tensor]:
        generator = torch.Generator(images.device).manual_seed(seed)
        moved = [lates.views.shift(images, generator) for _ in range(SHIFTS - 1)]
        return [images, *(copy.flip(-1) if place % 2 else copy for place, copy in enumerate(moved))]

    return views


def mean_logits(network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], views: Views) -> Tensor:
    """[n, classes]: log-probabilities, which are valid logits."""
    parts: list[Tensor] = []
    with torch.no_grad():
        for images, _ in batches:
            logs = torch.stack([network(copy).float().log_softmax(1) for copy in views(images)])
            parts.append(logs.logsumexp(0) - math.log(len(logs)))
    return torch.cat(parts)
