"""Quantities of methods, as sentences name them: text, "not run" where a network lacks something. See `prose`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from experiments.reporting.names import RIVALS, sign
from experiments.reporting.places import listed
from experiments.reporting.significance import Array, compare, mean_gains, network_gains
from experiments.reporting.summaries import Architectures, Group, Measured, over_architectures
from experiments.reporting.tables.comparisons import better_of
from experiments.reporting.tables.markdown import ABSENT, NOT_RUN, interval, number


@dataclass(frozen=True)
class Quantity:
    """A method, and a rival but for mean and ahead, by one metric on a group of test sets."""

    architectures: Architectures
    metric: str
    group: Group
    method: str
    rival: str = ""

    @property
    def cells(self) -> list[Measured]:
        return [cell for cells in self.architectures for cell in cells]

    def mean(self) -> str:
        return number(self._mean_of(self.method), 3, NOT_RUN)

    def percent(self) -> str:
        ours, theirs = self._mean_of(self.method), self._mean_of(self.rival)
        share = number(100 * sign(self.metric) * (ours - theirs) / theirs, 0, NOT_RUN)
        return share if share == NOT_RUN else f"{share} %"

    def each(self) -> str:
        run = [replace(self, architectures=[cells]) for cells in self.architectures if cells]
        return listed([f"{one.percent()} ({one.cells[0].title})" for one in run]) or NOT_RUN

    def interval(self) -> str:
        gain = compare(self.architectures, self.method, self.rival, self.metric, self.group)
        return interval(gain.t).replace(ABSENT, NOT_RUN)

    def wins(self) -> str:
        return better_of(self._gains_over(self.rival, self.cells), NOT_RUN)

    def ahead(self) -> str:
        """Of every rival that was run on the network."""
        least = [
            np.concatenate([self._gains_over(rival, [cell]) for rival in RIVALS if rival in cell.methods]).min()
            for cell in self.cells
            if self.method in cell.methods
        ]
        return better_of(np.asarray(least), NOT_RUN)

    def least(self) -> str:
        gains: list[tuple[float, str]] = []
        for cell in self.cells:
            ours, theirs = (cell.mean(name, self.metric, self.group.sets) for name in (self.method, self.rival))
            if not math.isnan(ours - theirs):
                text = f"from {number(theirs, 3)} to {number(ours, 3)} ({cell.title})"
                gains.append((sign(self.metric) * (ours - theirs), text))
        return min(gains, default=(0, NOT_RUN))[1]

    def worse(self) -> str:
        return better_of(np.asarray([loss for _, _, loss in self._losses()]), NOT_RUN)

    def where(self) -> str:
        """The corruption of the largest loss first."""
        losses = sorted(self._losses(), key=lambda each: -each[2])
        by_type: dict[str, list[tuple[str, str, float]]] = {}
        for network, name, loss in losses:
            if loss > 0:
                corruption, _, severity = name.rpartition("-")
                by_type.setdefault(corruption, []).append((network, severity, loss))
        found: list[str] = []
        for corruption, of_type in by_type.items():
            severities, networks = sorted({each[1] for each in of_type}), len({each[0] for each in of_type})
            at = f"{corruption.replace('_', ' ')} at severit{'ies' if len(severities) > 1 else 'y'} {listed(severities)}"
            by = " to ".join(dict.fromkeys(number(of_type[place][2], 3) for place in (-1, 0)))
            found.append(f"{at} ({networks} network{'s' if networks > 1 else ''}, by {by})")
        return listed(found) or ("none" if losses else NOT_RUN)

    def _mean_of(self, method: str) -> float:
        return over_architectures(self.architectures, lambda cell: cell.mean(method, self.metric, self.group.sets))

    def _gains_over(self, rival: str, cells: list[Measured]) -> Array:
        return network_gains(cells, self.method, rival, self.metric, self.group.sets)

    def _losses(self) -> list[tuple[str, str, float]]:
        """The network, the test set, and by how much the method is worse there."""
        return [
            (cell.cell.name, name, -float(gains[0, 0]))
            for cell in self.cells
            for name in cell.asked(self.group.sets)
            if len(gains := mean_gains([cell], self.method, self.rival, self.metric, [[name]]))
        ]


ALONE = ("mean", "ahead")
"""The quantities of one method; all others are of two."""
QUANTITIES: Mapping[str, Callable[[Quantity], str]] = {
    name: getattr(Quantity, name) for name in (*ALONE, "percent", "each", "interval", "wins", "worse", "where", "least")
}
