"""The charts, as Vega-Lite specifications made with Altair: each function turns numbers into marks and computes nothing."""

from dataclasses import asdict

import altair as alt

from lates.report import sentences, style
from lates.report.findings import Findings, Member
from lates.report.formats import LABELS, share
from lates.report.predictions import LATES, NETWORK
from lates.report.style import Spec

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
    rows = [style.interval_row(findings.test, method, metric) for method in findings.methods]
    y = alt.Y("name:N", title=None, sort=[LABELS[method] for method in findings.methods]).axis(None)
    x = alt.X("value:Q", title=None).scale(zero=False, padding=12).axis(format=style.axis_format(metric), tickCount=4)
    base = style.shown(style.chart_of(rows)).encode(y=y, color=style.COLOUR, tooltip=style.interval_tooltip(metric))
    whiskers = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=None), x2="high:Q")
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(x=x, shape=style.SHAPE)
    height = 26 * len(findings.methods)
    return style.finished([whiskers, dots], sentences.metric_values(findings.test, metric), height, findings.methods)


def contribution_chart(members: list[Member], findings: Findings) -> Spec:
    """A bar for each member, from the first block to the head."""
    base, text = _member_chart(members), sentences.contributions(findings)
    x = alt.X("contribution:Q", title="share of the sum of weights").scale(padding=24).axis(format="~%", tickCount=5)
    bars = base.mark_bar(cornerRadius=3, height=14).encode(x=x)
    labels = base.mark_text(align="left", dx=6).encode(x=x, text="text:N", color=alt.value("var(--ink)"))
    return style.finished([bars, labels], text, max(60, 24 * len(members)))


def depth_chart(members: list[Member], findings: Findings) -> Spec:
    """Every member's accuracy alone, in the order of depth."""
    x = alt.X("accuracy:Q", title="accuracy on the hold-out").scale(zero=False, padding=12)
    dots = _member_chart(members).mark_point(filled=True, size=80, opacity=1)
    dots = dots.encode(x=x.axis(format="~%", tickCount=5))
    return style.finished([dots], sentences.depth(findings), max(60, 24 * len(members)))


def _member_chart(members: list[Member]) -> alt.Chart:
    """A row for each member: the head in the colour of the network, a probe in that of LATES."""
    rows = [
        {**asdict(one), "method": NETWORK if one.is_head else LATES, "text": share(one.contribution)} for one in members
    ]
    hints = [
        alt.Tooltip("name:N", title="member"),
        *style.tooltip(".4f", ("weight", "weight")),
        *style.tooltip(".1%", ("contribution", "contribution"), ("accuracy", "accuracy on the hold-out")),
    ]
    return style.chart_of(rows).encode(
        y=style.name_axis(one.name for one in members), color=style.COLOUR, tooltip=hints
    )


def reliability_chart(findings: Findings, method: str) -> Spec:
    """A square of accuracy over confidence, one dot per bin with its gap to the diagonal."""
    filled = [one for one in findings.bins[method] if one.count]
    hints = [
        *style.tooltip(".1%", ("low", "confidence above"), ("high", "up to")),
        *style.tooltip(",", ("count", "inputs")),
        *style.tooltip(".1%", ("confidence", "mean confidence"), ("accuracy", "accuracy")),
        *style.tooltip(".1%", ("likely_low", "95 % from"), ("likely_high", "to")),
    ]
    x = style.unit_axis("confidence:Q")
    y = alt.Y("accuracy:Q", title="accuracy").scale(domain=style.UNIT, nice=False)
    y = y.axis(format=".0%", values=style.QUARTERS, minExtent=38, maxExtent=38)
    ink = f"var(--{method})"
    diagonal = style.chart_of([{"confidence": 0, "accuracy": 0}, {"confidence": 1, "accuracy": 1}])
    diagonal = diagonal.mark_line(color="var(--soft)", strokeDash=[4, 3], strokeWidth=1).encode(x=x, y=y)
    sides = [{"confidence": 0.03, "accuracy": 0.95, "side": "underconfident"}]
    sides += [{"confidence": 0.97, "accuracy": 0.05, "side": "overconfident"}]
    corners = [
        style.chart_of([side]).mark_text(align=align, color="var(--soft)").encode(x=x, y=y, text="side:N")
        for side, align in zip(sides, ("left", "right"), strict=True)
    ]
    base = style.chart_of([asdict(one) for one in filled]).encode(x=x, tooltip=hints)
    gaps = base.mark_rule(strokeWidth=6, opacity=0.25, color=ink).encode(y=alt.Y("confidence:Q"), y2="accuracy:Q")
    whiskers = base.mark_rule(color=ink, strokeWidth=1.5).encode(y=alt.Y("likely_low:Q"), y2="likely_high:Q")
    size = alt.Size("count:Q", legend=None).scale(domain=[0, max(one.count for one in filled)], range=[25, 220])
    dots = base.mark_point(filled=True, color=ink, opacity=1, shape=style.SHAPES[method]).encode(y=y, size=size)
    alt_text = f"{LABELS[method]}: {sentences.reliability(findings, method)}"
    spec = style.finished([*corners, diagonal, gaps, whiskers, dots], alt_text, 280)
    return {**spec, "usermeta": {"square": True}}  # only the page knows the width, and sets the height to it


def histogram_chart(findings: Findings, method: str, of_errors: bool) -> Spec:
    """Inputs per bin of confidence, or errors, which have a scale of their own: beside all inputs they are hardly visible."""
    rows = [
        {"low": one.low, "high": one.high, "foot": 0, "count": one.count, "wrong": one.count - one.correct}
        for one in findings.bins[method]
    ]
    top, title, ink = ("wrong", "errors", "var(--wrong)") if of_errors else ("count", "inputs", f"var(--{method})")
    hints = style.tooltip(".1%", ("low", "confidence above"), ("high", "up to"))
    hints += style.tooltip(",", ("count", "inputs"), ("wrong", "errors"))
    y = alt.Y("foot:Q", title=title).scale(domain=[0, 1.05 * max(1, *(row[top] for row in rows))], nice=False)
    y = y.axis(tickCount=3, tickMinStep=1, format="~s", minExtent=38, maxExtent=38)
    bars = style.chart_of(rows).mark_rect(stroke="var(--paper)", strokeWidth=1, color=ink)
    x = style.unit_axis("low:Q", "confidence" if of_errors else None)
    bars = bars.encode(x=x, x2="high:Q", y=y, y2=f"{top}:Q", tooltip=hints)
    return style.finished([bars], f"{LABELS[method]}: {sentences.histogram(findings, method)}", 60)


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
    curves = style.shown(style.chart_of(rows)).encode(x=x, y=y, color=style.COLOUR)
    lines, dots = curves.mark_line(strokeWidth=2.5), curves.mark_point(filled=True, size=70)
    dots = dots.encode(shape=style.SHAPE, opacity=alt.condition(near, alt.value(1), alt.value(0)))
    risks = style.tooltip(".2%", *((method, LABELS[method]) for method in findings.methods))
    hints = [*style.tooltip(".0%", ("coverage", "answered")), *risks]
    ruler = style.chart_of(rows).transform_pivot("method", value="risk", groupby=["coverage"])
    ruler = ruler.mark_rule(color="var(--soft)").add_params(near)
    ruler = ruler.encode(x=x, opacity=alt.condition(near, alt.value(0.6), alt.value(0)), tooltip=hints)
    return style.finished([ruler, lines, dots], sentences.deferral(findings), 300, findings.methods)


def class_chart(findings: Findings) -> Spec:
    """The calibration error of the worst classes under each method."""
    worst = findings.classes[:WORST_CLASSES]
    rows = [
        {"name": one.name, "rows": one.rows, "method": method, "label": LABELS[method], **asdict(one.scores[method])}
        for one in worst
        for method in findings.methods
    ]
    hints = [
        alt.Tooltip("name:N", title="class"),
        alt.Tooltip("label:N", title="method"),
        *style.tooltip(".2%", ("error", "calibration error")),
        *style.tooltip(",", ("rows", "inputs of this class"), ("predicted", "times predicted")),
        *style.tooltip(".1%", ("confidence", "mean confidence then"), ("precision", "correct then")),
    ]
    x = alt.X("error:Q", title="calibration error (lower is better)").axis(format="~%", tickCount=5)
    y = style.name_axis((one.name for one in worst), grid=True)
    dots = style.shown(style.chart_of(rows)).mark_point(filled=True, size=80, opacity=1)
    dots = dots.encode(x=x, y=y, color=style.COLOUR, shape=style.SHAPE, tooltip=hints)
    return style.finished([dots], sentences.classwise(findings), 24 * len(worst), findings.methods)


def shift_chart(findings: Findings, metric: str) -> Spec:
    """A metric of every method on each test set, in the given order."""
    sets, methods = findings.sets, list(findings.methods)
    rows = [{**style.interval_row(one, m, metric), "set": name} for name, one in sets.items() for m in methods]
    x = alt.X("set:N", title=None, sort=list(sets)).scale(type="point", padding=0.3)
    angle = -35 if len(sets) <= FEW_SETS else -90
    x = x.axis(labelAngle=angle, labelLimit=110, labelColor="var(--ink)", labelOverlap="greedy")
    y = alt.Y("value:Q", title=None).scale(zero=metric == "ece").axis(format=style.axis_format(metric), tickCount=5)
    offset = alt.XOffset("method:N", sort=methods).scale(domain=methods, range=[-5, 5])
    base = style.shown(style.chart_of(rows)).encode(x=x, xOffset=offset, color=style.COLOUR)
    hints = [alt.Tooltip("set:N", title="test set"), *style.interval_tooltip(metric)]
    lines = base.mark_line(strokeWidth=1.5, opacity=0.6).encode(y=y)
    whiskers = base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title=None), y2="high:Q", tooltip=hints)
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(y=y, shape=style.SHAPE, tooltip=hints)
    values = [f"{name}: {sentences.metric_values(one, metric)}" for name, one in sets.items()]
    return style.finished([lines, whiskers, dots], " ".join(values), 240, methods)
