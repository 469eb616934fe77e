"""Weather: a layer of fog, frost or snow over the image. Images are float64 `[n, 3, h, w]` in [0, 1]."""

import functools
import importlib.util
import os
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from experiments.data.corruptions.blur import smeared
from experiments.data.corruptions.draws import Draws
from experiments.data.corruptions.linear import zoomed
from experiments.data.corruptions.pixels import is_small, truncated

_GREY = (0.299, 0.587, 0.114)
_PHOTOGRAPHS = ("frost1", "frost2", "frost3", "frost4", "frost5")


def fog(images: Tensor, draws: Draws, amount: float, decay: float) -> Tensor:
    """(x + amount · plasma) · max / (max + amount), max being the image's brightest value."""
    height, width = images.shape[-2:]
    side = 1 << (max(height, width) - 1).bit_length()
    mist = amount * plasma(draws, side, decay)[:, None, :height, :width]
    brightest = images.amax(dim=(1, 2, 3), keepdim=True)
    return (images + mist) * brightest / (brightest + amount)


def plasma(draws: Draws, side: int, decay: float) -> Tensor:
    """Diamond–square fractals on a torus, each stretched to [0, 1]: `[n, side, side]`, side a power of two.

    Each level sets the centres of squares, then the midpoints of their sides, to the mean of four neighbours plus a
    uniform wobble. The published generator multiplies a wobble by its own amplitude, so that amplitudes fall by decay²
    per level, not by decay; what they start from is lost in the stretching.
    """

    def wobbled(neighbours: Tensor, kind: str) -> Tensor:
        return neighbours / 4 + draws.between(-roughness, roughness, f"{kind} {step}", *neighbours.shape[1:])

    height = torch.zeros(draws.count, side, side, dtype=torch.float64, device=draws.device)
    step, roughness = side, 1.0
    while step >= 2:
        half = step // 2
        corners = height[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        centres = wobbled(pairs + pairs.roll(-1, 2), "centres")
        across = wobbled(centres + centres.roll(1, 1) + corners + corners.roll(-1, 2), "across")
        down = wobbled(centres + centres.roll(1, 2) + corners + corners.roll(-1, 1), "down")
        height[:, half::step, half::step] = centres
        height[:, ::step, half::step] = across
        height[:, half::step, ::step] = down
        step, roughness = half, roughness / decay**2
    height -= height.amin(dim=(1, 2), keepdim=True)
    return height / height.amax(dim=(1, 2), keepdim=True)


def frost(images: Tensor, draws: Draws, keep: float, amount: float) -> Tensor:
    """keep · x + amount · a random crop of one of the photographs, all equally likely and none smaller than the images.

    For small images the published data shrink the photographs to a fifth by bilinear interpolation without smoothing. A pixel d
    of the result lies at 5·d + 2 of the original, a whole number: every fifth pixel from the third on is that interpolation.
    """
    height, width = images.shape[-2:]
    photographs = _read_photographs(_frost_folder())
    if is_small(images):
        photographs = tuple(photograph[:, 2::5, 2::5] for photograph in photographs)
    room = torch.tensor([[p.shape[1] - height, p.shape[2] - width] for p in photographs], device=images.device)
    tallest, widest = (max(p.shape[axis] for p in photographs) for axis in (1, 2))
    album = torch.stack([F.pad(p, (0, widest - p.shape[2], 0, tallest - p.shape[1])) for p in photographs])

    which = (draws.uniform("photograph") * len(photographs)).long()
    corner = (draws.uniform("corner", 2) * room[which]).long()
    rows = corner[:, 0, None, None] + torch.arange(height, device=images.device)[:, None]
    columns = corner[:, 1, None, None] + torch.arange(width, device=images.device)
    crops = album.to(images.device)[which[:, None, None], :, rows, columns].permute(0, 3, 1, 2)
    return keep * images + amount * crops.double() / 255


def _frost_folder() -> Path:
    """From $LATES_FROST or of the package imagecorruptions."""
    if "LATES_FROST" in os.environ:
        return Path(os.environ["LATES_FROST"])
    package = importlib.util.find_spec("imagecorruptions")
    if package is None or package.origin is None:
        raise FileNotFoundError(
            "The corruption frost needs five photographs and none were found. Install the package "
            "imagecorruptions-imaug, which holds them, or name their folder in the environment variable LATES_FROST."
        )
    return Path(package.origin).parent / "frost"


@functools.cache
def _read_photographs(folder: Path) -> tuple[Tensor, ...]:
    """uint8 `[3, h, w]` each."""
    photographs: list[Tensor] = []
    for name in _PHOTOGRAPHS:
        files = [path for path in (folder / f"{name}.png", folder / f"{name}.jpg") if path.is_file()]
        if not files:
            raise FileNotFoundError(
                f'No {name}.png or {name}.jpg in the frost folder "{folder}". It must hold frost1 … frost5, as the '
                "folder imagecorruptions/frost of the package imagecorruptions-imaug does."
            )
        with Image.open(files[0]) as picture:
            photographs.append(torch.from_numpy(np.array(picture.convert("RGB"))).permute(2, 0, 1))
    return tuple(photographs)


def snow(
    images: Tensor,
    draws: Draws,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    keep: float,
) -> Tensor:
    """Whiten the image, then add a layer of smeared flakes and the same layer turned by half a turn.

    Flakes are normal noise, enlarged, zero below `threshold`, driven along an angle of −135 … −45 degrees; the layer is
    eight bits deep before and after.
    """
    flakes = zoomed(mean + deviation * draws.normal("flakes", 1, *images.shape[-2:]), zoom)
    flakes = truncated(torch.where(flakes < threshold, 0.0, flakes))
    flakes = truncated(smeared(flakes, draws.between(-135, -45, "angle"), radius, sigma))
    grey = torch.einsum("c,nchw->nhw", images.new_tensor(_GREY), images)[:, None]
    pale = keep * images + (1 - keep) * torch.maximum(images, 1.5 * grey + 0.5)
    return pale + flakes + flakes.flip(-2, -1)
