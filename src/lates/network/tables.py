"""Random changes of table rows [n, columns], floating-point or uint8: noise, swap.

Draws come from `generator`, which must be on the rows' device; None is torch's global one.
"""

import torch
from torch import Tensor

from lates.network.augmentations import ChannelScale, as_dtype_of, working_dtype

NOISE = 0.3
"""The deviation of the noise, in units of the column's."""
SWAPPED = 0.15
"""The share of entries that are swapped."""


def noise(
    rows: Tensor, scale: ChannelScale, generator: torch.Generator | None = None, strength: float = NOISE
) -> Tensor:
    """Normal noise on every entry, of `strength` deviations of its column; a constant column stays as it is."""
    drawn = torch.empty(rows.shape, device=rows.device, dtype=working_dtype(rows)).normal_(generator=generator)
    changed = rows + strength * scale.deviation.flatten() * drawn
    return as_dtype_of(rows, changed if rows.is_floating_point() else changed.clamp(0, 255))


def swap(rows: Tensor, generator: torch.Generator | None = None, share: float = SWAPPED) -> Tensor:
    """A share of the entries replaced by those of the same column in other rows of the batch, each of which is as likely."""
    n, device = len(rows), rows.device
    if n < 2:
        return rows
    offsets = torch.randint(1, n, rows.shape, generator=generator, device=device)
    donors = (torch.arange(n, device=device)[:, None] + offsets) % n
    swapped = torch.rand(rows.shape, generator=generator, device=device) < share
    return torch.where(swapped, rows.gather(0, donors), rows)
