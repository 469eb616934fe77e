"""Digital: tone, colour, compression, resolution, geometry. Images are float64 `[n, 3, h, w]` in [0, 1]."""

import io

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from experiments.data.corruptions.draws import Draws
from experiments.data.corruptions.linear import box_matrix, smoothed
from experiments.data.corruptions.pixels import to_bytes, to_unit


def contrast(images: Tensor, factor: float) -> Tensor:
    """(x − mean) · factor + mean, the mean over each image's channel."""
    mean = images.mean(dim=(2, 3), keepdim=True)
    return (images - mean) * factor + mean


def brightness(images: Tensor, amount: float) -> Tensor:
    """HSV value + amount.

    The value v is the largest channel, and at fixed hue and saturation every channel is proportional to it: x · v'/v.
    Black has no hue and turns grey.
    """
    value = images.amax(dim=1, keepdim=True)
    brighter = (value + amount).clamp(max=1)
    return torch.where(value > 0, images * brighter / value, brighter)


def saturate(images: Tensor, factor: float, amount: float) -> Tensor:
    """HSV saturation · factor + amount.

    At fixed hue and value each channel's lack v − x is proportional to the saturation s = (max − min)/max: v − (v −
    x)·s'/s. Where s = 0 the hue is 0, red: only green and blue can lack.
    """
    value = images.amax(dim=1, keepdim=True)
    lack = value - images
    saturation = lack.amax(dim=1, keepdim=True) / torch.where(value > 0, value, 1.0)
    changed = (saturation * factor + amount).clamp(0, 1)
    grey_lack = changed * value * images.new_tensor((0.0, 1.0, 1.0))[:, None, None]
    return value - torch.where(saturation > 0, lack * changed / saturation, grey_lack)


def jpeg_compression(images: Tensor, quality: int) -> Tensor:
    """Through JPEG and back, image by image.

    No threads: measured, they gain nothing, neither at 32 nor at 224 pixels, and sixteen are slower than one.
    """
    pixels = to_bytes(images).permute(0, 2, 3, 1).contiguous().cpu().numpy()
    for picture in pixels:
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "JPEG", quality=quality)
        with Image.open(file) as decoded:
            picture[:] = np.asarray(decoded)
    return to_unit(torch.from_numpy(pixels).to(images.device)).permute(0, 3, 1, 2)


def pixelate(images: Tensor, share: float) -> Tensor:
    """Shrink to int(side · share) with a box filter and grow back likewise.

    As in Pillow, width first, and every pass is rounded (halves up) to eight bits.
    """
    height, width = images.shape[-2:]
    levels = (images * 255).round()
    for lines, dots in ((int(height * share), int(width * share)), (height, width)):
        columns = box_matrix(levels.shape[-1], dots).to(images.device)
        levels = (levels @ columns.T + 0.5).floor()
        rows = box_matrix(levels.shape[-2], lines).to(images.device)
        levels = (rows @ levels + 0.5).floor()
    return levels / 255


def elastic_transform(images: Tensor, draws: Draws, shift: float, smoothness: float, affine: float) -> Tensor:
    """A random affine map, then a smooth random displacement of every pixel; both bilinear.

    The affine map takes three points around the centre to where they are after moves of up to ±affine pixels per
    coordinate; the displacement is shift x uniform noise in (−1, 1), smoothed by a Gaussian of sigma `smoothness`.
    """
    height, width = images.shape[-2:]
    numbers = (torch.arange(length, dtype=torch.float64, device=images.device) for length in (height, width))
    y, x = torch.meshgrid(*numbers, indexing="ij")
    reach = min(height, width) // 3
    corners = images.new_tensor([[reach, reach], [reach, -reach], [-reach, -reach]])
    points = corners + images.new_tensor([width // 2, height // 2])
    moved = points + draws.between(-affine, affine, "affine", 3, 2)
    backwards = torch.linalg.solve(F.pad(moved, (0, 1), value=1.0), points)
    source = torch.stack([x, y, torch.ones_like(x)], dim=-1).flatten(0, 1) @ backwards
    source = source.view(-1, height, width, 2)
    images = _sampled(images, source[..., 0], source[..., 1], mirror_at_centre=True)

    noise = shift * draws.between(-1, 1, "displacement", 2, height, width)
    smooth = smoothed(noise, smoothness, truncate=3.0, border="reflect")
    return _sampled(images, x + smooth[:, 0], y + smooth[:, 1], mirror_at_centre=False)


def _sampled(images: Tensor, x: Tensor, y: Tensor, *, mirror_at_centre: bool) -> Tensor:
    """Bilinear samples of `[n, c, h, w]` at pixel coordinates x, y `[n, h, w]`.

    Borders are mirrored at the centre of the edge pixel (c b | a b c) or at its outer edge (b a | a b c). `grid_sample`
    mirrors at the outermost points of its own coordinates, which align_corners puts at the one or the other.
    """
    height, width = images.shape[-2:]
    if mirror_at_centre:
        grid = torch.stack([2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1], dim=-1)
    else:
        grid = torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], dim=-1)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=mirror_at_centre)
