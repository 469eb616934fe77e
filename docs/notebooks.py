"""Recipes as notebooks: docs/recipes/*.md -> examples/*.ipynb, with the outputs that the pages show.

python -m docs.notebooks               writes the notebooks
python -m docs.notebooks record text   runs a recipe in the current folder and writes what it prints into its page
"""

import io
import json
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

from docs.pieces import DOCS, PIECES

RECIPES = DOCS / "recipes"
NOTEBOOKS = DOCS.parent / "examples"
SHOWN = ("prints", "recorded")


def make_notebook(page: str) -> str:
    """The notebook of a page's text, as JSON."""
    cells: list[dict[str, Any]] = []
    prose, end, shown_next = "", 0, False
    for found in PIECES.finditer(page):
        remark, language, _, text = (part or "" for part in found.groups())
        prose += page[end : found.start()]
        end = found.end()
        if remark:
            shown_next = remark in SHOWN
        elif shown_next:
            cells[-1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": _lines(text)}]
            shown_next = False
        elif language == "python":
            cells += [
                *_prose_cell(prose),
                {"cell_type": "code", "execution_count": None, "outputs": [], "source": text},
            ]
            prose = ""
        else:
            prose += found.group()
    cells += _prose_cell(prose + page[end:])
    for number, cell in enumerate(cells):
        cell |= {"id": f"cell-{number}", "metadata": {}, "source": _lines(cell["source"].strip())}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _prose_cell(text: str) -> list[dict[str, Any]]:
    return [{"cell_type": "markdown", "source": _linked(text)}] if text.strip() else []


def _linked(text: str) -> str:
    """Links as seen from the notebooks' folder."""
    return re.sub(r"\]\((\w+)\.md", r"](\1.ipynb", re.sub(r"\]\(\.\./", "](../docs/", text))


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def record(page: str) -> str:
    """The page with what its code prints here and now."""
    names: dict[str, Any] = {}
    parts, end, printed, shown_next = [], 0, "", False
    for found in PIECES.finditer(page):
        remark, language, _, text = (part or "" for part in found.groups())
        parts.append(page[end : found.start()])
        end = found.end()
        if shown_next:
            parts.append(f"```text\n{printed}```")
            shown_next = False
            continue
        parts.append(found.group())
        shown_next = remark in SHOWN
        if language == "python":
            output = io.StringIO()
            with redirect_stdout(output):
                exec(compile(text, "recipe", "exec"), names)
            printed = output.getvalue()
    return "".join(parts) + page[end:]


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["record"]:
        for name in arguments[1:]:
            path = RECIPES / f"{name}.md"
            path.write_text(record(path.read_text("utf-8")), "utf-8")
    for path in sorted(RECIPES.glob("*.md")):
        (NOTEBOOKS / f"{path.stem}.ipynb").write_text(make_notebook(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
