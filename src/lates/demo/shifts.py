"""Test images as a worse camera would take them.

Under each shift the network classifies 77 to 82 % of the *hold-out* images correctly. Noise and blur have the strength tried
first; contrast was weakened to match, since at 0.4, tried first, the network was right on 15 % of the test images.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from lates.demo.images import Split

NOISE = 0.1
BLUR = 1.0
CONTRAST = 0.8


def shift_split(test: Split, seed: int = 0) -> dict[str, Split]:
    """The test images [n, 1, h, w] as they are and under each shift, with the same labels."""
    images = test.images
    variants = {
        "as they are": images,
        "noise": add_noise(images, seed),
        "contrast": lower_contrast(images),
        "blur": blur(images),
    }
    return {name: Split(variant, test.labels) for name, variant in variants.items()}


def add_noise(images: Tensor, seed: int = 0) -> Tensor:
    """Gaussian noise of standard deviation `NOISE`, clipped to [0, 1]."""
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(seed))
    return (images + NOISE * noise).clamp(0, 1)


def lower_contrast(images: Tensor) -> Tensor:
    """Each pixel's distance from the image's mean, times `CONTRAST`."""
    mean = images.mean((2, 3), keepdim=True)
    return mean + CONTRAST * (images - mean)


def blur(images: Tensor) -> Tensor:
    """Convolution with a Gaussian of standard deviation `BLUR` pixels, edges replicated; first down, then across."""
    reach = round(3 * BLUR)
    kernel = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / BLUR) ** 2)
    kernel = (kernel / kernel.sum()).view(1, 1, -1, 1)
    padded = F.pad(images, (reach, reach, reach, reach), mode="replicate")
    return F.conv2d(F.conv2d(padded, kernel), kernel.mT)
