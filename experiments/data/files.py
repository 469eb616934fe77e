"""Files that are written whole or not at all; JSON, which carries a digest, so that damage is noticed on reading; and CSV."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

DIGEST = "facts_sha256"
"""The key of a JSON object's digest. Files of earlier versions have none, and are read without that check."""


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
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def format_json(facts: Mapping[str, Any], indent: int | None = None) -> bytes:
    """A JSON object with its digest."""
    return json.dumps({**facts, DIGEST: _digest(facts)}, indent=indent, allow_nan=False).encode() + b"\n"


def parse_json(content: str | bytes) -> dict[str, Any]:
    """The JSON object that `format_json` wrote, or one without a digest."""
    try:
        facts = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"it is no JSON: {error}") from error
    if not isinstance(facts, dict):
        raise DamagedError(f"it holds a {type(facts).__name__}, expected an object")
    if facts.pop(DIGEST, None) not in (None, _digest(facts)):
        raise DamagedError("it is not what was written, by its digest")
    return facts


def format_csv(rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
