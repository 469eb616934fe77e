"""Lay out our docstrings as Markdown for the API pages.

They are written to be read in the source: parameters as aligned rows, examples with prompts, formulas indented. In
Markdown the rows would run together into one paragraph and the prompts become quotations, so a paragraph of

    name      what it is,
              which may go on
    other     and so forth

becomes a definition list, and one of `>>>` lines a block of code. All else is Markdown already.
"""

import re
from textwrap import dedent
from typing import Any

import griffe

NAMES = r"\w+(?:, \w+)*"
WIDE_ROW = re.compile(rf"^({NAMES}) {{2,}}(?=\S)")
NAME_ALONE = re.compile(rf"^{NAMES}$")


class Layout(griffe.Extension):
    """Every docstring that is loaded, laid out."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """The docstring, paragraph by paragraph."""
    return "\n\n".join(map(_paragraph, re.split(r"\n{2,}", docstring)))


def _paragraph(text: str) -> str:
    if text.startswith(">>>"):
        return f"```pycon\n{text}\n```"
    if text.startswith("    "):
        return f"```text\n{dedent(text)}\n```"
    rows = read_rows(text.split("\n"))
    return "\n\n".join(f"`{name}`\n:   {described}" for name, described in rows) if rows else text


def read_rows(lines: list[str]) -> list[tuple[str, str]]:
    """(names, description) of each aligned row; none where the lines are ordinary text.

    The first row with two spaces after its names shows the column at which descriptions begin. A longer name may leave but
    one space before that column, or reach beyond it and again leave two.
    """
    wide = next((found for line in lines if (found := WIDE_ROW.match(line))), None)
    if wide is None or lines[0].startswith(" "):
        return []
    rows: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith(" "):
            name, described = rows.pop()
            rows.append((name, f"{described} {line.strip()}"))
            continue
        own = WIDE_ROW.match(line)
        column = own.end() if own else wide.end()
        if not NAME_ALONE.match(name := line[:column].strip()):
            return []
        rows.append((name, line[column:].strip()))
    return rows
