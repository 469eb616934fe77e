"""How the defaults were chosen: the rounds of `results/choosing-defaults.md` with its rule, and the first search.

Each file of a round is one network. Of each candidate it holds the metrics on hold-out images, clean and under each family of
shift, and how much worse (accuracy: lower) they are than those of other candidates, with the paired standard error.
"""

import csv
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from experiments.data.files import DamagedError, parse_json
from experiments.data.shifts import FAMILIES
from experiments.reporting.names import in_words
from experiments.reporting.tables.markdown import Table, number, signed

REFERENCE = "temperature"
BASE = "robust, robust hold-out"
STATISTICS = ("blocks", "blocks and image", "standardised", "blocks and votes", "blocks and image and votes")
LISTED = (
    *("none", "shift", "jitter", "robust", "published", BASE, f"{BASE}, to Brier"),
    *(f"{BASE}, gated by {what}{loss}" for what in STATISTICS for loss in ("", ", to Brier")),
)
SECOND_ROUND = (
    *("none", "shift", "jitter", "robust", "robust, to Brier", BASE, f"{BASE}, to Brier"),
    *("robust, rescaled", "robust, to Brier, rescaled"),
)
THIRD_ROUND = tuple(
    probes + weights
    for probes in ("robust", "robust, capped", "robust, last", "robust, last, capped")
    for weights in ("", ", rescaled", ", light copies", ", robust hold-out")
)
ROUNDS = (LISTED, SECOND_ROUND, THIRD_ROUND)
"""The candidates that the page listed before the first measurement of each round. Temperature scaling's variants are shown, not
chosen."""
SHIFTED = "shifted"


@dataclass(frozen=True)
class Search:
    """network -> its file"""

    networks: dict[str, dict[str, Any]]

    @property
    def first(self) -> dict[str, Any]:
        return next(iter(self.networks.values()))

    @property
    def metrics(self) -> Sequence[str]:
        return self.first["metrics"]

    @property
    def listed(self) -> Sequence[str]:
        """The candidates of the round."""
        return next(listed for listed in ROUNDS if set(listed) <= self.first["candidates"].keys())

    @property
    def defaults(self) -> Sequence[str]:
        """The candidates for the default: in the third round those that are fitted on the hold-out as it is."""
        return THIRD_ROUND[::4] if self.listed is THIRD_ROUND else self.listed

    def value(self, candidate: str, images: str, metric: str) -> float:
        """The mean over networks; `images` is "clean", "shifted" or a family."""
        place = self.metrics.index(metric)
        return mean(file["candidates"][candidate]["value"][images][place] for file in self.networks.values())

    def violations(self, candidate: str, without: str | None = None) -> int:
        """How often it is worse than temperature scaling by more than one paired standard error, of all networks, metrics and
        families but `without`."""
        if candidate == REFERENCE:
            return 0
        return sum(
            worse > error
            for file in self.networks.values()
            for family, metrics in file["candidates"][candidate]["worse than"][REFERENCE].items()
            if family in FAMILIES and family != without
            for worse, error in metrics
        )

    def rank(self, candidate: str, without: str | None = None) -> tuple[int, float]:
        """By violations, then by clean NLL."""
        return self.violations(candidate, without), self.value(candidate, "clean", "nll")

    def choose(self, candidates: Collection[str] | None = None, without: str | None = None) -> str:
        """The candidate of the lowest rank, by default of all for the default."""
        return min(candidates or self.defaults, key=lambda candidate: self.rank(candidate, without))

    def worse(self, candidate: str, other: str, images: str, metric: str) -> tuple[float, float]:
        """By how much, the mean over networks, and its standard error: as if the networks' errors were fully correlated."""
        if candidate == other:
            return 0.0, 0.0
        place = self.metrics.index(metric)
        compared = [file["candidates"][candidate]["worse than"][other][images] for file in self.networks.values()]
        return mean(each[place][0] for each in compared), mean(each[place][1] for each in compared)

    def choose_for_shift(self) -> str:
        """The lowest ECE under shift among the candidates whose NLL there is within one standard error of the lowest."""
        lowest = min(self.listed, key=lambda name: self.value(name, SHIFTED, "nll"))

        def is_near(name: str) -> bool:
            worse, error = self.worse(name, lowest, SHIFTED, "nll")
            return worse <= error

        return min(filter(is_near, self.listed), key=lambda name: self.value(name, SHIFTED, "ece"))


def read_search(folder: Path) -> Search:
    networks: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            file = parse_json(path.read_bytes())
            networks[file["network"]] = file
        except (DamagedError, KeyError) as error:
            raise DamagedError(f"{path} is damaged ({error}). Run `python -m experiments search` again.") from error
    return Search(networks)


# Tables


SHOWN = ("nll", "ece", "accuracy")
HEADER = tuple(f"{images} {in_words(metric)}" for images in ("clean", SHIFTED) for metric in SHOWN)
COLUMNS = (*SHOWN, *(f"shifted_{metric}" for metric in SHOWN))


def round_tables(folder: Path) -> tuple[Table, Table, Table]:
    """Candidates by rank; by how much one is worse than another, where that was kept; and each under each family."""
    search = read_search(folder)
    candidates = search.first["candidates"] if search.networks else {}
    measures = list(product(("clean", SHIFTED), SHOWN))
    rows = tuple(
        (name, str(search.violations(name)), *(number(search.value(name, *measure), 3) for measure in measures))
        for name in sorted(candidates, key=search.rank)
    )
    pairs = tuple(
        (f"{name} − {other}", *(_with_error(*search.worse(name, other, *measure)) for measure in measures))
        for name, file in candidates.items()
        for other in file["worse than"]
    )
    title, note = f"Means over {len(search.networks)} networks", _named(search) if candidates else "Not run."
    return (
        Table(folder.name, title, ("candidate", "violations", *HEADER), rows, note),
        Table(f"{folder.name}_pairs", title, ("pair", *HEADER), pairs, "Positive is worse; ± the paired standard error."),
        _family_table(search, f"{folder.name}_families", title),
    )


def _family_table(search: Search, name: str, title: str) -> Table:
    """A row for the mean of each candidate, and one for each network."""
    measures = list(product(FAMILIES, ("nll", "ece")))
    rows = tuple(
        (label, *(number(of.value(candidate, *measure), 3) for measure in measures))
        for candidate in (search.first["candidates"] if search.networks else ())
        for label, of in (
            (candidate, search),
            *((f"{candidate}, {network}", Search({network: file})) for network, file in search.networks.items()),
        )
    )
    header = ("candidate", *(f"{family} {in_words(metric)}" for family, metric in measures))
    return Table(name, title, header, rows, "Under each family of shift.")


def _with_error(worse: float, error: float) -> str:
    return f"{signed(worse, 4)} ± {number(error, 4)}"


def _named(search: Search) -> str:
    others = {family: search.choose(without=family) for family in FAMILIES}
    changed = [f"; without {family} {name}" for family, name in others.items() if name != search.choose()]
    for_shift = "" if search.listed is LISTED else f" For expected shift: {search.choose_for_shift()}."
    return f"By the rule the default is {search.choose()}{''.join(changed) or ', whichever family is left out'}.{for_shift}"


def candidates_table(file: Path, name: str, title: str) -> Table:
    """Of the first search."""
    rows = tuple(
        (
            row["candidate"],
            f"{100 * float(row['parameters']):.2f} %",
            *(number(float(row[each]), 3) for each in COLUMNS),
        )
        for row in csv.DictReader(file.read_text("utf-8").splitlines() if file.exists() else ())
    )
    return Table(
        name,
        title,
        ("candidate", "parameters", *HEADER),
        rows,
        "CIFAR-100, seed 0, on hold-out images; parameters: added.",
    )
