"""What an evaluation leaves behind, and all that tables and figures ever see.

A *cell* is one trained network. It has three files: `results/<recipe>/<cell name>.csv`, a row per method and test set;
`….blocks.csv`, the same test images in blocks, for a bootstrap; and `….json`, everything else. The JSON is written last and
holds the digests of the others, so a cell is finished exactly if all are there and agree: killed between two, or cut in half
later, it counts as not done and is done again.
"""

import csv
import hashlib
import io
import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiments.checkpoints import write_atomically
from experiments.images import IMAGE_METRICS, Blocks

CLEAN = "clean"
AGAIN = "again"
"""The recipe that trains a network a second time."""
METRICS = (
    "ece", "ece_floor", "nll", "brier", "brier_paper", "accuracy", "auc", "auc_keras", "classwise_ece", "aurc",
    "auc_best_temperature",
)  # fmt: skip
"""The measured columns; an empty field is a number that does not exist, read as NaN."""
COLUMNS = ("method", "set", *METRICS)
DIGESTS = {".csv": "csv_sha256", ".blocks.csv": "blocks_sha256"}


class DamagedResultsError(Exception):
    """A results file that is not whole, or two that do not belong together."""


class OtherRecipeError(Exception):
    """Results that were made in another way than is asked for now."""


@dataclass(frozen=True)
class Cell:
    """One trained network of the experiments, and for which of them it is evaluated."""

    recipe: str
    dataset: str
    network: str
    seed: int
    train_fraction: float = 0.9
    holdout_fraction: float = 0.1
    dropout: float = 0.0

    @property
    def name(self) -> str:
        """For files; what has its default value is left out."""
        return f"{self.recipe}-{self.trained_alike}"

    @property
    def training(self) -> str:
        """The name of the trained network, which several recipes may share; what is trained again is shared by none."""
        return self.name if self.recipe == AGAIN else self.trained_alike

    @property
    def trained_alike(self) -> str:
        """The same for all cells whose networks are trained in the same way from the same seed."""
        name = f"{self.dataset}-{self.network}-s{self.seed}"
        parts = (("t", "train_fraction"), ("h", "holdout_fraction"), ("d", "dropout"))
        values = ((letter, getattr(self, field), getattr(Cell, field)) for letter, field in parts)
        return name + "".join(f"-{letter}{value:g}" for letter, value, usual in values if value != usual)


@dataclass(frozen=True)
class Row:
    """What one method measured on one test set: `clean` or `<corruption>-<severity>`; a value per name in `METRICS`."""

    method: str
    set: str
    metrics: Mapping[str, float]

    @property
    def corruption(self) -> str:
        """`fog` of `fog-3`; of the clean set its own name."""
        return self.set.rpartition("-")[0] or self.set

    @property
    def severity(self) -> int:
        """3 of `fog-3`; 0 of the clean set."""
        return int(self.set.rpartition("-")[2]) if self.set != CLEAN else 0


@dataclass(frozen=True)
class CellResults:
    """All that is known of one cell.

    facts["methods"][method] holds its weights, contributions, ranks, added parameters and FLOPs, and seconds;
    facts["probe_accuracy"], ["seconds"], ["versions"], ["settings"], … hold what belongs to the cell as a whole;
    facts["recipe"] says how it was made.
    """

    cell: Cell
    rows: tuple[Row, ...]
    facts: Mapping[str, Any]
    blocks: Blocks = field(default_factory=dict)


def results_path(root: Path, cell: Cell) -> Path:
    """The cell's JSON file; its tables lie beside it."""
    return root / cell.recipe / f"{cell.name}.json"


def write_results(root: Path, results: CellResults) -> Path:
    """Write the three files, each whole or not at all, and return the path of the JSON."""
    path = results_path(root, results.cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = {".csv": _format_rows(results.rows), ".blocks.csv": _format_blocks(results.blocks)}
    digests = {DIGESTS[suffix]: hashlib.sha256(table).hexdigest() for suffix, table in tables.items()}
    facts = {"cell": asdict(results.cell), **results.facts, **digests}
    content = json.dumps(facts, indent=1, allow_nan=False).encode() + b"\n"
    for suffix, table in tables.items():
        write_atomically(path.with_suffix(suffix), table)
    write_atomically(path, content)
    return path


def read_results(path: Path) -> CellResults:
    """The cell of one JSON file and the tables beside it, checked against one another."""
    try:
        facts = json.loads(path.read_bytes())
        tables = {suffix: path.with_suffix(suffix).read_bytes() for suffix in DIGESTS}
        cell = Cell(**facts["cell"])
        digests = {suffix: facts[name] for suffix, name in DIGESTS.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedResultsError(f"{path} and its CSV cannot be read: {error}. Run the recipe again.") from error
    for suffix, table in tables.items():
        if hashlib.sha256(table).hexdigest() != digests[suffix]:
            raise DamagedResultsError(
                f"{path.with_suffix(suffix)} is not the file that {path.name} was written for: it was cut, changed or "
                "written anew. Run the recipe again."
            )
    return CellResults(cell, _parse_rows(tables[".csv"], path), facts, _parse_blocks(tables[".blocks.csv"]))


def is_finished(root: Path, cell: Cell, recipe: Mapping[str, Any]) -> bool:
    """Whether all files of the cell are there, whole, of this very cell, and made by this very recipe."""
    try:
        found = read_results(results_path(root, cell))
    except DamagedResultsError:
        return False
    return found.cell == cell and not _differences(found.facts, recipe)


def describe_differences(root: Path, cell: Cell, recipe: Mapping[str, Any]) -> str:
    """In words, how the recipe that made the cell's results differs from `recipe`; "" where there are none or no other."""
    try:
        facts = json.loads(results_path(root, cell).read_bytes())
        return "; ".join(_differences(facts, recipe))
    except (OSError, ValueError, AttributeError):
        return ""


def _differences(facts: Mapping[str, Any], recipe: Mapping[str, Any]) -> list[str]:
    before = _flattened(facts.get("recipe", {}))
    now = _flattened(json.loads(json.dumps(recipe)))  # as it reads back: tuples are lists
    return [
        f"{name} was {_shown(before, name)}, is now {_shown(now, name)}"
        for name in {**now, **before}
        if (name in before, before.get(name)) != (name in now, now.get(name))
    ]


def _flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """{"training": {"epochs": 15}} -> {"training epochs": 15}"""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inner = _flattened(value) if isinstance(value, dict) else {"": value}
        flat |= {f"{name} {part}".strip(): found for part, found in inner.items()}
    return flat


def _shown(values: Mapping[str, Any], name: str) -> str:
    if name not in values:
        return "not said"
    value = values[name]
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def find_results(root: Path) -> list[CellResults]:
    """Every finished cell below `root`, ordered by name; damaged ones are named in a warning and left out.

    Other CSV files may lie there too: a cell has a JSON file.
    """
    found: list[CellResults] = []
    for path in sorted(root.glob("*/*.json")):
        try:
            found.append(read_results(path))
        except DamagedResultsError as error:
            warnings.warn(f"{error} Until then the cell counts as missing.", stacklevel=2)
    return found


def _format_rows(rows: tuple[Row, ...]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        values = (row.metrics[name] for name in METRICS)
        writer.writerow([row.method, row.set, *("" if math.isnan(value) else f"{value:.8g}" for value in values)])
    return text.getvalue().encode()


def _parse_rows(table: bytes, path: Path) -> tuple[Row, ...]:
    lines = csv.reader(io.StringIO(table.decode()))
    if (header := tuple(next(lines, ()))) != COLUMNS:
        raise DamagedResultsError(
            f"{path.with_suffix('.csv')} has columns {', '.join(header)}; expected {', '.join(COLUMNS)}. "
            "It is of another version: run the recipe again."
        )
    return tuple(
        Row(method, name, {metric: float(value or "nan") for metric, value in zip(METRICS, values, strict=True)})
        for method, name, *values in lines
    )


def _format_blocks(blocks: Blocks) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    width = max((values.shape[1] for values in blocks.values()), default=0)
    writer.writerow(["method", "group", "metric", *range(width)])
    for (method, group), values in blocks.items():
        for metric, row in zip(IMAGE_METRICS, values, strict=True):
            writer.writerow([method, group, metric, *(f"{value:.6g}" for value in row)])
    return text.getvalue().encode()


def _parse_blocks(table: bytes) -> Blocks:
    lines = list(csv.reader(io.StringIO(table.decode())))[1:]
    keys = dict.fromkeys((method, group) for method, group, *_ in lines)
    rows = {(method, group, metric): np.asarray(values, dtype=np.float64) for method, group, metric, *values in lines}
    return {key: np.stack([rows[*key, metric] for metric in IMAGE_METRICS]) for key in keys}
