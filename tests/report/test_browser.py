"""The report in a real browser, opened from disk."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page

import lates
from tests.chromium import Heard, listen_to
from tests.conftest import Problem, loader_of

HOSTILE = "<img src=x onerror=\"document.title='taken'\"></script><script>document.title='taken'</script>"
DRAWN = "html[data-drawn]"
METHODS = ["network", "temperature", "lates"]


@dataclass(frozen=True)
class Opened:
    """A report's page, and what was heard of it."""

    page: Page
    heard: Heard

    def marks(self, place: str) -> int:
        """How many things a chart shows: its symbols, rules, bars, areas and lines."""
        return self.page.locator(f"#{place} svg .role-mark path, #{place} svg .role-mark line").count()

    def switch(self, method: str) -> Any:
        return self.page.locator(f'input[data-switch="{method}"]')

    def wait_for(self, *methods: str) -> None:
        self.page.wait_for_selector(f'html[data-shown="{" ".join(methods)}"]')


@pytest.fixture(scope="module")
def report(problem: Problem, calibrated: lates.CalibratedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "a report.html"
    noise = torch.randn(problem.images.shape, generator=torch.Generator().manual_seed(7))
    sets = {
        "clean": loader_of(problem.images, problem.labels),
        f"noise {HOSTILE}": loader_of(problem.images + noise, problem.labels),
        "__proto__": loader_of(problem.images + 2 * noise, problem.labels),
    }
    names = [f"a class with a rather long name, number {c} {HOSTILE if c == 3 else ''}" for c in range(8)]
    names += ["constructor", "toString"]  # every object of JavaScript has these
    lates.write_report(calibrated, sets, path, title=f"A title {HOSTILE}", class_names=names, progress=False)
    return path


def open_report(browser: Browser, path: Path, **context: Any) -> Opened:
    page = browser.new_context(**context).new_page()
    heard = listen_to(page)
    page.goto(path.as_uri())
    page.wait_for_selector(DRAWN)
    return Opened(page, heard)


@pytest.fixture
def desktop(browser: Browser, report: Path) -> Iterator[Opened]:
    opened = open_report(browser, report, viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield opened
    opened.page.context.close()


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_renders_without_message_request_or_sideways_scrolling(
    browser: Browser, report: Path, width: int, height: int, scheme: str
) -> None:
    opened = open_report(browser, report, viewport={"width": width, "height": height}, color_scheme=scheme)
    page = opened.page
    charts = page.evaluate("Object.keys(JSON.parse(document.getElementById('charts').textContent))")
    assert page.evaluate("document.documentElement.dataset.drawn") == str(len(charts))
    for place in charts:
        assert opened.marks(place) >= 2, place
        box = page.locator(f"#{place} svg").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width, place
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#classes svg .mark-symbol path").last.hover(force=True)
    for selector in ("#tip", "#comparison .caption"):
        box = page.locator(selector).bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width, selector
    assert opened.heard.complaints == []
    assert opened.heard.requests == [report.as_uri()]
    page.context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_reliability_is_square_and_only_the_lowest_chart_of_a_panel_has_labels(
    browser: Browser, report: Path, width: int
) -> None:
    page = open_report(browser, report, viewport={"width": width, "height": 900}).page
    for method in METHODS:
        box = page.locator(f"#reliability-{method} svg .mark-group.role-frame > g > path.background").bounding_box()
        assert box is not None
        assert box["height"] == pytest.approx(box["width"], abs=1)
        labels = [
            page.locator(f"#{kind}-{method} svg .role-axis-label text", has_text="100%").count()
            for kind in ("reliability", "histogram", "wrong")
        ]
        assert labels == [1, 0, 1], "of the reliability's accuracy, and of the confidence at the bottom"
    page.context.close()


def test_a_table_that_is_too_wide_says_so_and_keeps_its_row_names(browser: Browser, report: Path) -> None:
    page = open_report(browser, report, viewport={"width": 390, "height": 844}).page
    table = page.locator("#comparison .scroll")
    shadow = "node => getComputedStyle(node).boxShadow"
    assert "sideways" in table.evaluate("node => getComputedStyle(node.previousElementSibling, '::after').content")
    assert table.evaluate(shadow) != "none"
    first = page.locator("#comparison tbody th").first
    before = first.bounding_box()
    table.evaluate("node => node.scrollTo(node.scrollWidth, 0)")
    page.wait_for_selector("#comparison .scroll:not([data-more])")
    assert table.evaluate(shadow) == "none"
    assert first.bounding_box() == before, "the names of the rows stay"
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_selector("#comparison .scroll:not([data-wide])")
    page.context.close()


def test_text_from_outside_stays_text(desktop: Opened) -> None:
    assert desktop.page.title() == f"A title {HOSTILE}"
    assert desktop.page.locator("img").count() == 0
    shown = ""
    for mark in desktop.page.locator("#classes svg .mark-symbol path").all():
        mark.hover(force=True)
        shown += desktop.page.locator("#tip").inner_text()
    assert "onerror" in shown
    assert desktop.page.title() == f"A title {HOSTILE}"
    assert desktop.page.locator("img").count() == 0


def test_switch_hides_a_method_everywhere(desktop: Opened) -> None:
    before = {place: desktop.marks(place) for place in ("metric-accuracy", "coverage", "classes", "shift-ece")}
    desktop.switch("network").click()
    desktop.wait_for("temperature", "lates")
    for place, count in before.items():
        assert 0 < desktop.marks(place) < count, place
    assert not desktop.page.locator("#reliability-network").is_visible()
    assert desktop.page.locator("#reliability-lates").is_visible()
    assert not desktop.page.get_by_role("columnheader", name="Network", exact=True).is_visible()
    desktop.switch("network").click()
    desktop.wait_for(*METHODS)
    assert {place: desktop.marks(place) for place in before} == before
    assert desktop.page.locator("#reliability-network svg").is_visible()


def test_keyboard_reaches_every_switch(desktop: Opened) -> None:
    page = desktop.page
    seen = []
    for _ in range(4):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.dataset.switch ?? document.activeElement.id"))
    assert seen == [*METHODS, "theme"]
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("Enter")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    desktop.wait_for("network", "temperature")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    desktop.wait_for("network")
    assert desktop.switch("network").is_disabled(), "the last method must stay"


def test_hovering_over_the_curves_shows_all_of_them(desktop: Opened) -> None:
    chart = desktop.page.locator("#coverage svg")
    chart.hover(position={"x": 500, "y": 40})
    chart.hover(position={"x": 520, "y": 60})
    tooltip = desktop.page.locator("#tip")
    tooltip.wait_for(state="visible")
    assert tooltip.locator("dt").all_inner_texts() == ["answered", "Network", "Temperature scaling", "LATES"]


def colour_of(page: Page, selector: str) -> str:
    return page.eval_on_selector(selector, "node => getComputedStyle(node).fill")


def brightness_of_paper(page: Page) -> float:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(float(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")) / 3


def test_dark_mode_follows_the_system_until_the_button_is_pressed(browser: Browser, report: Path) -> None:
    opened = open_report(browser, report, color_scheme="dark")
    page, label = opened.page, "#classes svg .role-axis text"
    dark = (brightness_of_paper(page), colour_of(page, label))
    page.get_by_role("button", name="Light").click()
    light = (brightness_of_paper(page), colour_of(page, label))
    assert dark[0] < 60 < 200 < light[0]
    assert dark[1] != light[1], "the charts' own text follows too"
    page.emulate_media(color_scheme="light")
    page.get_by_role("button", name="Dark").click()
    assert (brightness_of_paper(page), colour_of(page, label)) == dark
    page.context.close()


def test_every_chart_and_control_has_an_accessible_name(desktop: Opened) -> None:
    labels = desktop.page.eval_on_selector_all(".chart", "nodes => nodes.map(n => n.getAttribute('aria-label'))")
    assert all(label and len(label) > 40 for label in labels)
    unnamed = desktop.page.eval_on_selector_all(
        "input, button", "nodes => nodes.filter(n => !(n.labels?.length || n.textContent.trim())).length"
    )
    assert unnamed == 0


def test_print_is_light_and_within_the_page(browser: Browser, report: Path, tmp_path: Path) -> None:
    opened = open_report(browser, report, color_scheme="dark", viewport={"width": 1280, "height": 900})
    page = opened.page
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 690, "height": 1000})
    assert brightness_of_paper(page) > 200
    assert page.evaluate("document.documentElement.scrollWidth") <= 690
    assert not page.locator("#theme").is_visible()
    assert page.locator(".swatch.lates").is_visible()
    page.context.close()
