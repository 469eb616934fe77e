"""What an evaluation leaves behind, and all that tables and figures ever see.

A cell has three files: `results/<recipe>/<cell name>.csv`, a row per method and test set; `….blocks.csv`, the test images in
blocks, for a bootstrap; and `….json`, everything else. The JSON is written last and holds the digests of all, so a cell is
finished exactly if all are there and agree; otherwise it is done again.
"""

import csv
import hashlib
import io
import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiments.data.files import DamagedError, format_csv, format_json, parse_json, write_whole
from experiments.evaluation.dropout import SAMPLES
from experiments.evaluation.image_blocks import IMAGE_METRICS, Blocks
from experiments.evaluation.measuring import METRICS, Scores
from experiments.recipes import ENSEMBLE, RECIPES, Cell, Recipe
from experiments.training.hyperparameters import without_defaults

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
    scores: Scores
    facts: Mapping[str, Any]
    blocks: Blocks = field(default_factory=dict)


def results_path(root: Path, cell: Cell) -> Path:
    """The cell's JSON file; its tables lie beside it."""
    return root / cell.recipe / f"{cell.name}.json"


def write_results(root: Path, results: CellResults) -> Path:
    """Write the three files, each whole or not at all, and return the path of the JSON."""
    path = results_path(root, results.cell)
    tables = {".csv": _format_scores(results.scores), ".blocks.csv": _format_blocks(results.blocks)}
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
        scores, blocks = (table.decode() for table in tables.values())
        return CellResults(cell, _parse_scores(scores), facts, _parse_blocks(blocks))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{path} cannot be used: {error}. Run the recipe again.") from error


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


# What two results have to share before they may stand in one table


def conditions_of(recipe: Recipe, cell: Cell) -> dict[str, Any]:
    """What, beside the cell's name, has to be the same in all results that are compared."""
    released = recipe.released.get(f"{cell.network}/{cell.dataset}")
    return {
        "training": {"released": released} if released else asdict(recipe.training_of(cell)),
        "corruptions": recipe.corruptions,
        "severities": recipe.severities,
        "probe_images": recipe.probe_images.get(cell.dataset),
        "natural": recipe.natural.get(cell.dataset),
        "samples": SAMPLES if cell.dropout > 0 else None,
    }


def is_finished(root: Path, cell: Cell, conditions: Mapping[str, Any]) -> bool:
    """Whether all files of the cell are there, made under these very conditions; a damaged one is named in a warning."""
    path = results_path(root, cell)
    if not path.exists():
        return False
    try:
        return not _differences(read_results(path).facts, conditions)
    except DamagedError as error:
        warnings.warn(str(error), stacklevel=2)
        return False


def refuse_other_recipe(recipe: Recipe, cells: Iterable[Cell], results: Path) -> None:
    """Raise if results of these cells were made in another way: they are neither mixed with new ones nor overwritten."""
    differences = {cell: describe_differences(results, cell, conditions_of(recipe, cell)) for cell in cells}
    others = [cell for cell, difference in differences.items() if difference]
    if others:
        were = f", and {len(others) - 1} more, were" if len(others) > 1 else " was"
        raise ValueError(
            f"{results_path(results, others[0])}{were} made by another recipe: {differences[others[0]]}. Choose another "
            f"--results, or remove what is there: {results / recipe.name}."
        )


def describe_differences(root: Path, cell: Cell, conditions: Mapping[str, Any]) -> str:
    """In words, how the cell's results were made otherwise; "" where they were not, or there are none."""
    try:
        return "; ".join(_differences(parse_json(results_path(root, cell).read_bytes()), conditions))
    except (OSError, DamagedError):
        return ""


def _differences(facts: Mapping[str, Any], conditions: Mapping[str, Any]) -> list[str]:
    before, now = facts.get("recipe", {}), json.loads(json.dumps(conditions))  # as it reads back: tuples are lists
    both = {name: [without_defaults(each.get(name)) for each in (before, now)] for name in {**now, **before}}
    return [f"{name} was {was}, is now {is_now}" for name, (was, is_now) in both.items() if was != is_now]


# Tables


def _format_scores(scores: Scores) -> bytes:
    lines: list[Sequence[str]] = [COLUMNS]
    for place, metrics in scores.items():
        values = (metrics[name] for name in METRICS)
        lines.append([*place, *("" if math.isnan(value) else f"{value:.8g}" for value in values)])
    return format_csv(lines).encode()


def _parse_scores(table: str) -> Scores:
    lines = csv.reader(io.StringIO(table))
    header = tuple(next(lines, ()))
    if header[:2] != COLUMNS[:2] or not set(header) <= set(COLUMNS):
        raise DamagedError(f"its table, of another version, has columns {', '.join(header)}; expected {', '.join(COLUMNS)}")
    scores: dict[tuple[str, str], Mapping[str, float]] = {}
    missing = dict.fromkeys(METRICS, math.nan)  # of a metric that came later than the file
    for method, name, *values in lines:
        numbers = [float(value or "nan") for value in values]
        scores[method, name] = missing | dict(zip(header[2:], numbers, strict=True))
    return scores


def _format_blocks(blocks: Blocks) -> bytes:
    width = max((values.shape[1] for values in blocks.values()), default=0)
    lines: list[Sequence[object]] = [["method", "group", "metric", *range(width)]]
    for (method, group), values in blocks.items():
        for metric, row in zip(IMAGE_METRICS, values, strict=True):
            lines.append([method, group, metric, *(f"{value:.6g}" for value in row)])
    return format_csv(lines).encode()


def _parse_blocks(table: str) -> Blocks:
    lines = list(csv.reader(io.StringIO(table)))[1:]
    keys = dict.fromkeys((method, group) for method, group, *_ in lines)
    rows = {(method, group, metric): np.asarray(values, dtype=np.float64) for method, group, metric, *values in lines}
    return {key: np.stack([rows[*key, metric] for metric in IMAGE_METRICS]) for key in keys}
