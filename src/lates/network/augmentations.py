"""Random changes of images [n, c, h, w], flip, shift, jitter, robust, and of table rows [n, columns], noise, swap. Both are
floating-point or uint8.

A *robust* view of an image is, with probability one half, the image only shifted. Otherwise the shifted image goes through
AugMix's mixing of those operations that resemble none of the common corruptions, and then through the jitter:

    x' = jitter((1 - m) x + m sum_j w_j chain_j(x)),    w ~ Dirichlet(1, 1, 1),    m ~ U(0, 1).

Strengths are in units of the training inputs: jitter in those of the channel deviation, the mixing in those of the channel's
range, u = (x - low) / (high - low). So images in [0, 1], in 0…255 and normalised ones are treated alike. Draws come from
`generator`, which must be on the images' device; None is torch's global one. The host never waits for a GPU.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

LARGEST_SHIFT = 1 / 8
"""The largest shift, as a fraction of height and width (4 of 32 pixels)."""
BRIGHTNESS, TINT, CONTRAST, NOISE = 0.4, 0.15, 0.35, 0.3
"""Standard deviation of the brightness added, of the tint added per channel, of the log of contrast; the largest standard
deviation of the noise."""
SHIFTED_ONLY = 0.5
"""The fraction of images that a robust view only shifts."""
CHAINS = 3
ANGLE, SHEAR, TRANSLATION = math.radians(23), 0.25, 0.125
"""The largest rotation, shear and translation (as a fraction of the side) of a chain."""
LEVELS = 256
"""Grey levels, for the histogram that equalises and for posterising."""
ROW_NOISE = 0.3
"""The deviation of the noise on table rows, in units of the column's."""
SWAP_SHARE = 0.15
"""The share of a table's entries that are swapped."""


@dataclass(frozen=True)
class ChannelScale:
    """Deviation, minimum and maximum of the training inputs per channel, each [c, 1, 1]."""

    deviation: Tensor
    low: Tensor
    high: Tensor


def measure_channels(images: Tensor) -> ChannelScale:
    values = images.double().transpose(0, 1).flatten(1)
    deviation, low, high = values.std(1, correction=0), values.amin(1), values.amax(1)
    return ChannelScale(*(value.to(working_dtype(images))[:, None, None] for value in (deviation, low, high)))


def flip(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Each image mirrored left to right with probability one half: the paper's views."""
    return torch.where(_Random(images, generator).uniform() < 0.5, images.flip(-1), images)


def shift(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Each image moved by up to `LARGEST_SHIFT` of its height and width, edge pixels repeated."""
    n, _, height, width = images.shape

    def positions(length: int) -> Tensor:
        largest = int(length * LARGEST_SHIFT)
        offsets = torch.randint(-largest, largest + 1, (n, 1), generator=generator, device=images.device)
        return (torch.arange(length, device=images.device) + offsets).clamp(0, length - 1)

    down, across = positions(height), positions(width)
    batch = torch.arange(n, device=images.device)[:, None, None]
    return images.permute(0, 2, 3, 1)[batch, down[:, :, None], across[:, None, :]].permute(0, 3, 1, 2)


def jitter(images: Tensor, scale: ChannelScale, generator: torch.Generator | None = None) -> Tensor:
    """Brightness, tint, contrast and light noise, each drawn per image, within the range of the training inputs."""
    random = _Random(images, generator)
    values = images.to(random.dtype)
    centre = values.mean((2, 3), keepdim=True)
    contrast = torch.exp(CONTRAST * random.normal())
    offset = BRIGHTNESS * random.normal() + TINT * random.normal(images.shape[1])
    noise = random.uniform(0, NOISE) * random.normal(*images.shape[1:])
    changed = centre + contrast * (values - centre) + scale.deviation * (offset + noise)
    return as_dtype_of(images, changed.clamp(scale.low, scale.high))


def robust(images: Tensor, scale: ChannelScale, generator: torch.Generator | None = None) -> Tensor:
    """Each image only shifted with probability one half, otherwise shifted, mixed and jittered."""
    extent = (scale.high - scale.low).clamp(min=torch.finfo(scale.low.dtype).tiny)

    def mix_and_jitter(images: Tensor) -> Tensor:
        random = _Random(images, generator)
        unit = ((images.to(random.dtype) - scale.low) / extent).clamp(0, 1)
        return as_dtype_of(images, jitter(scale.low + extent * _mix_chains(unit, random), scale, generator))

    shifted = shift(images, generator)
    return _where(_Random(images, generator).uniform() >= SHIFTED_ONLY, mix_and_jitter, shifted)


def _where(chosen: Tensor, change: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """The images, changed where `chosen` [n, 1, 1, 1]. A CPU changes only these; a GPU changes all, because the host would have
    to wait for it to know which."""
    if images.device.type != "cpu":
        return torch.where(chosen, change(images), images)
    indices = chosen.flatten().nonzero()[:, 0]
    return images.index_copy(0, indices, change(images[indices])) if len(indices) else images


class _Random:
    """Random numbers for each of the images, [n, columns, height, width], in the dtype in which images are changed."""

    def __init__(self, images: Tensor, generator: torch.Generator | None) -> None:
        self.n, self.generator, self.device = len(images), generator, images.device
        self.dtype = working_dtype(images)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> Tensor:
        return low + (high - low) * self._empty().uniform_(generator=self.generator)

    def integer(self, low: int, high: int) -> Tensor:
        """One of low, …, high, both included."""
        return self.uniform(low, high + 1).floor()

    def normal(self, columns: int = 1, height: int = 1, width: int = 1) -> Tensor:
        return self._empty(columns, height, width).normal_(generator=self.generator)

    def simplex(self, columns: int) -> Tensor:
        """Dirichlet(1, …, 1): exponential variables over their sum."""
        parts = self._empty(columns).exponential_(generator=self.generator)
        return parts / parts.sum(1, keepdim=True)

    def _empty(self, columns: int = 1, height: int = 1, width: int = 1) -> Tensor:
        return torch.empty(self.n, columns, height, width, device=self.device, dtype=self.dtype)


def _mix_chains(images: Tensor, random: _Random) -> Tensor:
    """(1 - m) x + m sum_j w_j chain_j(x), images in [0, 1]"""
    weights, mixed_in = random.simplex(CHAINS), random.uniform()
    mixed = (1 - mixed_in) * images
    for weight in weights.split(1, dim=1):
        mixed += mixed_in * weight * _apply_chain(images, random)
    return mixed


def _apply_chain(images: Tensor, random: _Random) -> Tensor:
    """One affine change (rotation, shear and translation at once), then one operation on the values, or none."""
    images = warp(
        images,
        angle=random.uniform(-ANGLE, ANGLE),
        shear=(random.uniform(-SHEAR, SHEAR), random.uniform(-SHEAR, SHEAR)),
        translation=(random.uniform(-TRANSLATION, TRANSLATION), random.uniform(-TRANSLATION, TRANSLATION)),
    )
    operations = (
        autocontrast,
        equalize,
        lambda images: posterize(images, bits=_Random(images, random.generator).integer(3, 6)),
        lambda images: solarize(images, threshold=_Random(images, random.generator).uniform(0.5, 1)),
    )
    choice = random.integer(0, len(operations))  # 0: none
    for number, operation in enumerate(operations, start=1):
        images = _where(choice == number, operation, images)
    return images


def warp(images: Tensor, angle: Tensor, shear: tuple[Tensor, Tensor], translation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotation by `angle`, shear along both axes, translation by fractions of the sides; edge pixels repeated.

    The matrix maps points of the result to points of the image, in coordinates from -1 to 1 in which a side is 2 long.
    """
    angle, (across, down) = angle.flatten(), (part.flatten() for part in shear)
    right, low = (2 * part.flatten() for part in translation)
    cosine, sine = angle.cos(), angle.sin()
    first = torch.stack([cosine - sine * down, cosine * across - sine, right], 1)
    second = torch.stack([sine + cosine * down, sine * across + cosine, low], 1)
    grid = functional.affine_grid(torch.stack([first, second], 1), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def autocontrast(images: Tensor) -> Tensor:
    """Each channel stretched to [0, 1]; a constant channel stays."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    return torch.where(high > low, (images - low) / (high - low).clamp(min=1e-6), images)


def equalize(images: Tensor) -> Tensor:
    """Each value replaced by the fraction of its channel's pixels below its grey level, the brightest level left out.

    Counted in integers, whose sums are deterministic on a GPU too.
    """
    levels = (images * (LEVELS - 1)).round().long().flatten(2)
    counts = torch.zeros(*levels.shape[:2], LEVELS, dtype=torch.int64, device=images.device)
    counts.scatter_add_(2, levels, counts.new_ones(()).expand(levels.shape))
    below = counts.cumsum(2) - counts
    total = below.gather(2, levels.amax(2, keepdim=True))
    equalized = (below.gather(2, levels) / total.clamp(min=1)).to(images.dtype).view(images.shape)
    return torch.where(total[..., None] > 0, equalized, images)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """The highest `bits` of eight kept; the small constant keeps a whole level from being rounded down."""
    step = 2 ** (8 - bits)
    return (images * (LEVELS - 1) / step + 1e-4).floor() * step / (LEVELS - 1)


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    return torch.where(images >= threshold, 1 - images, images)


def noise(rows: Tensor, scale: ChannelScale, generator: torch.Generator | None = None, strength: float = ROW_NOISE) -> Tensor:
    """Normal noise on every entry, of `strength` deviations of its column; a constant column stays as it is."""
    drawn = torch.empty(rows.shape, device=rows.device, dtype=working_dtype(rows)).normal_(generator=generator)
    changed = rows + strength * scale.deviation.flatten() * drawn
    return as_dtype_of(rows, changed if rows.is_floating_point() else changed.clamp(0, 255))


def swap(rows: Tensor, generator: torch.Generator | None = None, share: float = SWAP_SHARE) -> Tensor:
    """A share of the entries replaced by those of the same column in other rows of the batch, each of which is as likely."""
    n, device = len(rows), rows.device
    if n < 2:
        return rows
    offsets = torch.randint(1, n, rows.shape, generator=generator, device=device)
    donors = (torch.arange(n, device=device)[:, None] + offsets) % n
    swapped = torch.rand(rows.shape, generator=generator, device=device) < share
    return torch.where(swapped, rows.gather(0, donors), rows)


def working_dtype(images: Tensor) -> torch.dtype:
    """At least float32: in 16 bits neither histograms nor grey levels are exact."""
    return torch.promote_types(images.dtype, torch.float32)


def as_dtype_of(images: Tensor, values: Tensor) -> Tensor:
    """`values` in the images' dtype, rounded where that is an integer."""
    return (values if images.is_floating_point() else values.round()).to(images.dtype)
