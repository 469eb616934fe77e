"""Where results go: a new file, or standard output."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

COLUMNS = 80


def check_output(path: Path, force: bool, inputs: Iterable[Path | None] = ()) -> None:
    """Refuse a path that cannot be written to, one of the inputs, or an existing file, before any work is done."""
    from lates.runtime import check_target

    target = check_target(path)
    for one in inputs:
        if one is not None and os.path.realpath(one) == str(target):
            raise FileExistsError(
                f"{path} is an input of this command, and writing would destroy it. Name another file."
            )
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already. Pass --force to overwrite it, or name another file.")


def say(text: str, err: bool = False) -> None:
    """Print text that may hold names from files and networks: control sequences in them do not reach the terminal."""
    from lates.runtime import printable

    typer.echo("\n".join(map(printable, text.split("\n"))), err=err)


def print_written(path: Path) -> None:
    say(f"Wrote {path}, {path.stat().st_size:,} bytes.", err=True)


def print_json(results: Any) -> None:
    """Numbers that JSON cannot write (inf, NaN) become null."""
    finite = json.loads(json.dumps(results), parse_constant=lambda name: None)
    say(json.dumps(finite, indent=2))
