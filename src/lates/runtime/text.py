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


class OptionalImport:
    """Around imports of what an extra installs: an error says what needs them, and how to install it, from a clone or not."""

    def __init__(self, extra: str, purpose: str) -> None:
        self.extra, self.purpose = extra, purpose

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, fault: BaseException | None, trace: object) -> None:
        if isinstance(fault, ImportError) and (fault.name or "").partition(".")[0] != "lates":
            raise ModuleNotFoundError(
                f"{self.purpose} needs {fault.name or 'a package'}, which does not import ({fault}). Run: pip install "
                f'".[{self.extra}]" in a clone of lates, or pip install "lates[{self.extra}]"',
                name=fault.name,
            ) from fault
