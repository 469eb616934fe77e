"""The search for the library's defaults, judged on hold-out data: one table per network, a row per candidate."""

import csv
from pathlib import Path

from experiments.tables.markdown import ABSENT, NOT_RUN, Table, number

BASE = "views shift x 2"
"""The candidate that is the library's default."""
NETWORKS = {"resnet18": "ResNet18", "vgg16": "VGG16"}
COLUMNS = ("nll", "ece", "brier", "accuracy", "auc", "shifted_nll", "shifted_ece", "shifted_accuracy")
HEADER = (
    "CIFAR-100, seed 0", "parameters", "NLL", "ECE", "Brier", "ACC", "AUC", "NLL shifted", "ECE shifted", "ACC shifted",
)  # fmt: skip


def search_tables(folder: Path) -> list[Table]:
    return [_search_table(folder / f"cifar100-{network}-s0" / "candidates.csv", network) for network in NETWORKS]


def _search_table(file: Path, network: str) -> Table:
    rows = [(NOT_RUN, *(ABSENT for _ in HEADER[1:]))]
    if file.exists():
        with file.open(newline="") as text:
            rows = [_row(candidate) for candidate in csv.DictReader(text)]
    return Table(
        f"search_{network}",
        f"{NETWORKS[network]}: each choice varied by itself around the default, judged on hold-out images",
        HEADER,
        tuple(rows),
        f'The default is the row "{BASE}". Parameters: added, as a share of the network\'s.',
    )


def _row(candidate: dict[str, str]) -> tuple[str, ...]:
    name = candidate["candidate"]
    share = number(100 * float(candidate["parameters"]), 2) + " %"
    numbers = (number(float(candidate[column]), 4 if column == "auc" else 3) for column in COLUMNS)
    return (f"**{name}**" if name == BASE else name, share, *numbers)
