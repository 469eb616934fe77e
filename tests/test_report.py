"""The report: its numbers against the metrics, its words against its numbers, its page against what it promises."""

import builtins
import copy
import json
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from torch import Tensor, nn
from torch.utils.data import DataLoader

import lates
from lates import metrics
from lates.metrics.rows import describe_rows
from lates.report import words
from lates.report.charts import draw_all
from lates.report.numbers import Bin, Findings, coverage_of, find, wilson
from lates.report.page import embedded, page_of
from lates.report.picture import VOTES, picture_rows
from lates.report.predictions import LATES, NETWORK, TEMPERATURE, Predictions, methods_of, read_predictions
from lates.report.resampling import resample
from tests.conftest import Problem, loader_of

HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>&\"'"
METRICS: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": metrics.accuracy,
    "nll": metrics.nll,
    "brier": metrics.brier,
    "ece": metrics.ece,
    "aurc": metrics.aurc,
}


@pytest.fixture(scope="module")
def test_sets(problem: Problem) -> dict[str, DataLoader]:
    noise = torch.randn(problem.images.shape, generator=torch.Generator().manual_seed(7))
    return {
        "clean": loader_of(problem.images, problem.labels),
        "noise": loader_of(problem.images + noise, problem.labels),
    }


@pytest.fixture(scope="module")
def predictions(calibrated: lates.CalibratedModel, test_sets: dict[str, DataLoader]) -> dict[str, Predictions]:
    return {name: read_predictions(calibrated, loader, name, seed=0) for name, loader in test_sets.items()}


@pytest.fixture(scope="module")
def findings(calibrated: lates.CalibratedModel, predictions: dict[str, Predictions]) -> Findings:
    return find(calibrated, predictions, None, seed=0)


@pytest.fixture(scope="module")
def page(calibrated: lates.CalibratedModel, test_sets: dict[str, DataLoader], tmp_path_factory: Any) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    lates.write_report(calibrated, test_sets, path, title="A small network", progress=False)
    return path.read_text("utf-8")


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


def test_the_methods_are_the_network_its_rival_and_the_calibrated_model(
    problem: Problem, calibrated: lates.CalibratedModel, predictions: dict[str, Predictions]
) -> None:
    clean = predictions["clean"]
    scaled = lates.calibrate(problem.model, holdout=problem.holdout, blocks=[], progress=False)
    with torch.no_grad():
        expected = {
            NETWORK: problem.model(problem.images),
            TEMPERATURE: scaled(problem.images),
            LATES: calibrated(problem.images),
        }
    assert list(clean.logits) == list(expected)
    for method, logits in expected.items():
        torch.testing.assert_close(clean.logits[method], logits, atol=1e-4, rtol=1e-4)
    assert torch.equal(clean.labels, problem.labels)


def test_members_are_right_where_their_own_logits_say_so(
    problem: Problem, calibrated: lates.CalibratedModel, predictions: dict[str, Predictions]
) -> None:
    members = calibrated.members(problem.images)
    assert isinstance(members, Tensor)
    right = predictions["clean"].right
    assert list(right) == calibrated.member_names
    for place, name in enumerate(calibrated.member_names):
        assert torch.equal(right[name], members[..., place].argmax(1) == problem.labels)


@pytest.mark.parametrize("metric", METRICS)
def test_resampling_all_at_once_gives_the_bootstrap_s_intervals(
    findings: Findings, predictions: dict[str, Predictions], metric: str
) -> None:
    for one in findings.sets:
        logits, labels = predictions[one.name].logits, predictions[one.name].labels
        for method in findings.methods:
            expected = metrics.bootstrap(METRICS[metric], logits[method], labels, draws=one.draws)
            assert vars(one.measured[method][metric]) == pytest.approx(vars(expected), abs=1e-9)
        rival = metrics.bootstrap(METRICS[metric], logits[LATES], labels, other=logits[TEMPERATURE], draws=one.draws)
        assert vars(one.differences[TEMPERATURE][metric]) == pytest.approx(vars(rival), abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(2, 4), st.integers(0, 10**6))
def test_resampling_agrees_where_rows_are_few_and_tied(n: int, classes: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(-4, 0, (n, classes), generator=generator).double()
    labels = torch.randint(classes, (n,), generator=generator)
    rows = Predictions(labels, {NETWORK: logits, LATES: logits.flip(1)}, {"head": logits.argmax(1) == labels})
    measured, _, members = resample(rows, seed=3)
    for metric, function in METRICS.items():
        assert measured[NETWORK][metric].value == pytest.approx(function(logits, labels), abs=1e-12)
    expected = metrics.bootstrap(metrics.aurc, logits, labels, draws=1000, seed=3)
    assert vars(measured[NETWORK]["aurc"]) == pytest.approx(vars(expected), abs=1e-9)
    assert members["head"] == measured[NETWORK]["accuracy"]


@given(st.integers(0, 60), st.integers(1, 60))
def test_wilson_s_interval_is_scipy_s(right: int, count: int) -> None:
    right = min(right, count)
    expected = binomtest(right, count).proportion_ci(0.95, method="wilson")
    assert wilson(right, count) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_bins_sum_up_to_the_ece_and_to_all_rows(findings: Findings) -> None:
    for method, bins in findings.bins.items():
        assert sum(one.count for one in bins) == findings.test.rows
        assert all(one.low <= one.confidence <= one.high for one in bins if one.count)
        gap = sum(abs(one.right - one.count * one.confidence) for one in bins if one.count) / findings.test.rows
        assert gap == pytest.approx(findings.test.measured[method]["ece"].value, abs=1e-9)


def test_the_coverage_curve_ends_at_the_error_rate_and_its_area_is_the_aurc(
    findings: Findings, predictions: dict[str, Predictions]
) -> None:
    for method, curve in findings.coverage.items():
        assert [coverage for coverage, _ in curve] == sorted({coverage for coverage, _ in curve})
        assert curve[-1] == pytest.approx((1.0, 1 - findings.test.measured[method]["accuracy"].value))
        area = sum(risk for _, risk in curve) / len(curve)
        assert area == pytest.approx(findings.test.measured[method]["aurc"].value, abs=0.01)
    rows = describe_rows(predictions["clean"].logits[LATES][:3], predictions["clean"].labels[:3])
    assert len(coverage_of(rows)) == 3


def test_classes_are_ordered_by_an_error_whose_mean_is_the_classwise_ece(
    findings: Findings, predictions: dict[str, Predictions]
) -> None:
    errors = [one.error[LATES] for one in findings.classes]
    assert errors == sorted(errors, reverse=True)
    for method, logits in predictions["clean"].logits.items():
        mean = sum(one.error[method] for one in findings.classes) / len(findings.classes)
        assert mean == pytest.approx(metrics.classwise_ece(logits, predictions["clean"].labels), abs=1e-12)
        assert findings.points["auc"][method] == metrics.auc(logits, predictions["clean"].labels)
    assert sum(one.rows for one in findings.classes) == findings.test.rows
    top = predictions["clean"].logits[LATES].argmax(1)
    for one in findings.classes:
        chosen = top == int(one.name)
        assert one.predicted[LATES] == int(chosen.sum())
        assert one.precision[LATES] == pytest.approx(
            float((predictions["clean"].labels[chosen] == int(one.name)).double().mean())
        )


def test_members_carry_the_model_s_contributions_and_none_that_it_did_not_keep(
    calibrated: lates.CalibratedModel, findings: Findings
) -> None:
    assert {member.name: member.contribution for member in findings.members} == calibrated.contributions
    assert {member.name for member in findings.members if member.accuracy} == set(calibrated.member_names)


def test_probes_without_a_vote_are_drawn_hollow_with_their_accuracy_on_the_hold_out(
    problem: Problem, features: tuple[lates.Features, lates.Features], test_sets: dict[str, DataLoader], tmp_path: Path
) -> None:
    calibrated = lates.calibrate(
        problem.model, train=problem.train, holdout=problem.holdout, budget=0.02, views=None, progress=False
    )
    held = features[1]
    expected = {
        name: float((own.probe.logits(held.blocks[name]).argmax(1) == held.labels).double().mean())
        for name, own in lates.train_probes(*features).items()
    }
    expected["head"] = float((held.logits.argmax(1) == held.labels).double().mean())
    assert calibrated.holdout_accuracies == pytest.approx(expected, abs=0.002)
    silent = [name for name in calibrated.weights if name not in calibrated.member_names]
    assert silent
    calibrated.save(tmp_path / "saved")
    loaded = lates.load(tmp_path / "saved", problem.model)
    assert loaded.holdout_accuracies == calibrated.holdout_accuracies
    lates.write_report(loaded, test_sets["clean"], tmp_path / "r.html", progress=False)
    html = (tmp_path / "r.html").read_text("utf-8")
    layers = [layer["data"]["values"] for layer in charts_in(html)["depth-0"]["layer"]]
    rows = {row["name"]: row for layer in layers for row in layer if "measured" in row}
    assert list(rows) == list(calibrated.weights)
    for name, row in rows.items():
        assert row["measured"] == (words.ON_THE_HOLDOUT if name in silent else words.ON_THE_TEST_SET)
    assert rows[silent[0]]["value"] == calibrated.holdout_accuracies[silent[0]]
    assert html.count("<small>on the hold-out</small>") == len(silent)


def test_the_picture_spends_its_height_on_votes_and_joins_ribbons_without_gap(findings: Findings) -> None:
    picture = picture_rows(findings.members)
    ends = [row for row in picture.ribbons if row["x"] == pytest.approx(0.9)]
    for row, member in zip(ends, [one for one in findings.members if one.contribution], strict=True):
        assert row["y2"] - row["y"] == pytest.approx(VOTES * member.contribution)
    assert [row["y"] for row in ends[1:]] == pytest.approx([row["y2"] for row in ends[:-1]])
    assert all(0 <= row["y"] <= row["y2"] <= picture.height + 1e-9 for row in [*picture.ribbons, *picture.boxes])


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


def test_a_network_that_changed_since_is_said_at_the_top(
    problem: Problem, calibrated: lates.CalibratedModel, test_sets: dict[str, DataLoader], tmp_path: Path
) -> None:
    calibrated.save(tmp_path / "saved")
    other = copy.deepcopy(problem.model)
    for name, network in (("same", problem.model), ("other", other)):
        with warnings.catch_warnings(record=True):
            loaded = lates.load(tmp_path / "saved", network)
        lates.write_report(loaded, test_sets["clean"], tmp_path / name, progress=False)
        header = (tmp_path / name).read_text("utf-8").split("</header>")[0]
        assert ("Caution: 1 tensor of this network has other values" in header) == (name == "other")
        with torch.no_grad():
            next(other.parameters()).add_(0.01)


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
    assert "'unsafe-inline'" not in str(policy).split("script-src")[1].split(";")[0]


def test_without_shifts_there_is_no_section_on_them(
    calibrated: lates.CalibratedModel, test_sets: dict[str, DataLoader], tmp_path: Path
) -> None:
    lates.write_report(calibrated, test_sets["clean"], tmp_path / "plain.html", progress=False)
    html = (tmp_path / "plain.html").read_text("utf-8")
    assert "Under shift" not in html
    assert "<title>ResidualNetwork, 10 classes</title>" in html


def test_the_same_seed_writes_the_same_bytes(
    problem: Problem, test_sets: dict[str, DataLoader], tmp_path: Path
) -> None:
    sampled = lates.mc_dropout(problem.model, samples=3)
    calibrated = lates.calibrate(sampled, train=problem.train, holdout=problem.holdout, views=None, progress=False)
    for name in ("one", "two"):
        lates.write_report(calibrated, test_sets["clean"], tmp_path / name, progress=False)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert "mean of 3 dropout samples" in (tmp_path / "one").read_text("utf-8")


def test_an_ensemble_gets_a_picture_for_each_network(
    problem: Problem, ensemble: list[nn.Module], test_sets: dict[str, DataLoader], tmp_path: Path
) -> None:
    calibrated = lates.calibrate(ensemble, train=problem.train, holdout=problem.holdout, views=None, progress=False)
    predicted = read_predictions(calibrated, test_sets["clean"], "clean", seed=0)
    with torch.no_grad():
        torch.testing.assert_close(
            predicted.logits[LATES].softmax(1), calibrated(problem.images).softmax(1), atol=1e-5, rtol=1e-4
        )
        mean = torch.stack([model(problem.images).softmax(1) for model in ensemble]).mean(0)
    torch.testing.assert_close(predicted.logits[NETWORK].softmax(1), mean, atol=1e-5, rtol=1e-4)
    lates.write_report(calibrated, test_sets["clean"], tmp_path / "ensemble.html", progress=False)
    html = (tmp_path / "ensemble.html").read_text("utf-8")
    assert {"votes-0", "votes-1", "depth-0", "depth-1"} <= set(charts_in(html))
    assert "ensemble of 2" in html


def test_temperature_scaling_alone_is_shown_beside_the_network_only(
    problem: Problem, test_sets: dict[str, DataLoader], tmp_path: Path
) -> None:
    scaled = lates.calibrate(problem.model, holdout=problem.holdout, blocks=[], progress=False)
    lates.write_report(scaled, test_sets, tmp_path / "scaled.html", progress=False)
    html = (tmp_path / "scaled.html").read_text("utf-8")
    assert [a["data-switch"] for _, a in Page(html).elements if "data-switch" in a] == [NETWORK, TEMPERATURE]
    assert "this is temperature scaling" in html


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


def test_names_that_occur_twice_are_told_apart(
    calibrated: lates.CalibratedModel, predictions: dict[str, Predictions]
) -> None:
    names = ["crane", "crane", *(str(c) for c in range(8))]
    found = find(calibrated, predictions, names, seed=0)
    assert {one.name for one in found.classes} == {"crane (0)", "crane (1)", *names[2:]}


@pytest.mark.parametrize("rows", [1, 3])
def test_a_handful_of_rows_is_enough(
    calibrated: lates.CalibratedModel, problem: Problem, tmp_path: Path, rows: int
) -> None:
    batch = (problem.images[:rows], problem.labels[:rows])
    lates.write_report(calibrated, {"one": [batch], "two": [batch]}, tmp_path / "few.html", progress=False)
    assert f"On {rows} test input" in (tmp_path / "few.html").read_text("utf-8")


def test_what_is_not_finite_is_said_and_draws_nothing(findings: Findings) -> None:
    broken = metrics.Interval(math.inf, math.nan, math.nan, 0.95, 100)
    test = replace(findings.test, measured={m: {**own, "nll": broken} for m, own in findings.test.measured.items()})
    empty = Bin(0.0, 0.1, 0, 0, math.nan, math.nan, (math.nan, math.nan))
    odd = replace(findings, sets=(test, *findings.sets[1:]), bins={m: (empty, *b) for m, b in findings.bins.items()})
    html = page_of(odd, draw_all(odd), "odd")
    assert "not finite" in html
    assert "NaN" not in html.split('id="charts">')[1].split("</script>")[0]


@pytest.mark.parametrize(
    ("change", "error", "words_of_it"),
    [
        ({"path": "absent/report.html"}, FileNotFoundError, "there is no folder"),
        ({"path": "."}, IsADirectoryError, "it is a folder"),
        ({"class_names": ["a", "b"]}, ValueError, "2 class names came for 10 classes"),
        ({"test": {}}, ValueError, "No test set came"),
        ({"test": []}, ValueError, "yielded no batch"),
        ({"calibrated": nn.Linear(2, 2)}, TypeError, "calibrated came as Linear"),
    ],
)
def test_errors_say_what_came(
    calibrated: lates.CalibratedModel,
    test_sets: dict[str, DataLoader],
    tmp_path: Path,
    change: dict[str, Any],
    error: type[Exception],
    words_of_it: str,
) -> None:
    arguments: dict[str, Any] = {"calibrated": calibrated, "test": test_sets, "path": "report.html", **change}
    first, test, name = (arguments.pop(key) for key in ("calibrated", "test", "path"))
    with pytest.raises(error, match=words_of_it):
        lates.write_report(first, test, tmp_path / name, progress=False, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_labels_outside_the_classes_are_refused_and_ignored_rows_left_out(
    calibrated: lates.CalibratedModel, problem: Problem
) -> None:
    labels = problem.labels.clone()
    labels[:100] = -100
    assert read_predictions(calibrated, loader_of(problem.images, labels), "test", seed=0).rows == 900
    labels[0] = 10
    with pytest.raises(ValueError, match="10"):
        read_predictions(calibrated, loader_of(problem.images, labels), "test", seed=0)
    with pytest.raises(ValueError, match="No row is left"):
        read_predictions(calibrated, [(problem.images[:5], torch.full((5,), -100))], "test", seed=0)


def test_a_missing_extra_is_named(
    calibrated: lates.CalibratedModel, test_sets: dict[str, DataLoader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without_altair(name: str, *rest: Any) -> Any:
        if name.startswith("lates.report.charts"):
            raise ModuleNotFoundError("No module named 'altair'", name="altair")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_altair)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .lates\[report\]"):
        lates.write_report(calibrated, test_sets, tmp_path / "report.html", progress=False)


def test_progress_is_told_batch_by_batch(
    calibrated: lates.CalibratedModel, test_sets: dict[str, DataLoader], tmp_path: Path
) -> None:
    told: list[tuple[str, int, int | None]] = []
    lates.write_report(calibrated, test_sets, tmp_path / "r.html", progress=lambda *step: told.append(step))
    assert told == [(f"reading {name}", done, 4) for name in test_sets for done in range(1, 5)]


@pytest.mark.filterwarnings("ignore:The budget allows")
def test_where_no_block_got_a_probe_there_is_nothing_beside_temperature(problem: Problem) -> None:
    calibrated = lates.calibrate(
        problem.model, train=problem.train, holdout=problem.holdout, budget=0.0, views=None, progress=False
    )
    assert len(calibrated.weights) > 1
    assert methods_of(calibrated) == (NETWORK, TEMPERATURE)
