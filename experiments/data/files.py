"""Files that are written whole or not at all, and the JSON in them."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class DamagedError(ValueError):
    """A file that is not as it was written."""


def write_whole(path: Path, content: bytes) -> None:
    """`path` holds its old content or all of the new, whatever happens: written beside it, flushed, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def format_json(facts: Mapping[str, Any], indent: int | None = None) -> bytes:
    return json.dumps(facts, indent=indent, allow_nan=False).encode() + b"\n"


def parse_json(content: str | bytes) -> dict[str, Any]:
    """A JSON object."""
    try:
        facts = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"it is no JSON: {error}") from error
    if not isinstance(facts, dict):
        raise DamagedError(f"it holds a {type(facts).__name__}, expected an object")
    return facts
