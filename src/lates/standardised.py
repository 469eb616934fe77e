"""Standardised features, read in chunks of rows and summed over all of them: all that a probe sees of the data."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from lates.features import Features
from lates.settings import Settings
from lates.threads import in_threads, row_shares, thread_count

CHUNK = {"cpu": 1 << 21}
CHUNK_ELSEWHERE = 1 << 27
"""Numbers, of features and of logits, in rows taken at a time: few enough for the memory, enough to keep a device busy."""
PER_THREAD = 1 << 19
"""Numbers of features worth a thread of their own: of Python's threads only one at a time can begin an operation."""

Share = TypeVar("Share")


class Rows:
    """Standardised features of one block with their labels, read in chunks that threads share; kept, once read, if there is
    room.

    Where several processes hold rows, those here are this one's; `total` counts all of them.
    """

    def __init__(self, split: Features, name: str, centre: Tensor, scale: Tensor, device: torch.device) -> None:
        self.features, self.labels, self.places = split.blocks[name], split.labels, split.places
        self.centre, self.scale, self.device = centre.to(device), scale.to(device), device
        self.classes, self.passes = split.classes, split.passes
        self.team, self.total = split.team, split.all_rows
        self.keeps = False
        threads = thread_count(self.features.numel(), device, PER_THREAD)
        chunks = -(-len(self) // rows_at_once(self.width, self.classes, device))
        self._chunks = row_shares(len(self), -(-chunks // threads) * threads)
        self._shares = [range(len(self._chunks))[share] for share in row_shares(len(self._chunks), threads)]
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

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

    def standardise(self, raw: Tensor) -> Tensor:
        return raw.to(self.device, torch.float64, copy=True).sub_(self.centre).div_(self.scale).float()

    def take(self, places: Tensor) -> Tensor:
        """The rows at these places."""
        return self.standardise(self.features[places.to(self.features.device)])

    def sum(self, of_chunk: Callable[[Tensor, Tensor], Tensor], *shape: int) -> Tensor:
        """Of what is made of the features and labels of a chunk: over the chunks here and over all processes, in float64."""

        def terms(places: range) -> Iterator[Tensor]:
            return (of_chunk(*self._chunk(place)) for place in places)

        return self._added_up(terms, self._shares, shape)

    def mean_over_sample(self, rows: int, of_features: Callable[[Tensor], Tensor], *shape: int) -> Tensor:
        """The mean of a sum over rows, taken over about so many rows, evenly spaced among those of all processes."""
        step = max(self.total // rows, 1)
        chosen = (self.places % step == 0).nonzero()[:, 0]
        threads = thread_count(len(chosen) * self.width, self.device, PER_THREAD)
        at_once = rows_at_once(self.width, self.classes, self.device)

        def terms(places: Tensor) -> Iterator[Tensor]:
            return (of_features(self.take(part)) for part in places.split(at_once))

        sums = self._added_up(terms, [chosen[share] for share in row_shares(len(chosen), threads)], shape)
        return sums / len(range(0, self.total, step))

    def _added_up(
        self, terms: Callable[[Share], Iterator[Tensor]], shares: Sequence[Share], shape: Sequence[int]
    ) -> Tensor:
        def of_share(share: Share) -> Tensor:
            total = torch.zeros(tuple(shape), dtype=torch.float64, device=self.device)
            for term in terms(share):
                total += term
            return total

        return self.team.sum(functools.reduce(torch.add, in_threads(of_share, shares)))

    def _chunk(self, place: int) -> tuple[Tensor, Tensor]:
        if place in self._kept:
            return self._kept[place]
        rows = self._chunks[place]
        chunk = self.standardise(self.features[rows]), self.labels[rows].to(self.device)
        if self.keeps:
            self._kept[place] = chunk
        return chunk


def keep_what_fits(several: Sequence[Rows], memory: int) -> None:
    """Let those rows keep their standardised features whose copies still fit into `memory` bytes."""
    for rows in dict.fromkeys(several):
        size = size_in_bytes(len(rows), rows.width)
        rows.keeps = size <= memory
        memory -= size if rows.keeps else 0


def size_in_bytes(rows: int, width: int) -> int:
    """Of so many standardised rows, or rows of weights: both are float32."""
    return torch.float32.itemsize * rows * width


def rows_at_once(width: int, classes: int, device: torch.device) -> int:
    return max(CHUNK.get(device.type, CHUNK_ELSEWHERE) // (width + classes), 1)
