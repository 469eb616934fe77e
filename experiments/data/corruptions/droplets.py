"""Spatter: drops of water or mud on the lens. Images are float64 `[n, 3, h, w]` in [0, 1].

Water is drawn the way the published data draw it: the relief of a drop comes from the distance to its outline. The
stages follow OpenCV to the bit: layers are float64 `[n, 1, h, w]` holding whole numbers 0 … 255 unless said.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.data.corruptions.blur import gaussian_blur
from experiments.data.corruptions.draws import Draws

_WATER = (175 / 255, 238 / 255, 238 / 255)
_MUD = (63 / 255, 42 / 255, 20 / 255)

_SOBEL = ((-1, 0, 1), (-2, 0, 2), (-1, 0, 1))
_EMBOSS = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))
_WEAK_EDGE, _STRONG_EDGE = 50, 150
_TAN_22 = 13573 / 2**15  # tan 22.5° in 15 bits; tan 67.5° is 2 more
_FARTHEST = 20.0
_STEP, _DIAGONAL, _KNIGHT = 1.0, 91750 / 2**16, 143976 / 2**16  # 1, 1.4 and 2.1969 in 16 bits
_MOVES = (
    *((down, right, _STEP) for down, right in ((0, 1), (0, -1), (1, 0), (-1, 0))),
    *((down, right, _DIAGONAL) for down in (-1, 1) for right in (-1, 1)),
    *((down, right, _KNIGHT) for down in (-1, 1) for right in (-2, 2)),
    *((down, right, _KNIGHT) for down in (-2, 2) for right in (-1, 1)),
)


def spatter(
    images: Tensor,
    draws: Draws,
    mean: float,
    deviation: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: bool,
) -> Tensor:
    """A blurred noise layer, zero below `threshold`, becomes mud that covers or water that shines.

    Where it exceeds 1, eight bits wrap: the published data have a hole in the deepest water.
    """
    liquid = gaussian_blur(mean + deviation * draws.normal("liquid", 1, *images.shape[-2:]), sigma)
    liquid = torch.where(liquid < threshold, 0.0, liquid)
    if mud:
        cover = gaussian_blur((liquid > threshold).double(), strength)
        cover = torch.where(cover < 0.8, 0.0, cover)
        return images * (1 - cover) + cover * _colour(_MUD, images)
    shine = water_relief((liquid * 255).floor() % 256)
    return images + strength * shine * _colour(_WATER, images)


def _colour(colour: tuple[float, float, float], images: Tensor) -> Tensor:
    return images.new_tensor(colour)[:, None, None]


def water_relief(liquid: Tensor) -> Tensor:
    """Depth of the liquid times the embossed distance to its outlines, scaled to a maximum of 1; 0 where all is dry."""
    distance = distance_to(outlines(liquid))
    relief = equalised(_mean3(distance).float().floor().double())
    relief = _correlate3(relief, _EMBOSS).clamp(0, 255)
    relief = liquid * _mean3(relief).round()
    return relief / relief.amax(dim=(1, 2, 3), keepdim=True).clamp(min=1)


def outlines(layer: Tensor) -> Tensor:
    """Canny's edges of `[n, 1, h, w]`, as booleans.

    Sobel gradients; their size |gx| + |gy| must exceed both neighbours along the gradient's direction (in steps of 45
    degrees); kept are strong edges and the weak ones that touch them through others.
    """
    padded = F.pad(layer, (1, 1, 1, 1), mode="replicate")
    sobel = layer.new_tensor(_SOBEL)
    gradient = F.conv2d(padded, torch.stack([sobel, sobel.T])[:, None])
    gx, gy = gradient[:, :1], gradient[:, 1:]
    ax, ay = gx.abs(), gy.abs()
    size = ax + ay
    around = F.pad(size, (1, 1, 1, 1))

    def exceeds(down: int, right: int, ties: bool) -> Tensor:
        """Larger than the neighbour behind; than the one ahead, larger or (`ties`) equal."""
        behind, ahead = _moved(around, -down, -right, 1), _moved(around, down, right, 1)
        return (size > behind) & (size >= ahead if ties else size > ahead)

    diagonal = torch.where(gx * gy < 0, exceeds(1, -1, ties=False), exceeds(1, 1, ties=False))
    peak = torch.where(ay > ax * (_TAN_22 + 2), exceeds(1, 0, ties=True), diagonal)
    peak = torch.where(ay < ax * _TAN_22, exceeds(0, 1, ties=True), peak)
    candidates = peak & (size > _WEAK_EDGE)
    edges = candidates & (size > _STRONG_EDGE)
    while True:
        grown = candidates & (F.max_pool2d(edges.to(layer.dtype), 3, stride=1, padding=1) > 0)
        if torch.equal(grown, edges):
            return edges
        edges = grown


def distance_to(edges: Tensor) -> Tensor:
    """Length of the shortest path to an edge, at most 20: `[n, 1, h, w]` booleans -> pixels.

    A path is made of steps (1), diagonals (1.4) and knight's moves (2.1969). Distances are relaxed, all pixels at once,
    until none falls; nothing longer than the cap need ever be found.
    """
    distance = torch.where(edges, 0.0, _FARTHEST).double()
    while True:
        padded = F.pad(distance, (2, 2, 2, 2), value=_FARTHEST)
        relaxed = distance
        for down, right, length in _MOVES:
            relaxed = torch.minimum(relaxed, _moved(padded, down, right, 2) + length)
        if torch.equal(relaxed, distance):
            return distance
        distance = relaxed


def equalised(layer: Tensor) -> Tensor:
    """Histogram equalisation of each layer: the darkest level becomes 0, the brightest 255; a flat layer stays."""
    levels = layer.flatten(1).long()
    histogram = torch.zeros(len(levels), 256, dtype=torch.float64, device=layer.device)
    histogram.scatter_add_(1, levels, torch.ones_like(levels, dtype=torch.float64))
    darkest = histogram.gather(1, levels.amin(dim=1, keepdim=True))
    rest = levels.shape[1] - darkest
    table = ((histogram.cumsum(dim=1) - darkest) * (255 / rest.clamp(min=1))).clamp(min=0).round()
    return torch.where(rest[:, :, None, None] == 0, layer, table.gather(1, levels).view_as(layer))


def _mean3(layer: Tensor) -> Tensor:
    return _correlate3(layer, ((1, 1, 1),) * 3) / 9


def _correlate3(layer: Tensor, taps: tuple[tuple[int, int, int], ...]) -> Tensor:
    return F.conv2d(F.pad(layer, (1, 1, 1, 1), mode="reflect"), layer.new_tensor(taps)[None, None])


def _moved(padded: Tensor, down: int, right: int, margin: int) -> Tensor:
    """The neighbours `down` and `right` of every pixel, from a layer padded by `margin`."""
    height, width = padded.shape[-2] - 2 * margin, padded.shape[-1] - 2 * margin
    return padded[..., margin + down : margin + down + height, margin + right : margin + right + width]
