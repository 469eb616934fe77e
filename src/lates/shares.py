"""This process's share of a loader, and where its rows stand among all.

Batches are dealt out like cards: batch b goes to process b mod size, whole, so that a view or a dropout mask drawn for a
batch is the one that a single process would draw. A `DataLoader` loads its share only; any other loader is read through and
what belongs to others is dropped. Nothing is padded and nothing is read twice; that all processes deal the same cards in the
same order is checked, not believed.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from lates.batches import Batch, count_batches, read_batches
from lates.pooling import tensors_in
from lates.team import Team


class Share:
    """What of `loader` this process reads. `role` names the loader in errors ("train", "holdout")."""

    def __init__(self, loader: Iterable[Any], team: Team, role: str) -> None:
        self.team, self.role = team, role
        self.loader = _without_distributed_sampler(loader, role) if team.size > 1 and team.dealt else loader

    @property
    def batches(self) -> int | None:
        """How many a reading gives, where that is known."""
        length = count_batches(self.loader)
        if length is None or self.team.size == 1 or not self.team.dealt:
            return length
        return len(range(self.team.place, length, self.team.size)) + (self.team.place > 0)

    def read(self, device: torch.device) -> Iterator[tuple[int, Batch]]:
        """(number, batch) for each batch of the share: numbers rise, and no two processes have the same.

        The loader's first batch comes first in every process, under number -1 where it is another's, for all need to see
        what the network makes of it, and because by it the processes know whether they read the same.
        """
        team = self.team
        if team.size == 1:
            yield from enumerate(read_batches(self.loader, device, self.role))
            return
        deal = Deal(team) if team.dealt else None
        source = self.loader if deal is None else deal.of(self.loader)
        for place, batch in enumerate(read_batches(source, device, self.role)):
            if place == 0:
                self._check_first(batch)
            if deal is None:
                yield place * team.size + team.place, batch
            else:
                yield deal.number(place), batch
        if deal is not None and len(set(team.gather((deal.batches, deal.order.hexdigest())))) > 1:
            raise ValueError(
                f"The processes read the {self.role} loader in different orders, or not to the same end: dealt out, rows "
                "would be missed or counted twice. Shuffle with the same seed in all of them, or not at all."
            )

    def _check_first(self, batch: Batch) -> None:
        found = self.team.gather(_digest(batch))
        if self.team.dealt and len(set(found)) > 1:
            raise ValueError(
                f"The {self.role} loaders of the {self.team.size} processes begin with different batches. Pass the same "
                "loader everywhere, unshuffled or shuffled with one seed: its batches are dealt out. If each process reads "
                'rows of its own, say so: shares="own".'
            )
        if not self.team.dealt and len(set(found)) < len(found):
            twins = [place for place, digest in enumerate(found) if found.count(digest) > 1]
            raise ValueError(
                f'shares="own", but the {self.role} loaders of processes {", ".join(map(str, twins))} begin with the same '
                'batch: its rows would count more than once. Pass disjoint shares, or the same loader under shares="dealt".'
            )


class Deal:
    """Deals one reading of a loader: to each process the first batch, and every size-th from its place on."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self.batches = 0
        self.order = hashlib.sha256()

    def number(self, place: int) -> int:
        """The number of this process's `place`-th batch; -1 for the first, if it is another's."""
        own = self.team.place
        return place * self.team.size if own == 0 else -1 if place == 0 else own + (place - 1) * self.team.size

    def of(self, loader: Iterable[Any]) -> Iterable[Any]:
        if type(loader) is not DataLoader or loader.batch_sampler is None:
            return Dealt(self, loader)
        return _like(loader, Dealt(self, loader.batch_sampler, row_numbers=True))

    def takes_next(self) -> bool:
        """Whether the next batch is for this process."""
        number, self.batches = self.batches, self.batches + 1
        return number == 0 or number % self.team.size == self.team.place


class Dealt:
    """What a deal leaves of some batches, or of the lists of row numbers, whose order is noted, that a sampler makes."""

    def __init__(self, deal: Deal, source: Iterable[Any], row_numbers: bool = False) -> None:
        self.deal, self.source, self.row_numbers = deal, source, row_numbers

    def __iter__(self) -> Iterator[Any]:
        for item in self.source:
            if self.row_numbers:
                self.deal.order.update(repr(item).encode())
            if self.deal.takes_next():
                yield item


Number = tuple[int, int]
"""Of a batch among all processes': the pass, and the batch's number in it."""


@dataclass(frozen=True, eq=False)
class Standing:
    """Where this process's rows stand, [n], among the `total` of all in the team."""

    team: Team
    places: Tensor
    total: int

    @staticmethod
    def of(rows: Mapping[Number, int], team: Team) -> "Standing":
        """From how many rows each of this process's batches has; batches stand in the order of their numbers."""
        everywhere = {number: count for share in team.gather(dict(rows)) for number, count in share.items()}
        starts: dict[Number, int] = {}
        total = 0
        for number in sorted(everywhere):
            starts[number], total = total, total + everywhere[number]
        ranges = [torch.arange(starts[number], starts[number] + count) for number, count in rows.items()]
        return Standing(team, torch.cat([torch.empty(0, dtype=torch.int64), *ranges]), total)


def beginning(loader: Iterable[Any]) -> Iterable[Any] | None:
    """One of the batches that `loader` may begin with, as a loader of its own; empty where `loader` is.

    None where reading it would show later: in what the loader draws from a generator of its own, or leaves out the second
    time. So samplers are not run, and a dataset that workers read is read by one of them; only a dataset that draws from a
    generator of its own in this process has then drawn once more.
    """
    if isinstance(loader, list | tuple):
        return loader[:1]
    if isinstance(loader, Dataset) and not hasattr(loader, "__iter__"):
        return [loader[0]] if count_batches(loader) else None
    if type(loader) is not DataLoader or type(loader.batch_sampler) is not BatchSampler:
        return None
    sampler, dataset = loader.batch_sampler.sampler, loader.dataset
    if type(sampler) is SubsetRandomSampler:
        rows = sampler.indices
    elif type(sampler) in (RandomSampler, SequentialSampler) and isinstance(dataset, Sized):
        rows = range(len(dataset))
    else:
        return None
    first = [list(rows[: loader.batch_sampler.batch_size])] if len(loader) else []
    return _like(loader, first, apart=True)


def _without_distributed_sampler(loader: Iterable[Any], role: str) -> Iterable[Any]:
    """All rows once, in order: a `DistributedSampler` repeats rows to give every process equally many."""
    if not isinstance(loader, DataLoader) or not isinstance(loader.sampler, DistributedSampler):
        return loader
    rows, batch = loader.dataset, loader.batch_size
    if type(loader) is DataLoader and loader.sampler.dataset is rows and isinstance(rows, Sized) and batch is not None:
        return _like(loader, BatchSampler(range(len(rows)), batch, loader.drop_last))
    raise ValueError(
        f"The {role} loader reads through a {type(loader.sampler).__name__}, which may repeat rows, in a form that cannot be "
        "undone. Pass a plain DataLoader without it: its batches are dealt out among the processes."
    )


def _like(loader: DataLoader, batches: Iterable[list[int]], apart: bool = False) -> DataLoader:
    """The same loader over other batches; `apart`: with one worker at most, and without a draw from its generator."""
    return DataLoader(
        loader.dataset,
        batch_sampler=batches,
        num_workers=min(loader.num_workers, 1) if apart else loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=None if apart else loader.generator,
        prefetch_factor=loader.prefetch_factor,
        pin_memory_device=loader.pin_memory_device,
    )


def _digest(batch: Batch) -> str:
    seen = hashlib.sha256()
    plain = (values for values in tensors_in(batch.inputs) if values.layout == torch.strided and not values.is_nested)
    for values in (batch.labels, *plain):
        seen.update(values.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return seen.hexdigest()
