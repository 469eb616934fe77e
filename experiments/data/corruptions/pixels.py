"""Eight bits to numbers in [0, 1] and back.

Corruptions compute in float64: sums of many taps then err by 1e-13 of a grey level, on CPU and CUDA alike (no TF32),
and what the published data truncate is truncated here.
"""

import torch
from torch import Tensor

_EPSILON = 1e-6  # of a grey level: an exact 100 that rounding left at 99.99999999 stays 100


def is_small(images: Tensor) -> bool:
    """Whether CIFAR's constants fit, not ImageNet's."""
    return max(images.shape[-2:]) <= 64


def to_unit(images: Tensor) -> Tensor:
    """uint8 -> float64 in [0, 1]."""
    return images.double() / 255


def to_bytes(images: Tensor) -> Tensor:
    """Clip to [0, 1], scale to 0 … 255 and truncate (not round) -> uint8."""
    return (images.clamp(0, 1) * 255 + _EPSILON).to(torch.uint8)


def truncated(images: Tensor) -> Tensor:
    """What is left of numbers in [0, 1] after a passage through eight bits."""
    return to_unit(to_bytes(images))
