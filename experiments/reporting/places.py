"""What the fields of templates name: networks, metrics with groups of test sets, methods. See `prose`."""

import re
from collections.abc import Sequence

from experiments.data.corruptions import BAR_NAMES, NAMES
from experiments.recipes import CIFAR_SETS, RECIPES
from experiments.reporting.names import METHOD_TITLES, METRIC_TITLES, in_words
from experiments.reporting.summaries import (
    GROUPS,
    PAPER_TRAINING,
    PLAIN,
    Architectures,
    Group,
    Measured,
    networks_of,
    trained,
)

_PLACE = re.compile(
    r"((?P<training>strong|public|again):)?(?P<dataset>\w+)(/(?P<network>\w+))?(#(?P<seed>\d+))?(\?(?P<method>\w+))?(@(?P<train>[\d.]+))?(~(?P<rate>[\d.]+))?"
)


class Place:
    """Networks by data set, architecture and training."""

    def __init__(self, text: str) -> None:
        if (parsed := _PLACE.fullmatch(text)) is None:
            raise ValueError(f'"{text}" is no place')
        self.parsed = parsed.groupdict()
        check_methods(*filter(None, [self.parsed["method"]]))

    @property
    def title(self) -> str:
        """The network and the data set, or the share of the training split."""
        if train := self.parsed["train"]:
            return f"{float(train):.0%} to train".replace("%", " %")
        names = ", ".join(in_words(name) for name in (self.parsed["network"], self.parsed["dataset"]) if name)
        return names + (f", dropout {rate}" if (rate := self.parsed["rate"]) else "")

    def networks(self, measured: Sequence[Measured], *, ensemble: bool = False) -> Architectures:
        method = self.parsed["method"]
        found = self._trained(measured, ensemble)
        if not method:
            return found
        with_method = self._trained(measured, ensemble=method == "ensemble")
        run = [bool(cells) and all(method in each.methods for each in cells) for cells in with_method]
        return [cells for cells, was_run in zip(found, run, strict=True) if was_run]

    def _trained(self, measured: Sequence[Measured], ensemble: bool) -> Architectures:
        parsed, training = self.parsed, self.parsed["training"] or PAPER_TRAINING
        parts = {part[0]: part for part in (*RECIPES["low_data"].fractions, *RECIPES["holdout_size"].fractions)}
        part = parts[float(parsed["train"] or PLAIN[0])]
        options = {"dropout": float(parsed["rate"] or 0), "training": training, "ensemble": ensemble}
        return [
            [each for each in cells if parsed["seed"] in (None, str(each.cell.seed))]
            for dataset in (CIFAR_SETS if parsed["dataset"] == "both" else (parsed["dataset"],))
            for network in ([parsed["network"]] if parsed["network"] else networks_of(dataset, training))
            for cells in [trained(measured, dataset, network, part, **options)]
        ]


def places_named(measured: Sequence[Measured], text: str) -> list[Place]:
    """Joined by commas; for one that ends in `/*`, a place for each network that was run."""
    found: list[Place] = []
    for name in text.split(","):
        whole = name.removesuffix("/*")
        run = [cells[0].cell.network for cells in Place(whole).networks(measured) if cells] if whole != name else []
        found += [Place(f"{whole}/{network}") for network in run] or [Place(whole)]
    return found


def columns_named(text: str) -> list[tuple[str, Group]]:
    """Metric and group of test sets of each column."""
    pairs = [column.split(":") for column in text.split(",")]
    for metric, _ in pairs:
        check_metric(metric)
    return [(metric, group_named(sets)) for metric, sets in pairs]


def group_named(sets: str) -> Group:
    return Group(sets.replace("_", " "), (sets,)) if sets in (*NAMES, *BAR_NAMES) else GROUPS[sets]


def check_metric(metric: str) -> None:
    """A misspelt name would otherwise read "not run"."""
    if metric not in METRIC_TITLES:
        raise ValueError(f'"{metric}" is no metric')


def check_methods(*methods: str) -> None:
    for method in methods:
        if method not in METHOD_TITLES and in_words(method) == method:
            raise ValueError(f'"{method}" is no method')


def listed(items: Sequence[str]) -> str:
    """One, two and three."""
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))
