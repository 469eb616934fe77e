"""Where results go: a file that was not there before, or standard output."""

import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

COLUMNS = 80


def check_output(path: Path, force: bool) -> None:
    """Refuse a place that cannot be written to, or that holds something, before the work and not after it."""
    from lates.storage import check_target

    check_target(path)
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already. Pass --force to overwrite it, or name another file.")


def tell_written(path: Path) -> None:
    size = path.stat().st_size
    typer.echo(f"Wrote {path}, {size:,} bytes.", err=True)


def continued(command: Sequence[Sequence[str]]) -> str:
    """A command to copy: its parts, each of which stays whole, on as many lines as it takes to fit 80 columns."""
    lines: list[str] = []
    for part in map(shlex.join, command):
        if lines and len(lines[-1]) + len(part) + len("  \\") <= COLUMNS:
            lines[-1] += f" {part}"
        else:
            lines.append(f"    {part}" if lines else part)
    return " \\\n".join(lines)


def print_json(results: Any) -> None:
    """Numbers without a JSON form (inf, NaN) become null."""
    typer.echo(json.dumps(_finite(results), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
