"""The search for the library's defaults, judged on hold-out data: one table per network, a row per candidate."""

import csv
from pathlib import Path

from experiments.reporting.tables.markdown import ABSENT, NOT_RUN, Table, number

BASE = "views shift x 2"
"""The candidate that was the library's default at the time of the search."""
NETWORKS = {"resnet18": "ResNet18", "vgg16": "VGG16"}
COLUMNS = ("nll", "ece", "accuracy", "shifted_nll", "shifted_ece", "shifted_accuracy")
SCORES = ("NLL", "ECE", "accuracy")
HEADER = ("CIFAR-100, seed 0", "parameters", *SCORES, *(f"{each}, shifted" for each in SCORES))


def search_tables(results: Path) -> list[Table]:
    """The search itself, and a later one among hold-outs on which decays, ranks and weights are chosen."""
    chosen = "each choice varied by itself around the default, judged on hold-out images"
    both = "weights chosen on the hold-out, or on it and one jittered view of it, judged on hold-out images"
    return [
        *(_search_table(results / "search", network, f"search_{network}", chosen) for network in NETWORKS),
        *(_search_table(results / "search_holdouts", network, f"holdouts_{network}", both) for network in NETWORKS),
    ]


def _search_table(folder: Path, network: str, name: str, title: str) -> Table:
    rows = [(NOT_RUN, *(ABSENT for _ in HEADER[1:]))]
    file = folder / f"cifar100-{network}-s0" / "candidates.csv"
    if file.exists():
        with file.open(newline="") as text:
            rows = [_row(candidate) for candidate in csv.DictReader(text)]
    note = f'The default at that time is the row "{BASE}". Parameters: added, as a share of the network\'s.'
    return Table(name, f"{NETWORKS[network]}: {title}", HEADER, tuple(rows), note)


def _row(candidate: dict[str, str]) -> tuple[str, ...]:
    name = candidate["candidate"]
    share = number(100 * float(candidate["parameters"]), 2) + " %"
    numbers = (number(float(candidate[column]), 3) for column in COLUMNS)
    return (f"**{name}**" if name == BASE else name, share, *numbers)
