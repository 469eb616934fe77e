"""Where results go: a new file, or standard output."""

import json
from pathlib import Path
from typing import Any

import typer

COLUMNS = 80


def check_output(path: Path, force: bool) -> None:
    """Refuse a path that cannot be written to, or an existing file, before any work is done."""
    from lates.runtime import check_target

    check_target(path)
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already. Pass --force to overwrite it, or name another file.")


def print_written(path: Path) -> None:
    typer.echo(f"Wrote {path}, {path.stat().st_size:,} bytes.", err=True)


def print_json(results: Any) -> None:
    """Numbers that JSON cannot write (inf, NaN) become null."""
    finite = json.loads(json.dumps(results), parse_constant=lambda name: None)
    typer.echo(json.dumps(finite, indent=2))
