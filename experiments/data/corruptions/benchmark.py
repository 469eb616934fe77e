"""The benchmark of Hendrycks & Dietterich (2019) and CIFAR-10-C-bar: their names, the subsets in use, and what applies one
to images."""

from collections.abc import Callable
from inspect import signature

import torch
from torch import Tensor

from experiments.data.corruptions import bar, blur, digital, droplets, noise, weather
from experiments.data.corruptions.constants import BAR, CIFAR, IMAGENET
from experiments.data.corruptions.draws import Draws
from experiments.data.corruptions.pixels import is_small, to_bytes, to_unit

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

BAR_NAMES = (
    "blue_noise_sample", "brownish_noise", "checkerboard_cutout", "inverse_sparkles", "pinch_and_twirl", "ripple",
    "circular_motion_blur", "lines", "sparkles", "transverse_chromatic_aberration",
)  # fmt: skip
"""The ten of CIFAR-10-C-bar (Mintun, Kirillov & Xie, 2021), chosen to be far from the benchmark's."""

SEVERITIES = (1, 2, 3, 4, 5)

_MODULES = (noise, blur, weather, droplets, digital, bar)
_VALUES_ON_CPU = 2**20  # at once: as many float64 as the caches like
_VALUES_ON_CUDA = 2**24  # at once: few launches, and under 2 GB with all temporaries


def corrupt(images: Tensor, name: str, severity: int, seed: int) -> Tensor:
    """The corrupted images: uint8 `[n, 3, h, w]` -> uint8 `[n, 3, h, w]`, on the images' device.

    Sides up to 64 take CIFAR-10-C's constants, larger ones ImageNet-C's; those of `BAR_NAMES` take squares up to 64. The
    result for an image depends only on its pixels, name, severity, seed and its number in the set: CPU and CUDA draw the
    same random numbers (results may differ by one grey level where the last bit of a sine or a sum decides). "frost" reads
    its photographs from $LATES_FROST or the package imagecorruptions-imaug.
    """
    table = BAR if name in BAR_NAMES else CIFAR if is_small(images) else IMAGENET
    constants = table[name][severity - 1]
    function: Callable[..., Tensor] = next(vars(module)[name] for module in _MODULES if name in vars(module))
    result = torch.empty_like(images)
    at_once = max(1, (_VALUES_ON_CUDA if images.is_cuda else _VALUES_ON_CPU) // images.shape[1:].numel())
    for start in range(0, len(images), at_once):
        batch = to_unit(images[start : start + at_once])
        draws = Draws(seed, f"{name} {severity}", start, len(batch), batch.device)
        chance = (draws,) if "draws" in signature(function).parameters else ()
        result[start : start + at_once] = to_bytes(function(batch, *chance, *constants))
    return result
