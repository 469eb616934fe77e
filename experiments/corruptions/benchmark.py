"""The benchmark of Hendrycks & Dietterich (2019): its names, the subsets in use, and what applies one to images."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from .blur import defocus_blur, gaussian_blur, glass_blur, motion_blur, zoom_blur
from .constants import CIFAR, IMAGENET
from .digital import brightness, contrast, elastic_transform, jpeg_compression, pixelate, saturate
from .draws import Draws
from .droplets import spatter
from .noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from .pixels import to_bytes, to_unit
from .weather import fog, frost, frost_photographs, snow

STANDARD = (
    "gaussian_noise", "shot_noise", "impulse_noise",
    "defocus_blur", "glass_blur", "motion_blur", "zoom_blur",
    "snow", "frost", "fog", "brightness",
    "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
"""The benchmark's 15, which Uncertainty Baselines takes for CIFAR-10-C and ImageNet-C."""

NAMES = (*STANDARD, "speckle_noise", "gaussian_blur", "spatter", "saturate")
"""All 19, in the benchmark's order."""

CIFAR100_C = tuple(name for name in NAMES if name not in ("motion_blur", "snow"))
"""The 17 that Uncertainty Baselines takes for CIFAR-100-C."""

LIKE_JITTER = (
    "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "brightness", "contrast", "saturate",
)  # fmt: skip
"""Those that resemble the views "jitter"; a gain under them says little about a shift that was never rehearsed."""

UNLIKE_JITTER = tuple(name for name in NAMES if name not in LIKE_JITTER)

SEVERITIES = (1, 2, 3, 4, 5)

_FIXED: Mapping[str, Callable[..., Tensor]] = {
    "defocus_blur": defocus_blur,
    "zoom_blur": zoom_blur,
    "brightness": brightness,
    "contrast": contrast,
    "pixelate": pixelate,
    "jpeg_compression": jpeg_compression,
    "gaussian_blur": gaussian_blur,
    "saturate": saturate,
}
_RANDOM: Mapping[str, Callable[..., Tensor]] = {
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "glass_blur": glass_blur,
    "motion_blur": motion_blur,
    "snow": snow,
    "fog": fog,
    "elastic_transform": elastic_transform,
    "speckle_noise": speckle_noise,
    "spatter": spatter,
}

_SMALLEST_SIDE = 16
_LARGEST_SMALL_SIDE = 64
_VALUES_ON_CPU = 2**20  # at once: as many float64 as the caches like
_VALUES_ON_CUDA = 2**24  # at once: few launches, and under 2 GB with all temporaries


def corrupt(
    images: Tensor, name: str, severity: int, seed: int, *, first: int = 0, frost_folder: Path | str | None = None
) -> Tensor:
    """The corrupted images: uint8 `[n, 3, h, w]` -> uint8 `[n, 3, h, w]`, on the images' device.

    Sides up to 64 take CIFAR-10-C's constants, larger ones ImageNet-C's. The result for an image depends only on its
    pixels, name, severity, seed and its number in the set, which is `first` for images[0]: a large set may come in
    batches,

        corrupt(images, …)[a:b] == corrupt(images[a:b], …, first=a),

    and CPU and CUDA draw the same random numbers (results may differ by one grey level where the last bit of a sine or
    a sum decides). "frost" reads its photographs from `frost_folder`, $LATES_FROST or the package
    imagecorruptions-imaug.
    """
    _check(images, name, severity, seed, first)
    small = max(images.shape[-2:]) <= _LARGEST_SMALL_SIDE
    constants = (CIFAR if small else IMAGENET)[name][severity - 1]
    photographs = frost_photographs(frost_folder, small=small) if name == "frost" else ()

    def corrupted(start: int, batch: Tensor) -> Tensor:
        draws = Draws(seed, f"{name} {severity}", first + start, len(batch), batch.device)
        if name == "frost":
            return frost(batch, draws, photographs, *constants)
        if name in _RANDOM:
            return _RANDOM[name](batch, draws, *constants)
        return _FIXED[name](batch, *constants)

    result = torch.empty_like(images)
    at_once = max(1, (_VALUES_ON_CUDA if images.is_cuda else _VALUES_ON_CPU) // images.shape[1:].numel())
    for start in range(0, len(images), at_once):
        piece = slice(start, start + at_once)
        result[piece] = to_bytes(corrupted(start, to_unit(images[piece])))
    return result


def _check(images: Tensor, name: str, severity: int, seed: int, first: int) -> None:
    if name not in NAMES:
        raise ValueError(f'Unknown corruption "{name}". The corruptions: {", ".join(NAMES)}.')
    if severity not in SEVERITIES:
        raise ValueError(f"Unknown severity {severity!r}. Severities are 1, 2, 3, 4 and 5.")
    if not isinstance(images, Tensor):
        raise TypeError(
            f"Images as {type(images).__name__}; expected a torch tensor. Of numpy: torch.from_numpy(images)."
        )
    if images.dtype != torch.uint8:
        raise TypeError(
            f"Images of dtype {images.dtype}; corruptions take uint8 pixels, 0 … 255. Corrupt before you scale or "
            "normalise: (images * 255).to(torch.uint8) brings numbers in [0, 1] back."
        )
    if images.ndim != 4 or images.shape[1] != 3 or min(images.shape[-2:]) < _SMALLEST_SIDE:
        raise ValueError(
            f"Images of shape {list(images.shape)}; expected [n, 3, h, w] with h and w at least {_SMALLEST_SIDE}. "
            "Images stored with channels last need .permute(0, 3, 1, 2)."
        )
    if not 0 <= seed < 2**64:
        raise ValueError(f"Seed {seed}; expected 0 <= seed < 2**64.")
    if not 0 <= first <= 2**32 - len(images):
        raise ValueError(f"First image number {first} with {len(images)} images; numbers run from 0 to 2**32 - 1.")
