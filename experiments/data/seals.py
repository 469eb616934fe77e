"""A digest in every file that is read again, so that what was cut or changed since is noticed.

It is the SHA-256 of the whole file with zeros in the digest's own place. It detects damage, not forgery. Files of earlier
versions have none, and are read without that check.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

DIGEST = "sha256"
"""The key of the digest, in a JSON object or in the header of a safetensors file."""
BLANK = "0" * 64
PLACE = re.compile(rb'"sha256": ?"([0-9a-f]{64})"')


class DamagedError(Exception):
    """A file that is not as it was written."""


def seal(content: bytes) -> bytes:
    """`content`, which has `BLANK` under the key `DIGEST`, with its digest there."""
    place = PLACE.search(content)
    assert place is not None, "the caller wrote BLANK into it"
    start, end = place.span(1)
    return b"".join([content[:start], _digest(content, place).encode(), content[end:]])


def check_seal(content: bytes) -> None:
    place = PLACE.search(content)
    if place is not None and place[1].decode() != _digest(content, place):
        raise DamagedError("it is not what was written, by its digest")


def _digest(content: bytes, place: re.Match[bytes]) -> str:
    view, (start, end) = memoryview(content), place.span(1)
    digest = hashlib.sha256(view[:start])
    digest.update(BLANK.encode())
    digest.update(view[end:])
    return digest.hexdigest()


def format_json(facts: Mapping[str, Any], indent: int | None = None) -> bytes:
    """A JSON object with its digest."""
    return seal(json.dumps({DIGEST: BLANK, **facts}, indent=indent, allow_nan=False).encode() + b"\n")


def parse_json(content: str | bytes) -> dict[str, Any]:
    """The object that `format_json` wrote, or that has no digest."""
    if isinstance(content, bytes):
        check_seal(content)
    try:
        facts = json.loads(content.decode() if isinstance(content, bytes) else content)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"it is no JSON: {error}") from error
    if not isinstance(facts, dict):
        raise DamagedError(f"it holds a {type(facts).__name__}, expected an object")
    facts.pop(DIGEST, None)
    return facts
