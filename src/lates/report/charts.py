"""The charts, as Vega-Lite specifications made with Altair: each function turns numbers into marks and computes nothing.

Colours are CSS variables of the page, so that light, dark and print need no second drawing; the rest of the look stands in
`page.js`. The methods shown are one parameter, `shown`, which the switches of the page set in every chart.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import altair as alt

from lates.metrics import Comparison, Reliability
from lates.report import sentences
from lates.report.findings import Findings, Member
from lates.report.predictions import LATES, NETWORK, TEMPERATURE
from lates.report.sentences import IN_PERCENT, LABELS, inside_name, share

Spec = dict[str, Any]
Row = dict[str, Any]

SHAPES = {NETWORK: "circle", TEMPERATURE: "triangle-up", LATES: "square"}
NAME_LIMIT = 150  # pixels
COLOUR = alt.Color("method:N", legend=None).scale(domain=list(SHAPES), range=[f"var(--{method})" for method in SHAPES])
SHAPE = alt.Shape("method:N", legend=None).scale(domain=list(SHAPES), range=list(SHAPES.values()))
UNIT = [0, 1.04]  # shares, with room for the mark of a share of 1
QUARTERS = [0, 0.25, 0.5, 0.75, 1]
WORST_CLASSES = 20
FEW_SETS = 8  # as many fit into a third of the page


def draw_all(findings: Findings) -> dict[str, Spec]:
    """Every chart by the id of its place on the page."""
    specs = {f"metric-{metric}": metric_chart(findings, metric) for metric in ("accuracy", "nll", "ece", "brier")}
    for network in range(len(findings.calibrated.networks)):
        members = [member for member in findings.members if member.network == network]
        specs[f"contributions-{network}"] = contribution_chart(members, findings)
        if sentences.depth(findings):
            specs[f"depth-{network}"] = depth_chart(members, findings)
    for method in findings.methods:
        specs[f"reliability-{method}"] = reliability_chart(findings, method)
        specs[f"histogram-{method}"] = histogram_chart(findings, method, of_errors=False)
        specs[f"wrong-{method}"] = histogram_chart(findings, method, of_errors=True)
    specs["coverage"] = coverage_chart(findings)
    specs["classes"] = class_chart(findings)
    if len(findings.sets) > 1:
        specs |= {f"shift-{metric}": shift_chart(findings, metric) for metric in ("accuracy", "nll", "ece")}
    return specs


def metric_chart(findings: Findings, metric: str) -> Spec:
    """Each method's value, a dot, with its interval."""
    rows = [interval_row(findings.test, method, metric) for method in findings.methods]
    y = alt.Y("name:N", title=None, sort=[LABELS[method] for method in findings.methods]).axis(None)
    x = alt.X("value:Q", title=None).scale(zero=False, padding=12).axis(format=axis_format(metric), tickCount=4)
    base = shown(chart_of(rows)).encode(y=y, color=COLOUR, tooltip=interval_tooltip(metric))
    whiskers = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=None), x2="high:Q")
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(x=x, shape=SHAPE)
    height = 26 * len(findings.methods)
    return finished([whiskers, dots], sentences.metric_values(findings.test, metric), height, findings.methods)


def contribution_chart(members: list[Member], findings: Findings) -> Spec:
    """A bar for each member, from the first block to the head."""
    base, text = _member_chart(members), sentences.contributions(findings)
    x = alt.X("contribution:Q", title="share of the sum of weights").scale(padding=24).axis(format="~%", tickCount=5)
    bars = base.mark_bar(cornerRadius=3, height=14).encode(x=x)
    labels = base.mark_text(align="left", dx=6).encode(x=x, text="text:N", color=alt.value("var(--ink)"))
    return finished([bars, labels], text, max(60, 24 * len(members)))


def depth_chart(members: list[Member], findings: Findings) -> Spec:
    """Every member's accuracy alone, in the order of depth."""
    x = alt.X("accuracy:Q", title="accuracy on the hold-out").scale(zero=False, padding=12)
    dots = _member_chart(members).mark_point(filled=True, size=80, opacity=1)
    dots = dots.encode(x=x.axis(format="~%", tickCount=5))
    return finished([dots], sentences.depth(findings), max(60, 24 * len(members)))


def _member_chart(members: list[Member]) -> alt.Chart:
    """A row for each member: the head in the colour of the network, a probe in that of LATES."""
    rows = [{**asdict(one), "method": NETWORK if one.is_head else LATES, "text": share(one.contribution)} for one in members]
    hints = [
        alt.Tooltip("name:N", title="member"),
        *tooltip(".4f", ("weight", "weight")),
        *tooltip(".1%", ("contribution", "contribution"), ("accuracy", "accuracy on the hold-out")),
    ]
    return chart_of(rows).encode(y=name_axis(one.name for one in members), color=COLOUR, tooltip=hints)


def reliability_chart(findings: Findings, method: str) -> Spec:
    """A square of accuracy over confidence, one dot per bin with its gap to the diagonal."""
    filled = [row for row in bin_rows(findings.diagrams[method]) if row["count"]]
    hints = [
        *tooltip(".1%", ("low", "confidence above"), ("high", "up to")),
        *tooltip(",", ("count", "inputs")),
        *tooltip(".1%", ("confidence", "mean confidence"), ("accuracy", "accuracy")),
        *tooltip(".1%", ("likely_low", "95 % from"), ("likely_high", "to")),
    ]
    x = unit_axis("confidence:Q")
    y = alt.Y("accuracy:Q", title="accuracy").scale(domain=UNIT, nice=False)
    y = y.axis(format=".0%", values=QUARTERS, minExtent=38, maxExtent=38)
    ink = f"var(--{method})"
    diagonal = chart_of([{"confidence": 0, "accuracy": 0}, {"confidence": 1, "accuracy": 1}])
    diagonal = diagonal.mark_line(color="var(--soft)", strokeDash=[4, 3], strokeWidth=1).encode(x=x, y=y)
    sides = [{"confidence": 0.03, "accuracy": 0.95, "side": "underconfident"}]
    sides += [{"confidence": 0.97, "accuracy": 0.05, "side": "overconfident"}]
    corners = [
        chart_of([side]).mark_text(align=align, color="var(--soft)").encode(x=x, y=y, text="side:N")
        for side, align in zip(sides, ("left", "right"), strict=True)
    ]
    base = chart_of(filled).encode(x=x, tooltip=hints)
    gaps = base.mark_rule(strokeWidth=6, opacity=0.25, color=ink).encode(y=alt.Y("confidence:Q"), y2="accuracy:Q")
    whiskers = base.mark_rule(color=ink, strokeWidth=1.5).encode(y=alt.Y("likely_low:Q"), y2="likely_high:Q")
    size = alt.Size("count:Q", legend=None).scale(domain=[0, max(row["count"] for row in filled)], range=[25, 220])
    dots = base.mark_point(filled=True, color=ink, opacity=1, shape=SHAPES[method]).encode(y=y, size=size)
    alt_text = f"{LABELS[method]}: {sentences.reliability(findings, method)}"
    spec = finished([*corners, diagonal, gaps, whiskers, dots], alt_text, 280)
    return {**spec, "usermeta": {"square": True}}  # only the page knows the width, and sets the height to it


def histogram_chart(findings: Findings, method: str, of_errors: bool) -> Spec:
    """Inputs per bin of confidence, or errors, which have a scale of their own: beside all inputs they are hardly visible."""
    rows = bin_rows(findings.diagrams[method])
    top, title, ink = ("wrong", "errors", "var(--wrong)") if of_errors else ("count", "inputs", f"var(--{method})")
    hints = tooltip(".1%", ("low", "confidence above"), ("high", "up to"))
    hints += tooltip(",", ("count", "inputs"), ("wrong", "errors"))
    y = alt.Y(f"{top}:Q", title=title).scale(domain=[0, 1.05 * max(1, *(row[top] for row in rows))], nice=False)
    y = y.axis(tickCount=3, tickMinStep=1, format="~s", minExtent=38, maxExtent=38)
    bars = chart_of(rows).mark_rect(stroke="var(--paper)", strokeWidth=1, color=ink)
    x = unit_axis("low:Q", "confidence" if of_errors else None)
    bars = bars.encode(x=x, x2="high:Q", y=y, y2=alt.datum(0), tooltip=hints)
    return finished([bars], f"{LABELS[method]}: {sentences.histogram(findings, method)}", 60)


def bin_rows(diagram: Reliability) -> list[Row]:
    """A row for each bin: confidences in ]low, high], and Wilson's 95 % interval of the accuracy."""
    columns = {
        "low": diagram.edges[:-1],
        "high": diagram.edges[1:],
        "count": diagram.counts,
        "wrong": diagram.errors,
        "confidence": diagram.confidence,
        "accuracy": diagram.accuracy,
        **dict(zip(("likely_low", "likely_high"), diagram.bands, strict=True)),
    }
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in values]


def coverage_chart(findings: Findings) -> Spec:
    """The error rate among the inputs answered, by their share."""
    rows = [
        {"method": method, "coverage": coverage, "risk": risk}
        for method in findings.methods
        for coverage, risk in findings.coverage[method]
    ]
    x = alt.X("coverage:Q", title="share of inputs answered, highest confidence first")
    x = x.scale(domain=[0, 1]).axis(format="~%", tickCount=5)
    y = alt.Y("risk:Q", title="error rate (lower is better)").axis(format="~%", tickCount=5)
    near = alt.selection_point(name="near", nearest=True, on="pointerover", fields=["coverage"], empty=False)
    curves = shown(chart_of(rows)).encode(x=x, y=y, color=COLOUR)
    lines, dots = curves.mark_line(strokeWidth=2.5), curves.mark_point(filled=True, size=70)
    dots = dots.encode(shape=SHAPE, opacity=alt.condition(near, alt.value(1), alt.value(0)))
    risks = tooltip(".2%", *((method, LABELS[method]) for method in findings.methods))
    hints = [*tooltip(".0%", ("coverage", "answered")), *risks]
    ruler = chart_of(rows).transform_pivot("method", value="risk", groupby=["coverage"])
    ruler = ruler.mark_rule(color="var(--soft)").add_params(near)
    ruler = ruler.encode(x=x, opacity=alt.condition(near, alt.value(0.6), alt.value(0)), tooltip=hints)
    return finished([ruler, lines, dots], sentences.deferral(findings), 300, findings.methods)


def class_chart(findings: Findings) -> Spec:
    """The calibration error of the worst classes under each method."""
    worst = [one.name for one in findings.classes[findings.main][:WORST_CLASSES]]
    rows = [
        {**asdict(one), "method": method, "label": LABELS[method]}
        for method, scores in findings.classes.items()
        for one in scores[: len(worst)]
    ]
    hints = [
        alt.Tooltip("name:N", title="class"),
        alt.Tooltip("label:N", title="method"),
        *tooltip(".2%", ("error", "calibration error")),
        *tooltip(",", ("rows", "inputs of this class"), ("predicted", "times predicted")),
        *tooltip(".1%", ("confidence", "mean confidence then"), ("precision", "correct then")),
    ]
    x = alt.X("error:Q", title="calibration error (lower is better)").axis(format="~%", tickCount=5)
    y = name_axis(worst, grid=True)
    dots = shown(chart_of(rows)).mark_point(filled=True, size=80, opacity=1)
    dots = dots.encode(x=x, y=y, color=COLOUR, shape=SHAPE, tooltip=hints)
    return finished([dots], sentences.classwise(findings), 24 * len(worst), findings.methods)


def shift_chart(findings: Findings, metric: str) -> Spec:
    """A metric of every method on each test set, in the given order."""
    sets, methods = findings.sets, list(findings.methods)
    rows = [{**interval_row(one, m, metric), "set": name} for name, one in sets.items() for m in methods]
    x = alt.X("set:N", title=None, sort=list(sets)).scale(type="point", padding=0.3)
    angle = -35 if len(sets) <= FEW_SETS else -90
    x = x.axis(labelAngle=angle, labelLimit=110, labelColor="var(--ink)", labelOverlap="greedy")
    y = alt.Y("value:Q", title=None).scale(zero=metric == "ece").axis(format=axis_format(metric), tickCount=5)
    offset = alt.XOffset("method:N", sort=methods).scale(domain=methods, range=[-5, 5])
    base = shown(chart_of(rows)).encode(x=x, xOffset=offset, color=COLOUR)
    hints = [alt.Tooltip("set:N", title="test set"), *interval_tooltip(metric)]
    lines = base.mark_line(strokeWidth=1.5, opacity=0.6).encode(y=y)
    whiskers = base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title=None), y2="high:Q", tooltip=hints)
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(y=y, shape=SHAPE, tooltip=hints)
    values = [f"{name}: {sentences.metric_values(one, metric)}" for name, one in sets.items()]
    return finished([lines, whiskers, dots], " ".join(values), 240, methods)


def chart_of(rows: list[Row]) -> alt.Chart:
    """A chart of these rows; numbers that are not finite become null, which draws nothing."""
    values = [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
        for row in rows
    ]
    return alt.Chart(alt.Data(values=values))


def finished(layers: Sequence[alt.Chart], alt_text: str, height: int, methods: Iterable[str] = ()) -> Spec:
    """The specification: as wide as its place on the page, with its alternative text; switchable if methods are given."""
    chart = alt.LayerChart(layer=list(layers), width="container", height=height, description=alt_text)
    if methods:
        chart = chart.add_params(alt.param(name="shown", value=list(methods)))
    return chart.to_dict()


def shown(chart: alt.Chart) -> alt.Chart:
    return chart.transform_filter("indexof(shown, datum.method) >= 0")


def interval_row(one: Comparison, method: str, metric: str) -> Row:
    return {"method": method, "name": LABELS[method], **vars(one.measured[method][metric])}


def name_axis(names: Iterable[str], grid: bool = False) -> alt.Y:
    """A row for each name, in this order."""
    axis = alt.Y("name:N", title=None, sort=list(names))
    return axis.axis(labelLimit=NAME_LIMIT, labelColor="var(--ink)", grid=grid)


def tooltip(style: str, *fields: tuple[str, str]) -> list[alt.Tooltip]:
    """(field, title) of numbers, all in this format."""
    return [alt.Tooltip(f"{field}:Q", title=title, format=style) for field, title in fields]


def interval_tooltip(metric: str) -> list[alt.Tooltip]:
    style = ".2%" if metric in IN_PERCENT else ".4f"
    numbers = tooltip(style, ("value", inside_name(metric)), ("low", "95 % from"), ("high", "to"))
    return [alt.Tooltip("name:N", title="method"), *numbers]


def axis_format(metric: str) -> str:
    return "~%" if metric in IN_PERCENT else "~g"


def unit_axis(field: str, title: str | None = None) -> alt.X:
    """Confidence from 0 to 1; labelled where it has a title, for charts below each other share the labels of the last."""
    axis = alt.X(field, title=title).scale(domain=UNIT, nice=False)
    at_end = {"test": "datum.value === 1", "value": "right"}
    align = {"condition": [{"test": "datum.value === 0", "value": "left"}, at_end], "value": "center"}
    return axis.axis(format=".0%", values=QUARTERS, labels=title is not None, labelAlign=align, labelFlush=False)
