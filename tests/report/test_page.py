"""The page has its numbers in words and charts, requests nothing, and no text from outside becomes markup."""

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import lates
from lates import metrics
from lates.report import LATES, NETWORK, sentences
from lates.report.charts import contribution_chart, depth_chart, draw_all, metric_chart
from lates.report.findings import Findings
from lates.report.page import embedded, page_of
from tests.report.known import KNOWN, MEMBERS, PLAIN, stand_in
from tests.report.pages import Page, charts_in

HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>&\"'"


def test_charts_of_members_have_a_row_for_each() -> None:
    for chart in (contribution_chart, depth_chart):
        rows = chart(list(MEMBERS), KNOWN)["data"]["values"]
        assert [(row["name"], row["method"], row["contribution"], row["accuracy"], row["text"]) for row in rows] == [
            ("early", LATES, 0.04, 0.41, "4.0\u00a0%"),
            ("silent", LATES, 0.0, 0.55, "0\u00a0%"),
            ("late", LATES, 0.36, 0.71, "36\u00a0%"),
            ("head", NETWORK, 0.6, 0.79, "60\u00a0%"),
        ]


@pytest.mark.parametrize(("metric", "axis", "tooltip"), [("ece", "~%", ".2%"), ("nll", "~g", ".4f")])
def test_metric_chart_shows_shares_in_percent(metric: str, axis: str, tooltip: str) -> None:
    chart = metric_chart(KNOWN, metric)
    whiskers, dots = chart["layer"]
    assert dots["encoding"]["x"]["axis"]["format"] == axis
    assert [hint.get("format") for hint in whiskers["encoding"]["tooltip"]] == [None, *[tooltip] * 3]
    assert [(row["method"], row["value"]) for row in chart["data"]["values"]] == [
        (method, measured[metric].value) for method, measured in PLAIN.measured.items()
    ]


def test_charts_of_methods_are_switchable() -> None:
    charts = draw_all(KNOWN)
    switched = {
        place for place, spec in charts.items() if any(param.get("name") == "shown" for param in spec.get("params", []))
    }
    assert {place.split("-")[0] for place in switched} == {"metric", "coverage", "classes", "shift"}


def test_errors_have_a_scale_of_their_own(findings: Findings) -> None:
    charts = draw_all(findings)
    for method, diagram in findings.diagrams.items():
        chart = charts[f"wrong-{method}"]
        wrong = diagram.errors.tolist()
        assert [row["wrong"] for row in chart["data"]["values"]] == wrong
        assert chart["layer"][0]["encoding"]["y"]["scale"]["domain"][1] == pytest.approx(1.05 * max(wrong))


def test_page_has_every_sentence_and_a_place_and_alternative_text_for_every_chart(page: str, findings: Findings) -> None:
    found, charts = Page(page), charts_in(page)
    assert len(found.ids()) == len(set(found.ids()))
    assert set(charts) <= set(found.ids())
    assert set(charts) == set(draw_all(findings))
    kinds = ("metric", "contributions", "depth", "reliability", "histogram", "wrong", "coverage", "classes", "shift")
    assert {place.split("-")[0] for place in charts} == set(kinds)
    assert all(len(spec["description"]) > 40 for spec in charts.values())
    said = (sentences.lead, sentences.comparison, sentences.contributions, sentences.depth, sentences.calibration)
    for sentence in (*said, sentences.deferral, sentences.guarantee, sentences.classwise, sentences.shifts):
        assert sentence(findings) in found.text
    assert sentences.headline(findings)[0] in found.text
    headings = ("Is the confidence calibrated?", "What was calibrated", "How to read this page")
    assert list(headings) == sorted(headings, key=found.text.index)


def test_page_is_one_small_file_that_requests_nothing(page: str) -> None:
    assert len(page.encode()) < 2 * 2**20
    for tag, attributes in Page(page).elements:
        assert tag not in ("link", "iframe", "img", "object", "base")
        assert not {"src", "href", "srcset", "action"} & set(attributes)
    policy = next(a["content"] for _, a in Page(page).elements if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in str(policy)
    allowed = str(policy).split("script-src")[1].split(";")[0]
    assert "'unsafe-inline'" not in allowed
    library, ours = re.findall(r"<script>(.*?)</script>", page, re.S)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in (library, ours)]
    assert re.findall(r"'sha256-(.*?)'", allowed) == digests
    assert "caution" not in page.split("<body>")[1].split("</header>")[0]


def test_text_from_outside_cannot_become_markup(
    calibrated: lates.CalibratedModel, findings: Findings, test_sets: dict[str, DataLoader], tmp_path: Path
) -> None:
    hostile = replace(
        findings,
        sets={HOSTILE + name: one for name, one in findings.sets.items()},
        members=tuple(replace(one, name=one.name if one.is_head else HOSTILE + one.name) for one in findings.members),
        classes={
            method: tuple(replace(one, name=HOSTILE + one.name) for one in scores)
            for method, scores in findings.classes.items()
        },
        calibrated=stand_in(HOSTILE),
    )
    plain, taken = (Page(page_of(one, title)) for one, title in ((findings, "t"), (hostile, HOSTILE)))
    assert [tag for tag, _ in taken.elements] == [tag for tag, _ in plain.elements]
    assert taken.text.count("document.title='taken'") > 10
    assert not any("document.title='taken'" in script for script in taken.scripts if "vegaEmbed" in script)
    lates.write_report(calibrated, test_sets, tmp_path / "x.html", title=HOSTILE, class_names=[HOSTILE] * 10, progress=False)
    assert Page((tmp_path / "x.html").read_text("utf-8")).ids() == plain.ids()


@given(st.text(max_size=30))
def test_embedded_json_reads_back_and_never_closes_its_script(text: str) -> None:
    written = embedded({"name": [text, "</script>", "<!--"]})
    assert json.loads(written) == {"name": [text, "</script>", "<!--"]}
    assert "<" not in written


def test_numbers_that_are_not_finite_are_named_and_draw_nothing(findings: Findings) -> None:
    broken = metrics.Interval(math.inf, math.nan, math.nan, 0.95, 100)
    test = replace(findings.test, measured={m: {**values, "nll": broken} for m, values in findings.test.measured.items()})
    odd = replace(findings, sets={**findings.sets, "clean": test})
    html = page_of(odd, "odd")
    assert "not finite" in html
    assert "NaN" not in html.split('id="charts">')[1].split("</script>")[0]
