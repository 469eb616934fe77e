"""The ten corruptions of CIFAR-10-C-bar. Images are float64 `[n, 3, side, side]` in [0, 1].

Source: Mintun, Kirillov & Xie (2021), "On Interaction Between Augmentations and Corruptions in Natural Corruption
Robustness", and their code (facebookresearch/augmentation-corruption, folder imagenet_c_bar). The last argument of each
function is their severity, a number from 0 to 10. What differs from their code, beside the generator of random numbers:

- All arithmetic is float64 and truncated once, at the end; theirs rotates in float32 and truncates after every line.
- Each frequency of a noise has its own phase; theirs has pairs of frequencies that share one.
- A line's ends are cut at right angles to it; theirs end in a row or column of pixels.
- "aberration" has one b; in the names of their files it has two.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.data.corruptions.draws import Draws
from experiments.data.corruptions.linear import cubic_matrix, separable
from experiments.data.corruptions.pixels import truncated

_GREY = 128 / 255
_MOST_RAYS = 200
_MOST_CELLS = 40  # 4 sides over the smallest cell, a tenth of a side
_TURNS = 21


def blue_noise_sample(images: Tensor, draws: Draws, severity: float) -> Tensor:
    """Black where noise with amplitudes in proportion to frequency is below a threshold in standard deviations."""
    amplitude = _frequencies(images.shape[-1], draws.device)
    return images * (noise_of(amplitude, draws, 1) > 0.3 * severity - 2.5)


def brownish_noise(images: Tensor, draws: Draws, severity: float) -> Tensor:
    """Noise with amplitudes 1 / (1 + frequency²), in each channel its own, and with a mean of its own."""
    amplitude = 1 / (1 + _frequencies(images.shape[-1], draws.device).square())
    return images + 6.4 * severity / 255 * noise_of(amplitude, draws, 3)


def noise_of(amplitude: Tensor, draws: Draws, channels: int) -> Tensor:
    """Noise with this spectrum `[h, h]`, random phases and deviation 1, `[n, channels, h, h]`."""
    phase = draws.between(0, 2 * math.pi, "phase", channels, *amplitude.shape)
    noise = torch.fft.ifft2(torch.polar(amplitude.expand_as(phase), phase)).real
    return noise / noise.std(dim=(2, 3), correction=0, keepdim=True)


def _frequencies(side: int, device: torch.device) -> Tensor:
    waves = torch.fft.fftfreq(side, 1 / side, dtype=torch.float64, device=device)
    return torch.hypot(waves, waves[:, None])


def checkerboard_cutout(images: Tensor, draws: Draws, severity: float) -> Tensor:
    """A share of the black fields of a turned checkerboard becomes grey.

    As published, a field's number is truncated, not rounded down: the two fields along an axis share their fate.
    """
    side = images.shape[-1]
    rows, columns = _pixels(side, draws.device)
    angle = draws.between(0, 2 * math.pi, "angle", 1, 1)
    cell = side * draws.between(0.1, 0.25, "cell", 1, 1)
    down = (angle.cos() * rows + angle.sin() * columns) / cell
    across = (angle.cos() * columns - angle.sin() * rows) / cell
    black = (down.floor() + across.floor()) % 2 == 0
    grid = draws.uniform("grid", _MOST_CELLS**2) < severity / 10
    number = (down.trunc() % _MOST_CELLS) * _MOST_CELLS + across.trunc() % _MOST_CELLS
    cut = black & grid.gather(1, number.long().flatten(1)).view_as(black)
    return torch.where(cut[:, None], _GREY, images)


def inverse_sparkles(images: Tensor, draws: Draws, severity: float) -> Tensor:
    """White but for what one star of rays lets through."""
    side = images.shape[-1]
    centres = side * draws.between(0.25, 0.75, "centres", 1, 2)
    light = star_light(draws, centres, ray_lengths(draws, 1, side / 4), side, exponent=0.13 * severity)
    return 1 - light * (1 - images)


def sparkles(images: Tensor, draws: Draws, severity: float) -> Tensor:
    """Five white stars, one over the other."""
    side = images.shape[-1]
    centres = side * draws.uniform("centres", 5, 2)
    lengths = ray_lengths(draws, 5, side * severity / 100).clamp(min=1)
    light = star_light(draws, centres, lengths, side, exponent=1.0)
    return 1 - (1 - light).prod(dim=1, keepdim=True) * (1 - images)


def ray_lengths(draws: Draws, stars: int, radius: float) -> Tensor:
    """Normal with mean `radius` and a quarter of it as deviation, `[n, stars, 200]`."""
    return radius * (1 + 0.25 * draws.normal("lengths", stars, _MOST_RAYS))


def star_light(draws: Draws, centres: Tensor, lengths: Tensor, side: int, *, exponent: float) -> Tensor:
    """Light of stars at `centres` `[n, stars, 2]`, `[n, stars, side, side]` in [0, 1].

    A star has 50 to 199 rays. At distance d, a share f of the way from one ray to the next, it shines with
    (length² / d²)^exponent · (1 − (f − ½)²), the length interpolated between the two rays.
    """
    rows, columns = _pixels(side, draws.device)
    down, right = rows - centres[..., :1, None], columns - centres[..., 1:, None]
    rays = draws.between(50, _MOST_RAYS, "rays", centres.shape[1], 1, 1).floor()
    place = (torch.atan2(right, down) / (2 * math.pi) + 0.5) * rays
    share = place % 1
    here, there = (lengths.gather(2, ((place.floor() + step) % rays).long().flatten(2)).view_as(share) for step in (0, 1))
    length = here + share * (there - here)
    light = (length**2 / (down**2 + right**2 + 1e-4)) ** exponent
    return ((1 - (share - 0.5) ** 2) * light).clamp(max=1)


def pinch_and_twirl(images: Tensor, draws: Draws, severity: float) -> Tensor:
    """In each field of a 3 x 3 grid, a disk is drawn to its centre and turned, each field to its own side."""
    field = images.shape[-1] // 3
    radius = field / 2
    rows, columns = _pixels(images.shape[-1], draws.device)
    row, column = ((pixel // field).clamp(max=2) for pixel in (rows, columns))
    centre_row, centre_column = row * field + radius, column * field + radius
    down, right = rows - centre_row, columns - centre_column
    distance = (torch.hypot(down, right) / radius).clamp(1e-9, 1)  # beyond the disk as on its rim: all stays
    stretch = (math.pi / 2 * distance).sin() ** -(0.04 * severity + 0.1)
    sides = torch.where(draws.uniform("side", 9) < 0.5, -1.0, 1.0)[:, (3 * row + column).long()]
    angle = sides * (math.pi / 20) * severity * (1 - distance) ** 2
    return _sampled(
        images,
        centre_row + stretch * (down * angle.cos() - right * angle.sin()),
        centre_column + stretch * (down * angle.sin() + right * angle.cos()),
    )


def ripple(images: Tensor, draws: Draws, severity: float) -> Tensor:
    """Rows move as a sine of the row, columns as a sine of the column."""
    side = images.shape[-1]
    wavelengths = side * draws.between(0.1, 0.3, "wavelengths", 2, 1, 1)
    phases = draws.between(0, 2 * math.pi, "phases", 2, 1, 1)
    moved = (
        pixel + 0.0025 * severity * side * (2 * math.pi * pixel / wavelengths[:, axis] + phases[:, axis]).sin()
        for axis, pixel in enumerate(_pixels(side, draws.device))
    )
    return _sampled(images, *moved)


def _sampled(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Bilinear samples at pixel coordinates that broadcast to `[n, h, w]`; all is black beyond the border."""
    grid = torch.stack(torch.broadcast_tensors(columns, rows), dim=-1)
    return F.grid_sample(images, 2 * grid / (images.shape[-1] - 1) - 1, padding_mode="zeros", align_corners=True)


def circular_motion_blur(images: Tensor, severity: float) -> Tensor:
    """A weighted mean of 21 rotations by up to ±1.5 · severity degrees, with cubic splines and black beyond the border.

    All of it is one matrix on flat images: rotation takes pixel p from row r(p) and column c(p), and its weights on the
    pixels (i, j) are the products of r(p)'s weights on row i and c(p)'s on column j.
    """
    side = images.shape[-1]
    rows, columns = (pixel - (side - 1) / 2 for pixel in _pixels(side, torch.device("cpu")))
    part = torch.linspace(-1, 1, _TURNS, dtype=torch.float64)[:, None, None]
    angle = torch.deg2rad(1.5 * severity * part)
    sources = torch.stack([angle.cos() * rows - angle.sin() * columns, angle.sin() * rows + angle.cos() * columns])
    sources = (sources + (side - 1) / 2).flatten(2)
    inside = ((sources >= 0) & (sources <= side - 1)).all(dim=0)
    factors = (-2 * part.square()).exp().flatten(1)
    on_rows, on_columns = cubic_matrix(sources, side)
    on_rows *= (inside * factors / factors.sum())[..., None]
    blur = torch.einsum("apr,apc->prc", on_rows, on_columns).flatten(1)
    unspline = torch.linalg.inv(cubic_matrix(torch.arange(side), side))
    coefficients = separable(images, unspline, unspline)
    return (coefficients.flatten(2) @ blur.to(images.device).T).view_as(images)


def lines(images: Tensor, draws: Draws, severity: float) -> Tensor:
    """Grey lines, one pixel wide, about a random direction; a pixel's share of a line is 1 less their distance."""
    side = images.shape[-1]
    count = int(severity * side / 10)
    middles = side * draws.uniform("middles", count, 2)
    spread = draws.between(0.1, 1, "spread", 1) * draws.between(-math.pi, math.pi, "turn", count)
    angle = draws.between(0, 2 * math.pi, "angle", 1) + spread
    reach = side * torch.stack([angle.cos(), angle.sin()], dim=-1)
    start, end = (middles - reach).trunc(), (middles + reach).trunc()
    along = (end - start)[..., None, None]
    length = along.square().sum(dim=2).sqrt()
    rows, columns = _pixels(side, draws.device)
    down, right = rows - start[..., :1, None], columns - start[..., 1:, None]
    distance = (along[:, :, 0] * right - along[:, :, 1] * down).abs() / length
    place = (along[:, :, 0] * down + along[:, :, 1] * right) / length
    cover = (1 - distance).clamp(min=0) * ((place >= 0) & (place <= length))
    return _GREY + (1 - cover).prod(dim=1, keepdim=True) * (images - _GREY)


def transverse_chromatic_aberration(images: Tensor, draws: Draws, severity: float) -> Tensor:
    """The channels, in random order, enlarged by 1, 1 + severity/40 and 1 + severity/20 about the centre.

    Pixels are taken for the coefficients of a cubic spline, as published: even the channel enlarged by 1 is smoothed. Grey
    levels are rounded.
    """
    side = images.shape[-1]
    matrices: list[Tensor] = []
    for factor in (1, 1 + severity / 40, 1 + severity / 20):
        length = round(side * factor)
        kept = torch.arange(side).double() + (length - side) // 2
        matrices.append(cubic_matrix(kept * (side - 1) / (length - 1), side))
    order = draws.uniform("order", 3).argsort(dim=1)
    enlarge = torch.stack(matrices).to(images.device)[order]
    return truncated(enlarge @ images @ enlarge.mT + 0.5 / 255)


def _pixels(side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The numbers of rows `[side, 1]` and of columns `[1, side]`."""
    numbers = torch.arange(side, dtype=torch.float64, device=device)
    return numbers[:, None], numbers[None]
