"""Names in messages. Those from files and networks may hold control characters, which a terminal would execute."""

import unicodedata
from collections.abc import Sequence


def printable(text: str) -> str:
    """The text with control, format and unassigned characters, line breaks too, written as escapes such as \\x1b."""
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character).startswith("C") else character
        for character in text
    )


def abbreviate(items: Sequence[object], most: int = 8) -> str:
    """The first of them, and how many more there are."""
    more = len(items) - most
    return ", ".join(map(str, items[:most])) + (f" and {more:,} more" if more > 0 else "")


def install_line(extra: str) -> str:
    """For the end of an error about a package that is missing: how to install it, from a clone or not."""
    return f'Run: pip install ".[{extra}]" in a clone of lates, or pip install "lates[{extra}]"'
