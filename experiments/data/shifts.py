"""Families of shift for choosing defaults (`results/choosing-defaults.md`): unlike the views and the benchmark's corruptions.

Each takes images [n, 3, h, w] in [0, 1], its strength and a generator on the images' device.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Shift = Callable[[Tensor, float, torch.Generator], Tensor]


def turn_hue(images: Tensor, degrees: float, generator: torch.Generator) -> Tensor:
    """Colours rotated about the grey axis."""
    angle = math.radians(degrees)
    cross = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]) / math.sqrt(3)
    turn = math.cos(angle) * torch.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * torch.full((3, 3), 1 / 3)
    return torch.einsum("dc,nchw->ndhw", turn.to(images), images).clamp(0, 1)


def occlude(images: Tensor, side: float, generator: torch.Generator) -> Tensor:
    """A square patch of another image, `side` pixels wide, at a random place."""
    n, _, height, width = images.shape
    top = _integers(n, height - int(side) + 1, generator)
    left = _integers(n, width - int(side) + 1, generator)
    rows, columns = _pixels(images)
    inside_rows = (rows >= top) & (rows < top + side)
    inside_columns = (columns >= left) & (columns < left + side)
    return torch.where((inside_rows[:, :, None] & inside_columns[:, None, :])[:, None], images.roll(1, 0), images)


def wave(images: Tensor, amplitude: float, generator: torch.Generator) -> Tensor:
    """Places displaced by `amplitude` pixels times a sine along a random direction, of 8 to 16 pixels' wavelength."""
    n, _, height, width = images.shape
    along, towards, phase = (2 * math.pi * _uniform(n, generator) for _ in range(3))
    wavelength = 8 + 8 * _uniform(n, generator)
    y, x = torch.meshgrid(*_pixels(images), indexing="ij")
    sine = torch.sin(2 * math.pi / wavelength * (x * along.cos() + y * along.sin()) + phase)
    columns = x + amplitude * towards.cos() * sine
    rows = y + amplitude * towards.sin() * sine
    grid = torch.stack([(2 * columns + 1) / width - 1, (2 * rows + 1) / height - 1], -1)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def resample(images: Tensor, side: float, generator: torch.Generator) -> Tensor:
    """Nearest neighbours at `side` pixels, then bicubic back to the size."""
    small = functional.interpolate(images, size=(int(side), int(side)), mode="nearest-exact")
    return functional.interpolate(small, size=images.shape[2:], mode="bicubic", align_corners=False).clamp(0, 1)


def draw_lines(images: Tensor, number: float, generator: torch.Generator) -> Tensor:
    """`number` random rows or columns set to black or white."""
    n, _, height, width = images.shape
    changed = images.clone()
    rows, columns = _pixels(images)
    for _ in range(int(number)):
        across = _uniform(n, generator) < 0.5
        colour = (_uniform(n, generator) < 0.5).to(images)[:, None]
        in_rows = (rows == _integers(n, height, generator))[:, :, None]
        in_columns = (columns == _integers(n, width, generator))[:, None, :]
        changed = torch.where(torch.where(across, in_rows, in_columns)[:, None], colour, changed)
    return changed


def vignette(images: Tensor, least: float, generator: torch.Generator) -> Tensor:
    """Light falling with the squared distance from a point near the centre, to `least` at the farthest corner."""
    n, _, height, width = images.shape
    centre_y, centre_x = (0.6 * _uniform(n, generator) - 0.3 for _ in range(2))
    y = torch.linspace(-1, 1, height, device=images.device)[:, None]
    x = torch.linspace(-1, 1, width, device=images.device)[None, :]
    squared = (y - centre_y).square() + (x - centre_x).square()
    return images * (1 - (1 - least) * squared / squared.amax((1, 2), keepdim=True))[:, None]


def _pixels(images: Tensor) -> list[Tensor]:
    """The numbers of rows and of columns."""
    return [torch.arange(length, device=images.device) for length in images.shape[2:]]


def _uniform(n: int, generator: torch.Generator) -> Tensor:
    return torch.rand(n, 1, 1, generator=generator, device=generator.device)


def _integers(n: int, limit: int, generator: torch.Generator) -> Tensor:
    return torch.randint(limit, (n, 1), generator=generator, device=generator.device)


FAMILIES: dict[str, tuple[Shift, tuple[float, float]]] = {
    "hue": (turn_hue, (40.0, 90.0)),
    "occlusion": (occlude, (12.0, 18.0)),
    "wave": (wave, (1.0, 2.0)),
    "resampling": (resample, (24.0, 18.0)),
    "lines": (draw_lines, (3.0, 8.0)),
    "vignette": (vignette, (0.5, 0.15)),
}


def shifted_sets(images: Tensor, seed: int) -> dict[str, Tensor]:
    """Every family at both strengths, named family/strength."""
    sets: dict[str, Tensor] = {}
    for place, (name, (apply, strengths)) in enumerate(FAMILIES.items()):
        for strength in strengths:
            generator = torch.Generator(images.device).manual_seed(1000 * seed + place)
            sets[f"{name}/{strength:g}"] = apply(images, strength, generator)
    return sets
