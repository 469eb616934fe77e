"""The page says its numbers in words and charts, asks for nothing, and nothing from outside becomes markup."""

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
from lates.report import words
from lates.report.charts import draw_all, metric_chart
from lates.report.frame import short
from lates.report.layers import depth_chart
from lates.report.numbers import Bin, Findings
from lates.report.page import embedded, page_of
from lates.report.picture import BOX, SILENT, VOTES, picture_rows
from lates.report.predictions import LATES, NETWORK, TEMPERATURE, Predictions
from tests.report.known import KNOWN, MEMBERS, PLAIN
from tests.report.pages import Page, charts_in

HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>&\"'"


def test_the_picture_spends_its_height_on_votes_and_joins_ribbons_without_gap(findings: Findings) -> None:
    picture = picture_rows(findings.members)
    ends = [row for row in picture.ribbons if row["x"] == pytest.approx(0.9)]
    for row, member in zip(ends, [one for one in findings.members if one.contribution], strict=True):
        assert row["y2"] - row["y"] == pytest.approx(VOTES * member.contribution)
    assert [row["y"] for row in ends[1:]] == pytest.approx([row["y2"] for row in ends[:-1]])
    assert all(0 <= row["y"] <= row["y2"] <= picture.height + 1e-9 for row in [*picture.ribbons, *picture.boxes])


def test_the_picture_tells_heads_from_probes_and_both_from_the_silent() -> None:
    members = [*MEMBERS[1:], MEMBERS[0], replace(MEMBERS[0], contribution=0.004)]
    picture = picture_rows(members, networks=2)
    assert [row["kind"] for row in picture.boxes] == ["silent", "probe", "head", "probe", "probe"]
    heights = [row["y2"] - row["y"] for row in picture.boxes]
    assert heights == pytest.approx([SILENT, 2 * VOTES * 0.36, 2 * VOTES * 0.6, BOX, BOX])
    texts = [f"{row['role']}: {row['text']}" for row in picture.labels]
    large = ["on: late", "share: 36 %", "on: head", "share: 60 %"]
    small = ["on: early", "share: 4 %", "on: early", "share: <1 %"]
    assert texts == ["off: input", "off: silent", *large, *small, "end: prediction"]


def test_the_depth_chart_s_rows_are_the_members() -> None:
    layers = depth_chart(list(MEMBERS), KNOWN)["layer"]
    rows = {row["name"]: row for layer in layers for row in layer["data"]["values"]}
    late = {"value": 0.7, "low": 0.68, "high": 0.72, "measured": words.ON_THE_TEST_SET}
    assert rows["late"] == {"name": "late", "method": LATES, **late}
    assert rows["silent"] == {"name": "silent", "method": LATES, "value": 0.55, "measured": words.ON_THE_HOLDOUT}
    assert rows["head"]["method"] == NETWORK
    assert rows["all: LATES"]["value"] == 0.812
    axes = {layer["encoding"]["x"].get("title") for layer in layers}
    assert "accuracy on the test set; hollow, no vote: on the hold-out" in axes
    kept = depth_chart([MEMBERS[0], *MEMBERS[2:]], KNOWN)["layer"]
    assert len(kept) == len(layers) - 1
    assert "accuracy on the test set" in {layer["encoding"]["x"].get("title") for layer in kept}


@pytest.mark.parametrize(("metric", "axis", "tooltip"), [("ece", "~%", ".2%"), ("nll", "~g", ".4f")])
def test_a_metric_s_chart_shows_shares_in_percent(metric: str, axis: str, tooltip: str) -> None:
    chart = metric_chart(KNOWN, metric)
    whiskers, dots = chart["layer"]
    assert dots["encoding"]["x"]["axis"]["format"] == axis
    assert [own.get("format") for own in whiskers["encoding"]["tooltip"]] == [None, *[tooltip] * 3]
    assert [(row["method"], row["value"]) for row in chart["data"]["values"]] == [
        (method, own[metric].value) for method, own in PLAIN.measured.items()
    ]


def test_charts_of_methods_can_be_switched() -> None:
    charts = draw_all(KNOWN)
    switched = {
        place for place, spec in charts.items() if any(own.get("name") == "shown" for own in spec.get("params", []))
    }
    assert {place.split("-")[0] for place in switched} == {"metric", "coverage", "classes", "shift"}


@pytest.mark.parametrize(("count", "text"), [(9_999, "9,999"), (10_000, "10k"), (123_456, "123k")])
def test_large_counts_are_short(count: int, text: str) -> None:
    assert short(count) == text


def test_a_loss_against_the_network_under_shift_is_not_hidden_by_a_gain_on_temperature(findings: Findings) -> None:
    worse, better = (metrics.Interval(v, v - 0.01, v + 0.01, 0.95, 100) for v in (0.108, -0.164))
    differences = {NETWORK: {"nll": worse}, TEMPERATURE: {"nll": better}}
    odd = replace(findings, sets=(findings.test, replace(findings.sets[1], differences=differences)))
    text = words.shifts(odd)
    assert "is, against temperature scaling, clearly better on 1, clearly worse on 0" in text
    assert "against the network alone, clearly better on 0, clearly worse on 1" in text
    section = page_of(odd, draw_all(odd), "odd").split('id="shifts"')[1]
    assert '<td data-method="network"><span class="worse">+0.1080 worse</span>' in section
    assert '<td data-method="temperature"><span class="better">−0.1640 better</span>' in section


def test_the_risk_at_every_tenth_of_coverage_stands_in_a_table(
    page: str, findings: Findings, predictions: dict[str, Predictions]
) -> None:
    table = page.split("<summary>Numbers of the curve</summary>")[1].split("</table>")[0]
    logits, labels = predictions["clean"].logits[LATES], predictions["clean"].labels
    surest = logits.softmax(1).amax(1).argsort(descending=True)[:300]
    wrong = float((logits.argmax(1) != labels)[surest].double().mean())
    assert table.count("<tr>") == 11
    (row,) = [row for row in table.split("<tr>") if "30\u00a0%</th>" in row]
    assert f'<td data-method="lates">{100 * wrong:.2f}\u00a0%</td>' in row


def test_a_block_named_by_a_number_reads_as_a_name(findings: Findings) -> None:
    numbered = tuple(replace(one, name=one.name.removeprefix("stages.")) for one in findings.members)
    assert re.search(r"the strongest of them, on block “\d”, has", words.votes(replace(findings, members=numbered)))


def test_mistakes_have_a_scale_of_their_own(findings: Findings) -> None:
    charts = draw_all(findings)
    for method, bins in findings.bins.items():
        chart = charts[f"wrong-{method}"]
        wrong = [one.count - one.right for one in bins]
        assert [row["top"] for row in chart["data"]["values"]] == wrong
        assert chart["layer"][0]["encoding"]["y"]["scale"]["domain"][1] == pytest.approx(1.05 * max(wrong))


def test_the_lead_says_the_measured_numbers(findings: Findings) -> None:
    text = words.lead(findings)
    accuracy = findings.test.measured[LATES]["accuracy"]
    for value in (accuracy.value, accuracy.low, accuracy.high, findings.test.measured[NETWORK]["accuracy"].value):
        assert f"{100 * value:.1f}" in text
    assert f"{findings.test.measured[LATES]['nll'].value:.4f}" in text
    assert f"{100 * findings.test.ece_floor[LATES]:.2f}" in text


@pytest.mark.parametrize(
    ("metric", "low", "high", "expected"),
    [
        ("accuracy", 0.01, 0.02, words.BETTER),
        ("accuracy", -0.02, -0.01, words.WORSE),
        ("nll", -0.02, -0.01, words.BETTER),
        ("nll", 0.01, 0.02, words.WORSE),
        ("ece", -0.01, 0.01, words.UNCLEAR),
        ("ece", math.nan, math.nan, words.UNCLEAR),
    ],
)
def test_a_verdict_needs_an_interval_without_zero(metric: str, low: float, high: float, expected: str) -> None:
    assert words.verdict(metrics.Interval((low + high) / 2, low, high, 0.95, 100), metric) == expected


def test_the_page_holds_every_part_and_every_chart_has_its_place_and_its_words(page: str, findings: Findings) -> None:
    found, charts = Page(page), charts_in(page)
    assert len(found.ids()) == len(set(found.ids()))
    assert set(charts) <= set(found.ids())
    assert set(charts) == set(draw_all(findings))
    kinds = ("metric", "votes", "depth", "reliability", "histogram", "wrong", "coverage", "classes", "shift")
    assert {place.split("-")[0] for place in charts} == set(kinds)
    assert all(len(spec["description"]) > 40 for spec in charts.values())
    for sentence in (words.lead, words.comparison, words.votes, words.depth, words.honesty, words.handing_over):
        assert sentence(findings) in found.text
    for sentence in (words.classwise, words.shifts):
        assert sentence(findings) in found.text


def test_the_page_is_one_small_file_that_asks_for_nothing(page: str) -> None:
    assert len(page.encode()) < 2 * 2**20
    for tag, attributes in Page(page).elements:
        assert tag not in ("link", "iframe", "img", "object", "base")
        assert not {"src", "href", "srcset", "action"} & set(attributes)
    policy = next(a["content"] for _, a in Page(page).elements if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in str(policy)
    allowed = str(policy).split("script-src")[1].split(";")[0]
    assert "'unsafe-inline'" not in allowed
    library, own = re.findall(r"<script>(.*?)</script>", page, re.S)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in (library, own)]
    assert re.findall(r"'sha256-(.*?)'", allowed) == digests
    assert "caution" not in page.split("<body>")[1].split("</header>")[0]


def test_what_comes_from_outside_cannot_become_markup(
    calibrated: lates.CalibratedModel, findings: Findings, test_sets: dict[str, DataLoader], tmp_path: Path
) -> None:
    hostile = replace(
        findings,
        sets=tuple(replace(one, name=HOSTILE + one.name) for one in findings.sets),
        members=tuple(replace(one, name=one.name if one.is_head else HOSTILE + one.name) for one in findings.members),
        classes=tuple(replace(one, name=HOSTILE + one.name) for one in findings.classes),
        subject=replace(findings.subject, network=HOSTILE),
    )
    plain, taken = (Page(page_of(own, draw_all(own), title)) for own, title in ((findings, "t"), (hostile, HOSTILE)))
    assert [tag for tag, _ in taken.elements] == [tag for tag, _ in plain.elements]
    assert taken.text.count("document.title='taken'") > 10
    assert not any("document.title='taken'" in script for script in taken.scripts if "vegaEmbed" in script)
    lates.write_report(
        calibrated, test_sets, tmp_path / "x.html", title=HOSTILE, class_names=[HOSTILE] * 10, progress=False
    )
    assert Page((tmp_path / "x.html").read_text("utf-8")).ids() == plain.ids()


@given(st.text(max_size=30))
def test_embedded_json_reads_back_and_never_ends_its_script(text: str) -> None:
    written = embedded({"name": [text, "</script>", "<!--"]})
    assert json.loads(written) == {"name": [text, "</script>", "<!--"]}
    assert "<" not in written


def test_what_is_not_finite_is_said_and_draws_nothing(findings: Findings) -> None:
    broken = metrics.Interval(math.inf, math.nan, math.nan, 0.95, 100)
    test = replace(findings.test, measured={m: {**own, "nll": broken} for m, own in findings.test.measured.items()})
    empty = Bin(0.0, 0.1, 0, 0, math.nan, math.nan, (math.nan, math.nan))
    odd = replace(findings, sets=(test, *findings.sets[1:]), bins={m: (empty, *b) for m, b in findings.bins.items()})
    html = page_of(odd, draw_all(odd), "odd")
    assert "not finite" in html
    assert "NaN" not in html.split('id="charts">')[1].split("</script>")[0]
