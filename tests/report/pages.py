"""A page as a browser would read it."""

import json
import re
from html import unescape
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
    return json.loads(found[1])


def lines_of(html: str) -> list[str]:
    """The text: a line for each heading, paragraph, fact and row of a table, whose cells | sets apart."""
    html = re.sub(r" ?<small>", " · ", re.sub(r"</t[hd]>(?=<t[hd])|</dt>", " | ", html))
    html = re.sub(r"</(p|h2|h3|tr|dd|summary|figcaption)>", "\n", html)
    text = unescape(re.sub(r"<[^>]*>", "", html)).replace("\u00a0", " ")
    return [line for line in text.splitlines() if line.strip()]
