"""The charts, as Vega-Lite specifications made with Altair: each function turns numbers into marks and computes nothing."""

from collections.abc import Sequence

import altair as alt

import lates.report.words as words
from lates.report.frame import (
    NAME_LIMIT,
    SHAPES,
    Spec,
    axis_format,
    chart_of,
    colour,
    finished,
    interval_row,
    interval_tooltip,
    shape,
    short,
    shown,
    unit_axis,
)
from lates.report.layers import depth_chart, picture_chart
from lates.report.numbers import Findings
from lates.report.words import LABELS

WORST_CLASSES = 20
FEW_SETS = 8  # so many fit into a third of the page


def draw_all(findings: Findings) -> dict[str, Spec]:
    """Every chart of the page by its place there."""
    specs = {f"metric-{metric}": metric_chart(findings, metric) for metric in ("accuracy", "nll", "ece", "brier")}
    for network in range(findings.subject.networks):
        own = [member for member in findings.members if member.network == network]
        specs[f"votes-{network}"] = picture_chart(own, findings.subject.networks, words.votes(findings))
        specs[f"depth-{network}"] = depth_chart(own, findings)
    for method in findings.methods:
        specs[f"reliability-{method}"] = reliability_chart(findings, method)
        specs[f"histogram-{method}"] = histogram_chart(findings, method)
        specs[f"wrong-{method}"] = wrong_chart(findings, method)
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
    base = shown(chart_of(rows)).encode(y=y, color=colour(findings.methods), tooltip=interval_tooltip(metric))
    whiskers = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=None), x2="high:Q")
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(x=x, shape=shape(findings.methods))
    height = 26 * len(findings.methods)
    return finished([whiskers, dots], words.metric_alt(findings.test, metric), height, findings.methods)


def reliability_chart(findings: Findings, method: str) -> Spec:
    """Accuracy over confidence, a dot per bin on the way to the diagonal, the bins' counts along the foot."""
    rows = [
        {
            "from": one.low,
            "to": one.high,
            "count": one.count,
            "confidence": one.confidence,
            "accuracy": one.accuracy,
            "low": one.likely[0],
            "high": one.likely[1],
            "gap": one.accuracy - one.confidence,
            "text": short(one.count),
            "middle": (one.low + one.high) / 2,
        }
        for one in findings.bins[method]
        if one.count
    ]
    largest = max(row["count"] for row in rows)
    tooltip = [
        alt.Tooltip("from:Q", title="confidence above", format=".1%"),
        alt.Tooltip("to:Q", title="up to", format=".1%"),
        alt.Tooltip("count:Q", title="inputs", format=","),
        alt.Tooltip("confidence:Q", title="mean confidence", format=".1%"),
        alt.Tooltip("accuracy:Q", title="right", format=".1%"),
        alt.Tooltip("low:Q", title="95 % from", format=".1%"),
        alt.Tooltip("high:Q", title="to", format=".1%"),
    ]
    x = unit_axis("confidence:Q")
    y = alt.Y("accuracy:Q", title="right").scale(domain=[-0.16, 1], nice=False)
    y = y.axis(format=".0%", values=[0, 0.25, 0.5, 0.75, 1], minExtent=38, maxExtent=38)
    ink = f"var(--{method})"
    diagonal = chart_of([{"confidence": 0, "accuracy": 0}, {"confidence": 1, "accuracy": 1}])
    diagonal = diagonal.mark_line(color="var(--soft)", strokeDash=[4, 3], strokeWidth=1).encode(x=x, y=y)
    base = chart_of(rows).encode(x=x, tooltip=tooltip)
    gaps = base.mark_rule(strokeWidth=6, opacity=0.25, color=ink).encode(y=alt.Y("confidence:Q"), y2="accuracy:Q")
    whiskers = base.mark_rule(color=ink, strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high:Q")
    dots = base.mark_point(filled=True, color=ink, opacity=1, shape=SHAPES[method]).encode(
        y=y, size=alt.Size("count:Q", legend=None).scale(domain=[0, largest], range=[25, 220])
    )
    counts = base.mark_text(angle=270, align="left", baseline="middle", fontSize=9.5, color="var(--soft)").encode(
        x=unit_axis("middle:Q"), y=alt.datum(-0.15), text="text:N"
    )
    return finished([diagonal, gaps, whiskers, dots, counts], words.reliability(findings, method), 280)


def histogram_chart(findings: Findings, method: str) -> Spec:
    """How many inputs get which confidence."""
    counts = [one.count for one in findings.bins[method]]
    return _bars(findings, method, counts, "inputs", f"var(--{method})", 90, None)


def wrong_chart(findings: Findings, method: str) -> Spec:
    """How many of them are answered wrongly: a panel of its own, for beside all inputs the mistakes would hardly show."""
    counts = [one.count - one.right for one in findings.bins[method]]
    return _bars(findings, method, counts, "wrong", "var(--wrong)", 70, "confidence")


def _bars(
    findings: Findings, method: str, counts: Sequence[int], title: str, ink: str, height: int, below: str | None
) -> Spec:
    """A bar for each bin of confidence."""
    rows = [
        {
            "from": one.low,
            "to": one.high,
            "foot": 0,
            "top": top,
            "all": one.count,
            "wrong": one.count - one.right,
        }
        for one, top in zip(findings.bins[method], counts, strict=True)
    ]
    tooltip = [
        alt.Tooltip("from:Q", title="confidence above", format=".1%"),
        alt.Tooltip("to:Q", title="up to", format=".1%"),
        alt.Tooltip("all:Q", title="inputs", format=","),
        alt.Tooltip("wrong:Q", title="of them wrong", format=","),
    ]
    y = alt.Y("foot:Q", title=title).scale(domain=[0, 1.05 * max(*counts, 1)], nice=False)
    y = y.axis(tickCount=3, tickMinStep=1, format="~s", minExtent=38, maxExtent=38)
    bars = chart_of(rows).mark_rect(stroke="var(--paper)", strokeWidth=1, color=ink)
    bars = bars.encode(x=unit_axis("from:Q", below), x2="to:Q", y=y, y2="top:Q", tooltip=tooltip)
    return finished([bars], words.histogram(findings, method), height)


def coverage_chart(findings: Findings) -> Spec:
    """The error rate among the inputs kept, by how many are kept."""
    rows = [
        {"method": method, "coverage": coverage, "risk": risk}
        for method in findings.methods
        for coverage, risk in findings.coverage[method]
    ]
    x = alt.X("coverage:Q", title="share of inputs answered, the surest first")
    x = x.scale(domain=[0, 1]).axis(format=".0%", tickCount=5)
    y = alt.Y("risk:Q", title="wrong").axis(format="~%", tickCount=5)
    near = alt.selection_point(name="near", nearest=True, on="pointerover", fields=["coverage"], empty=False)
    lines = shown(chart_of(rows)).mark_line(strokeWidth=2.5).encode(x=x, y=y, color=colour(findings.methods))
    dots = (
        shown(chart_of(rows))
        .mark_point(filled=True, size=70)
        .encode(
            x=x,
            y=y,
            color=colour(findings.methods),
            shape=shape(findings.methods),
            opacity=alt.condition(near, alt.value(1), alt.value(0)),
        )
    )
    ruler = (
        chart_of(rows)
        .transform_pivot("method", value="risk", groupby=["coverage"])
        .mark_rule(color="var(--soft)")
        .encode(
            x=x,
            opacity=alt.condition(near, alt.value(0.6), alt.value(0)),
            tooltip=[
                alt.Tooltip("coverage:Q", title="answered", format=".0%"),
                *(alt.Tooltip(f"{method}:Q", title=LABELS[method], format=".2%") for method in findings.methods),
            ],
        )
        .add_params(near)
    )
    return finished([ruler, lines, dots], words.handing_over(findings), 300, findings.methods)


def class_chart(findings: Findings) -> Spec:
    """The worst classes' calibration error under each method."""
    worst = findings.classes[:WORST_CLASSES]
    rows = [
        {
            "name": one.name,
            "method": method,
            "label": LABELS[method],
            "error": one.error[method],
            "rows": one.rows,
            "predicted": one.predicted[method],
            "confidence": one.confidence[method],
            "precision": one.precision[method],
        }
        for one in worst
        for method in findings.methods
    ]
    tooltip = [
        alt.Tooltip("name:N", title="class"),
        alt.Tooltip("label:N", title="method"),
        alt.Tooltip("error:Q", title="error", format=".2%"),
        alt.Tooltip("rows:Q", title="inputs of this class", format=","),
        alt.Tooltip("predicted:Q", title="times the answer", format=","),
        alt.Tooltip("confidence:Q", title="then sure", format=".1%"),
        alt.Tooltip("precision:Q", title="then right", format=".1%"),
    ]
    y = alt.Y("name:N", title=None, sort=[one.name for one in worst])
    y = y.axis(labelLimit=NAME_LIMIT, labelColor="var(--ink)", grid=True)
    x = alt.X("error:Q", title="calibration error of the class's probability").axis(format=".1%", tickCount=5)
    dots = shown(chart_of(rows)).mark_point(filled=True, size=80, opacity=1)
    dots = dots.encode(x=x, y=y, color=colour(findings.methods), shape=shape(findings.methods), tooltip=tooltip)
    return finished([dots], words.classwise(findings), 24 * len(worst), findings.methods)


def shift_chart(findings: Findings, metric: str) -> Spec:
    """A metric of every method over the test sets, in the order in which they came."""
    rows = [
        {**interval_row(one, method, metric), "set": one.name} for one in findings.sets for method in findings.methods
    ]
    x = alt.X("set:N", title=None, sort=[one.name for one in findings.sets])
    angle = -35 if len(findings.sets) <= FEW_SETS else -90
    x = x.axis(labelAngle=angle, labelLimit=110, labelColor="var(--ink)", labelOverlap="greedy")
    x = x.scale(type="point", padding=0.3)
    y = alt.Y("value:Q", title=None).scale(zero=metric == "ece").axis(format=axis_format(metric), tickCount=5)
    offset = alt.XOffset("method:N", sort=list(findings.methods)).scale(domain=list(findings.methods), range=[-5, 5])
    base = shown(chart_of(rows)).encode(x=x, xOffset=offset, color=colour(findings.methods))
    tooltip = [alt.Tooltip("set:N", title="test set"), *interval_tooltip(metric)]
    lines = base.mark_line(strokeWidth=1.5, opacity=0.6).encode(y=y)
    whiskers = base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title=None), y2="high:Q", tooltip=tooltip)
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(y=y, shape=shape(findings.methods), tooltip=tooltip)
    values = [f"{one.name}: {words.metric_alt(one, metric)}" for one in findings.sets]
    return finished([lines, whiskers, dots], " ".join(values), 240, findings.methods)
