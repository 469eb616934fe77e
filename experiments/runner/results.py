"""What an evaluation leaves behind, and all that tables and figures ever see.

A cell has three files: `results/<recipe>/<cell name>.csv`, a row per method and test set;
`….blocks.csv`, the same test images in blocks, for a bootstrap; and `….json`, everything else. The JSON is written last and
holds the digests of all, so a cell is finished exactly if all are there and agree: killed between two, or damaged later, it
counts as not done and is done again.
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

from experiments.data.files import DamagedError, format_json, parse_json, write_whole
from experiments.evaluation.image_blocks import IMAGE_METRICS, Blocks
from experiments.evaluation.measuring import METRICS, Row
from experiments.recipes import ENSEMBLE, RECIPES, Cell

COLUMNS = ("method", "set", *METRICS)
DIGESTS = {".csv": "csv_sha256", ".blocks.csv": "blocks_sha256"}


@dataclass(frozen=True)
class CellResults:
    """All that is known of one cell.

    facts["methods"][method] holds its weights, contributions, ranks, and added parameters and FLOPs;
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
    tables = {".csv": _format_rows(results.rows), ".blocks.csv": _format_blocks(results.blocks)}
    digests = {DIGESTS[suffix]: hashlib.sha256(table).hexdigest() for suffix, table in tables.items()}
    content = format_json({"cell": asdict(results.cell), **results.facts, **digests}, indent=1)
    for suffix, table in tables.items():
        write_whole(path.with_suffix(suffix), table)
    write_whole(path, content)
    return path


def read_results(path: Path) -> CellResults:
    """The cell of one JSON file and the tables beside it, checked against one another."""
    try:
        facts = parse_json(path.read_bytes())
        cell = Cell(**facts["cell"])
        if path.stem != cell.name:
            raise DamagedError(f"it holds the results of {cell.name}")
        tables = {suffix: path.with_suffix(suffix).read_bytes() for suffix in DIGESTS}
        for suffix, name in DIGESTS.items():
            if hashlib.sha256(tables[suffix]).hexdigest() != facts[name]:
                raise DamagedError(f"{path.with_suffix(suffix).name} is not the file that it was written with")
        return CellResults(cell, _parse_rows(tables[".csv"]), facts, _parse_blocks(tables[".blocks.csv"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{path} cannot be used: {error}. Run the recipe again.") from error


def is_finished(root: Path, cell: Cell, recipe: Mapping[str, Any]) -> bool:
    """Whether all files of the cell are there, whole and made by this very recipe; a damaged one is named in a warning."""
    path = results_path(root, cell)
    if not path.exists():
        return False
    try:
        return not _differences(read_results(path).facts, recipe)
    except DamagedError as error:
        warnings.warn(str(error), stacklevel=2)
        return False


def describe_differences(root: Path, cell: Cell, recipe: Mapping[str, Any]) -> str:
    """In words, how the recipe that made the cell's results differs from `recipe`; "" where there are none or no other."""
    try:
        return "; ".join(_differences(parse_json(results_path(root, cell).read_bytes()), recipe))
    except (OSError, DamagedError):
        return ""


def _differences(facts: Mapping[str, Any], recipe: Mapping[str, Any]) -> list[str]:
    before = _flattened(facts.get("recipe", {}))
    now = _flattened(json.loads(json.dumps(recipe)))  # as it reads back: tuples are lists
    missing = "not recorded"
    return [
        f"{name} was {before.get(name, missing)}, is now {now.get(name, missing)}"
        for name in {**now, **before}
        if before.get(name) != now.get(name)
    ]


def _flattened(values: Mapping[str, Any]) -> dict[str, str]:
    """{"training": {"epochs": 15}} -> {"training epochs": "15"}"""
    flat: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= {f"{name} {part}": inner for part, inner in _flattened(value).items()}
        else:
            flat[name] = (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)
    return flat


def find_results(root: Path) -> list[CellResults]:
    """Every finished cell of a recipe below `root`, ordered by name; damaged ones are named in a warning and left out."""
    results: list[CellResults] = []
    for path in sorted(root.glob("*/*.json")):
        if path.parent.name.removesuffix(ENSEMBLE) in RECIPES:
            try:
                results.append(read_results(path))
            except DamagedError as error:
                warnings.warn(f"{error} Until then the cell counts as missing.", stacklevel=2)
    return results


def _format_rows(rows: tuple[Row, ...]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        values = (row.metrics[name] for name in METRICS)
        writer.writerow([row.method, row.set, *("" if math.isnan(value) else f"{value:.8g}" for value in values)])
    return text.getvalue().encode()


def _parse_rows(table: bytes) -> tuple[Row, ...]:
    lines = csv.reader(io.StringIO(table.decode()))
    header = tuple(next(lines, ()))
    if header[:2] != COLUMNS[:2] or not set(header) <= set(COLUMNS):
        raise DamagedError(
            f"its table, of another version, has columns {', '.join(header)}; expected {', '.join(COLUMNS)}"
        )
    missing = dict.fromkeys(METRICS, math.nan)  # a metric that came later than the file
    return tuple(
        Row(
            method,
            name,
            missing | {metric: float(value or "nan") for metric, value in zip(header[2:], values, strict=True)},
        )
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
