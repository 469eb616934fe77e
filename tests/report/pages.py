"""A page as a browser would read it."""

import json
import re
from html import escape, unescape
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """What a browser would find: elements with their attributes, and the text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.scripts, self._inside = "", [""], ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data
        else:
            self.text += data

    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.elements if "id" in attributes]


def charts_in(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', html, re.S)
    assert found is not None
    return json.loads(found[1])["charts"]


def table_in(html: str, caption: str) -> list[list[str]]:
    """The cells of the table with this caption, as text, row by row, its head first."""
    found = re.search(rf'<table aria-label="{re.escape(escape(caption))}">(.*?)</table>', html, re.S)
    assert found is not None, caption
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in found[1].split("</tr>")[:-1]]
    return [[_text(cell) for cell in row] for row in rows]


def facts_in(html: str) -> dict[str, str]:
    found = re.search(r'<dl class="facts">(.*?)</dl>', html, re.S)
    assert found is not None
    return {_text(name): _text(value) for name, value in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", found[1])}


def _text(cell: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", cell.replace("<small>", " | "))).replace("\u00a0", " ")
