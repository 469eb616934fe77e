"""Standardised features, read in chunks of rows and summed over all of them: all that a probe sees of the data."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from lates.features import Features
from lates.settings import Settings

CHUNK = {"cpu": 1 << 21}
CHUNK_ELSEWHERE = 1 << 27
"""Numbers, of features and of logits, in rows taken at a time: few enough for the memory, enough to keep a device busy."""


class Rows:
    """Standardised features of one block with their labels, read in chunks; kept whole, once read, if there is room.

    Where several processes hold rows, those here are this one's; `total` counts all of them.
    """

    def __init__(self, split: Features, name: str, centre: Tensor, scale: Tensor, device: torch.device) -> None:
        self.features, self.labels, self.places = split.blocks[name], split.labels, split.places
        self.centre, self.scale, self.device = centre.to(device), scale.to(device), device
        self.classes, self.passes = split.classes, split.passes
        self.team, self.total = split.team, split.all_rows
        self.keeps = False
        self._kept: list[tuple[Tensor, Tensor]] | None = None

    @staticmethod
    def of(split: Features, name: str, device: torch.device, train: Features, settings: Settings) -> "Rows":
        """Rows of one split, standardised, if at all, by the training split's moments."""
        centre, deviation = train.centre[name], train.deviation[name]
        if not settings.standardise:
            centre, deviation = torch.zeros_like(centre), torch.ones_like(deviation)
        return Rows(split, name, centre, deviation, device)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def width(self) -> int:
        return self.features.shape[1]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Chunks of (features, labels)."""
        if self._kept is None and self.keeps:
            self._kept = list(self._chunks())
        return self._chunks() if self._kept is None else iter(self._kept)

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        step = rows_at_once(self.width, self.classes, self.device)
        for features, labels in zip(self.features.split(step), self.labels.split(step), strict=True):
            yield self.standardise(features), labels.to(self.device, copy=True)  # none of inference mode

    def standardise(self, raw: Tensor) -> Tensor:
        return raw.to(self.device, torch.float64, copy=True).sub_(self.centre).div_(self.scale).float()

    def take(self, places: Tensor) -> Tensor:
        """The rows at these places."""
        return self.standardise(self.features[places.to(self.features.device)])

    def sum(self, terms: Iterable[Tensor], *shape: int) -> Tensor:
        """Of tensors that belong to the chunks here: over the chunks and over all processes, in float64."""
        total = torch.zeros(shape, dtype=torch.float64, device=self.device)
        for term in terms:
            total += term
        return self.team.sum(total)

    def mean_over_sample(self, rows: int, term: Callable[[Tensor], Tensor], *shape: int) -> Tensor:
        """The mean of a sum over rows, taken over about so many rows, evenly spaced among those of all processes."""
        step = max(self.total // rows, 1)
        chosen = (self.places % step == 0).nonzero()[:, 0]
        parts = chosen.split(rows_at_once(self.width, self.classes, self.device))
        return self.sum((term(self.take(part)) for part in parts), *shape) / len(range(0, self.total, step))


def keep_what_fits(several: Sequence[Rows], memory: int) -> None:
    """Let those rows keep their standardised features whose copies, of 4 bytes a number, still fit into `memory` bytes."""
    for rows in dict.fromkeys(several):
        size = 4 * len(rows) * rows.width
        rows.keeps = size <= memory
        memory -= size if rows.keeps else 0


def rows_at_once(width: int, classes: int, device: torch.device) -> int:
    return max(CHUNK.get(device.type, CHUNK_ELSEWHERE) // (width + classes), 1)
