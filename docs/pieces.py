"""The pieces of a page: prose, blocks of code, what they print, and remarks to the tests."""

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent
PIECES = re.compile(
    r'^<!-- (names: \w+|prints|recorded) -->$|^```(\w*)(?: title="(.+?)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Piece:
    """A block of a page, or a remark to the tests.

    "names: …", what is known from here on; "prints", next comes what the block before prints; "recorded", the same of a run on
    real data, for which the tests have a stand-in.
    """

    remark: str
    language: str
    title: str
    text: str


def pieces_of(page: str) -> list[Piece]:
    return [Piece(*found) for found in PIECES.findall((DOCS / page).read_text("utf-8"))]
