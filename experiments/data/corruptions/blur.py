"""Blur: every pixel becomes a mean of its neighbours. Images are float64 `[n, 3, h, w]` in [0, 1]."""

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.data.corruptions.draws import Draws
from experiments.data.corruptions.linear import smoothed, zoomed
from experiments.data.corruptions.pixels import truncated


def gaussian_blur(images: Tensor, sigma: float) -> Tensor:
    """A Gaussian of deviation `sigma` pixels, edge pixels repeated."""
    return smoothed(images, sigma)


def glass_blur(images: Tensor, draws: Draws, sigma: float, reach: int, rounds: int) -> Tensor:
    """Blur, let pixels wander by up to `reach` for some `rounds`, blur again."""
    images = truncated(gaussian_blur(images, sigma))
    for turn in range(rounds):
        offsets = draws.between(-reach, reach, f"offsets {turn}", 2, *images.shape[-2:]).floor().long()
        source = wandering_sources(offsets, reach)[:, None].expand(-1, images.shape[1], -1)
        images = images.flatten(2).gather(2, source).view_as(images)
    return gaussian_blur(images, sigma)


def wandering_sources(offsets: Tensor, reach: int) -> Tensor:
    """Where each pixel's value comes from after one sequential walk: `[n, 2, h, w]` offsets -> `[n, h·w]` flat indices.

    The walk visits rows, then columns, from size − reach down to reach + 1 and overwrites pixel p with pixel s(p), its
    neighbour at `offsets[:, :, p]` (row, column), *as it is at that moment*: already overwritten if s(p) was visited
    before, that is if s(p) > p. So the new value of p is the old value of s(p), or the new one where s(p) > p.
    Following the new ones by pointer doubling resolves chains of any length in log2(length) steps instead of h·w.
    """
    height, width = offsets.shape[-2:]
    rows = torch.arange(height, device=offsets.device)[:, None]
    columns = torch.arange(width, device=offsets.device)
    places = rows * width + columns
    visited = (rows > reach) & (rows <= height - reach) & (columns > reach) & (columns <= width - reach)
    source = torch.where(visited, places + offsets[:, 0] * width + offsets[:, 1], places).flatten(1)
    unresolved = source > places.flatten()
    while bool(unresolved.any()):
        source, unresolved = (
            torch.where(unresolved, source.gather(1, source), source),
            unresolved & unresolved.gather(1, source),
        )
    return source


def defocus_blur(images: Tensor, radius: float, alias: float) -> Tensor:
    """Correlate with a disk, borders mirrored at the centre of the edge pixel (d c b | a b c d)."""
    kernel = disk(radius, alias).to(images.device)
    reach = kernel.shape[0] // 2
    channels = F.pad(images, (reach,) * 4, mode="reflect").flatten(0, 1)[:, None]
    return F.conv2d(channels, kernel[None, None]).view_as(images)


def disk(radius: float, alias: float) -> Tensor:
    """A disk of sum 1, itself smoothed by a small Gaussian of sigma `alias`; `[k, k]`, without empty margins.

    On a 17 x 17 grid with a 3 x 3 Gaussian up to radius 8; beyond, on a grid as wide as the disk with a 5 x 5 Gaussian.
    """
    reach, taps_reach = (8, 1) if radius <= 8 else (int(radius), 2)
    axis = torch.arange(-reach, reach + 1)
    inside = (axis**2 + axis[:, None] ** 2 <= radius**2).double()
    taps = torch.exp(-0.5 * (torch.arange(-taps_reach, taps_reach + 1).double() / alias) ** 2)
    taps = torch.outer(taps, taps) / taps.sum() ** 2
    padded = F.pad((inside / inside.sum())[None, None], (taps_reach,) * 4, mode="reflect")
    smooth = F.conv2d(padded, taps[None, None])[0, 0]
    margin = int((smooth[reach] > 0).nonzero()[0])
    return smooth[margin : len(smooth) - margin, margin : len(smooth) - margin]


def motion_blur(images: Tensor, draws: Draws, radius: int, sigma: float) -> Tensor:
    """Motion along an angle of −45 … 45 degrees, one per image."""
    return smeared(images, draws.between(-45, 45, "angle"), radius, sigma)


def smeared(images: Tensor, degrees: Tensor, radius: int, sigma: float) -> Tensor:
    """ImageMagick's motion blur of `[n, c, h, w]` along `degrees` `[n]`: one-sided, edge pixels repeated.

    Tap i = 0 … 2·radius lies i pixels along the angle, rounded to whole pixels (halves down), and weighs exp(−i²/2σ²),
    normalised.
    """
    height, width = images.shape[-2:]
    steps = torch.arange(2 * radius + 1, device=images.device)
    taps = torch.exp(-0.5 * (steps.double() / sigma) ** 2)
    taps /= taps.sum()
    angle = torch.deg2rad(degrees)[:, None]
    down = torch.ceil(steps * angle.sin() - 0.5).long()
    right = torch.ceil(steps * angle.cos() - 0.5).long()
    rows = (down[..., None] + torch.arange(height, device=images.device)).clamp(0, height - 1)
    columns = (right[..., None] + torch.arange(width, device=images.device)).clamp(0, width - 1)
    blurred = torch.zeros_like(images)
    for i in range(len(steps)):
        places = (rows[:, i, :, None] * width + columns[:, i, None, :]).flatten(1)
        moved = images.flatten(2).gather(2, places[:, None].expand(-1, images.shape[1], -1))
        blurred += taps[i] * moved.view_as(images)
    return blurred


def zoom_blur(images: Tensor, count: int, step: float) -> Tensor:
    """The mean of the image and its centre zooms by 1, 1 + step, …, `count` of them.

    The published factors are numpy's arange, whose step is (1 + step) − 1 in floating point. It shows: 26 pixels
    enlarged by 1.2500000000000002 become 33 and are trimmed, by 1.25 they would become 32.
    """
    total = images.clone()
    for k in range(count):
        total += zoomed(images, 1 + k * ((1 + step) - 1))
    return total / (count + 1)
