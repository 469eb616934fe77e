"""Filters and resampling along one axis, as matrices.

Gaussian blur, zoom and box resampling are linear and separable, so each is two small matrices: out = R · image · Cᵀ.
The matrix holds the border rule, whatever its reach, and a batch is two matrix products. All matrices are float64 on
the CPU.
"""

import math
from typing import Literal

import torch
from torch import Tensor

Border = Literal["nearest", "reflect"]


def separable(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """R · image · Cᵀ: `[…, h, w]`, `[h', h]`, `[w', w]` -> `[…, h', w']`."""
    return rows.to(images.device) @ (images @ columns.to(images.device).T)


def smoothed(images: Tensor, sigma: float, truncate: float = 4.0, border: Border = "nearest") -> Tensor:
    """By a Gaussian whose taps reach int(truncate·sigma + ½) pixels and are normalised.

    Beyond the border "nearest" repeats the last pixel and "reflect" mirrors at the pixel's outer edge (d c b a | a b c d), as
    often as the taps reach.
    """
    return separable(images, *(_gaussian_matrix(size, sigma, truncate, border) for size in images.shape[-2:]))


def _gaussian_matrix(size: int, sigma: float, truncate: float, border: Border) -> Tensor:
    reach = int(truncate * sigma + 0.5)
    offsets = torch.arange(-reach, reach + 1)
    taps = torch.exp(-0.5 * (offsets.double() / sigma) ** 2) if reach else torch.ones(1, dtype=torch.float64)
    return _scatter(torch.arange(size)[:, None] + offsets, taps / taps.sum(), size, border)


def zoomed(images: Tensor, factor: float) -> Tensor:
    """The central ceil(size / factor) pixels, enlarged by `factor` and trimmed to the size.

    Linear interpolation, first pixel onto first and last onto last; what is then too long is trimmed on both sides.
    """
    return separable(images, *(_zoom_matrix(size, factor) for size in images.shape[-2:]))


def _zoom_matrix(size: int, factor: float) -> Tensor:
    crop = math.ceil(size / factor)
    length = round(crop * factor)
    position = torch.arange(size).double() + (length - size) // 2
    position *= (crop - 1) / (length - 1)
    left = position.floor().clamp(max=crop - 2)
    share = position - left
    start = (size - crop) // 2
    indices = (start + left.long())[:, None] + torch.arange(2)
    return _scatter(indices, torch.stack([1 - share, share], dim=1), size, "nearest")


def box_matrix(size: int, target: int) -> Tensor:
    """Resample `size` pixels to `target` with Pillow's box filter, `[target, size]`.

    A new pixel is the plain mean of the old ones whose centre lies in its footprint (at least one old pixel wide).
    Weights are rounded to 22 bits as Pillow's are, so that ties round the same way.
    """
    scale = size / target
    width = max(scale, 1.0)
    old = torch.arange(size)
    centre = (torch.arange(target).double()[:, None] + 0.5) * scale
    start, stop = ((centre + side * width + 0.5).long() for side in (-0.5, 0.5))
    distance = (old - centre + 0.5) * (1 / width)
    inside = ((old >= start) & (old < stop) & (distance > -0.5) & (distance <= 0.5)).double()
    return (inside / inside.sum(dim=1, keepdim=True) * 2**22).round() / 2**22


def cubic_matrix(points: Tensor, size: int) -> Tensor:
    """What a cubic B-spline weighs at `points` `[…, m]` in [0, size − 1], `[…, m, size]`.

    Applied to pixels it smooths; applied to pixels behind the inverse of the matrix at 0 … size − 1, it interpolates.
    Borders are mirrored at the centre of the edge pixel (c b | a b c).
    """
    distance = (points.double()[..., None] - torch.arange(-1, size + 1)).abs()
    far = (2 - distance).clamp(min=0) ** 3 / 6
    weights = torch.where(distance < 1, 2 / 3 - distance**2 + distance**3 / 2, far)
    matrix = weights[..., 1:-1].clone()
    matrix[..., 1] += weights[..., 0]
    matrix[..., -2] += weights[..., -1]
    return matrix


def _scatter(indices: Tensor, weights: Tensor, size: int, border: Border) -> Tensor:
    """The matrix that adds `weights` at `indices` `[size, taps]`, those beyond the border mapped back by its rule."""
    if border == "nearest":
        indices = indices.clamp(0, size - 1)
    else:
        indices = indices % (2 * size)
        indices = torch.minimum(indices, 2 * size - 1 - indices)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    return matrix.scatter_add_(1, indices, weights.expand(indices.shape))
