"""Text from outside stays text: names in files and networks may hold what a terminal takes for a command."""

import unicodedata


def printable(text: str) -> str:
    """The text with control, format and unassigned characters, line breaks too, written as escapes such as \\x1b."""
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character).startswith("C") else character
        for character in text
    )


def printable_lines(text: str) -> str:
    """The same for text of several lines."""
    return "\n".join(map(printable, text.split("\n")))
