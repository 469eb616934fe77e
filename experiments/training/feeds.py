"""What a step of training sees: its images, and what chance does to them."""

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from experiments.data.datasets import FolderSet, ImageSet, decode_batches, scale


def derive_seed(*parts: int) -> int:
    """A seed from several numbers, the same on every machine; unlike their sum it never collides by accident."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "little") >> 1


class EpochDraws:
    """An epoch's random choices: the order of the images, the flip and the shift of each.

    They are drawn on the CPU, so that they do not depend on the device. The last, partial batch is left out. The tensors keep
    their place in memory from epoch to epoch, so that a captured step finds them.
    """

    def __init__(self, images: int, batch: int, crop: int, seed: int, device: torch.device) -> None:
        self.images, self.crop, self.seed, self.device = images, crop, seed, device
        self.steps = images // batch
        shape = (self.steps, batch)
        self.order = torch.zeros(shape, dtype=torch.int64, device=device)
        self.flips = torch.zeros(shape, dtype=torch.bool, device=device)
        self.shifts = torch.zeros((*shape, 2), dtype=torch.int64, device=device)

    def begin(self, epoch: int) -> None:
        generator = torch.Generator().manual_seed(derive_seed(self.seed, epoch))
        order = torch.randperm(self.images, generator=generator)
        flips = torch.rand(self.images, generator=generator) < 0.5
        shifts = torch.randint(-self.crop, self.crop + 1, (self.images, 2), generator=generator)
        for kept, drawn in ((self.order, order), (self.flips, flips), (self.shifts, shifts)):
            kept.copy_(drawn[: self.order.numel()].unflatten(0, (self.steps, -1)))

    def order_at(self, step: Tensor) -> Tensor:
        """The images of one step, indices [b]; `step` is a tensor [1]."""
        return self.order.index_select(0, step % self.steps)[0]

    def augment(self, images: Tensor, chosen: Tensor, step: Tensor) -> Tensor:
        """Gather `chosen` [b] of uint8 images [n, 3, h, w], shift, flip, scale: float32 [b, 3, h, w], channels last.

        Pixel (r, c) of the result is pixel (r + dr, c' + dc) of the image, with c' = w − 1 − c where it is flipped, and
        zero outside of the image. It is one gather, so it compiles to one kernel.
        """
        height, width = images.shape[2:]
        position = step % self.steps
        flips, shifts = self.flips.index_select(0, position)[0], self.shifts.index_select(0, position)[0]
        rows, columns = torch.arange(height, device=images.device), torch.arange(width, device=images.device)
        rows = rows + shifts[:, :1]  # [b, h]
        columns = torch.where(flips[:, None], width - 1 - columns, columns) + shifts[:, 1:]  # [b, w]
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
        rows, columns = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
        picked = images.permute(0, 2, 3, 1)[chosen[:, None, None], rows[:, :, None], columns[:, None, :]]
        return scale((picked * inside[..., None]).permute(0, 3, 1, 2))


# A feed is where batches come from. `begin` (the steps of an epoch from `position` on) and `advance` (the next step) run on the
# host; `batch` is device work that a graph holds: images float32 [b, 3, h, w] in [0, 1] and labels [b] of a step, a tensor [1].


class ResidentFeed:
    """All images lie on the device."""

    def __init__(self, data: ImageSet, draws: EpochDraws) -> None:
        self.draws = draws
        resident = data.to(draws.device)
        self.images = resident.images.contiguous(memory_format=torch.channels_last)
        self.labels = resident.labels

    def begin(self, epoch: int, position: int) -> None:
        self.draws.begin(epoch)

    def advance(self) -> None:
        """The step finds its images by itself."""

    def batch(self, step: Tensor) -> tuple[Tensor, Tensor]:
        chosen = self.draws.order_at(step)
        return self.draws.augment(self.images, chosen, step), self.labels[chosen]


class StreamedFeed:
    """Worker processes decode image files; each batch is copied to the same place on the device."""

    def __init__(self, data: FolderSet, draws: EpochDraws, workers: int) -> None:
        self.data, self.draws, self.workers = data, draws, workers
        device, size = draws.device, draws.order.shape[1]
        self.images = torch.zeros((size, 3, data.size, data.size), dtype=torch.uint8, device=device)
        self.labels = torch.zeros(size, dtype=torch.int64, device=device)
        self.positions = torch.arange(size, device=device)
        self.loaded: Iterator[tuple[Tensor, Tensor]] = iter(())

    def begin(self, epoch: int, position: int) -> None:
        self.draws.begin(epoch)
        pinned = self.draws.device.type == "cuda"
        remaining = self.draws.order[position:].tolist()
        self.loaded = decode_batches(self.data, remaining, self.workers, pinned=pinned)

    def advance(self) -> None:
        images, labels = next(self.loaded)
        self.images.copy_(images, non_blocking=True)
        self.labels.copy_(labels, non_blocking=True)

    def batch(self, step: Tensor) -> tuple[Tensor, Tensor]:
        return self.draws.augment(self.images, self.positions, step), self.labels


Feed = ResidentFeed | StreamedFeed
