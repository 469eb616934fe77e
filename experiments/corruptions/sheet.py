"""One picture of everything, for the eye: a row per corruption, a column per severity."""

from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from .benchmark import NAMES, SEVERITIES, corrupt

_TILE = 64
_GAP = 6
_MARGIN = 130


def contact_sheet(images: Tensor, path: Path | str, seed: int = 0, *, frost_folder: Path | str | None = None) -> None:
    """Write a PNG of `images`, uint8 `[n, 3, h, w]`, n small: clean in the first column, then severities 1 … 5."""
    zoom = max(1, _TILE // images.shape[-2])
    strip_height, strip_width = images.shape[-2] * zoom, len(images) * images.shape[-1] * zoom
    sheet = Image.new(
        "RGB",
        (_MARGIN + (1 + len(SEVERITIES)) * (strip_width + _GAP), 20 + len(NAMES) * (strip_height + _GAP)),
        "white",
    )
    pen = ImageDraw.Draw(sheet)
    for column, heading in enumerate(("clean", *(f"severity {severity}" for severity in SEVERITIES))):
        pen.text((_MARGIN + column * (strip_width + _GAP), 4), heading, fill="black")
    for row, name in enumerate(NAMES):
        top = 20 + row * (strip_height + _GAP)
        pen.text((4, top + strip_height // 2 - 6), name, fill="black")
        cells = (images, *(corrupt(images, name, severity, seed, frost_folder=frost_folder) for severity in SEVERITIES))
        for column, cell in enumerate(cells):
            sheet.paste(_strip(cell, zoom), (_MARGIN + column * (strip_width + _GAP), top))
    sheet.save(path, "PNG")


def _strip(images: Tensor, zoom: int) -> Image.Image:
    """The images side by side, each pixel `zoom` pixels wide."""
    row = torch.cat(list(images.permute(0, 2, 3, 1)), dim=1)
    return Image.fromarray(row.repeat_interleave(zoom, 0).repeat_interleave(zoom, 1).cpu().numpy())
