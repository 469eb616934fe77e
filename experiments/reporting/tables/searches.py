"""How the defaults were chosen: the rounds of `results/choosing-defaults.md`, and the first search."""

import csv
from itertools import product
from pathlib import Path

from experiments.data.shifts import FAMILIES
from experiments.reporting.names import in_words
from experiments.reporting.shift_search import LISTED, SHIFTED, Search, read_search
from experiments.reporting.tables.markdown import Table, number, signed

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
        Table(
            f"{folder.name}_pairs", title, ("pair", *HEADER), pairs, "Positive is worse; ± the paired standard error."
        ),
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
