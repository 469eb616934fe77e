"""The charts of the layers: who votes, drawn as a picture of the network, and how good each member is by itself."""

from collections.abc import Sequence

import altair as alt

import lates.report.words as words
from lates.report.frame import NAME_LIMIT, Row, Spec, chart_of, colour, finished
from lates.report.numbers import Findings, Member
from lates.report.picture import picture_rows
from lates.report.predictions import LATES, NETWORK
from lates.report.words import LABELS


def picture_chart(members: list[Member], networks: int, alt_text: str) -> Spec:
    """The network from top to bottom; from each voting block a ribbon, as thick as its contribution, into the prediction."""
    picture = picture_rows(members, networks)
    x = alt.X("x:Q").scale(domain=[0, 1], nice=False).axis(None)
    y = alt.Y("y:Q").scale(domain=[0, picture.height], reverse=True, nice=False).axis(None)
    kind = alt.Color("kind:N", legend=None).scale(
        domain=["head", "probe", "silent"], range=["var(--network)", "var(--lates)", "var(--panel)"]
    )
    tooltip = [
        alt.Tooltip("name:N", title="member"),
        alt.Tooltip("weight:Q", format=".4f"),
        alt.Tooltip("contribution:Q", format=".1%"),
    ]
    chain = chart_of(picture.chain).mark_rule(strokeWidth=2, color="var(--grid)").encode(x=x, y=y, y2="y2:Q")
    ribbons = (
        chart_of(picture.ribbons)
        .mark_area(opacity=0.45)
        .encode(x=x, y=y, y2="y2:Q", color=kind, detail="name:N", tooltip=tooltip)
    )
    boxes = (
        chart_of(picture.boxes)
        .mark_rect(cornerRadius=4, stroke="var(--edge)", strokeWidth=1)
        .encode(x=x, x2="x2:Q", y=y, y2="y2:Q", color=kind, tooltip=tooltip)
    )
    ends = (
        chart_of(picture.ends)
        .mark_rect(cornerRadius=4, stroke="var(--edge)", fill="var(--panel)")
        .encode(x=x, x2="x2:Q", y=y, y2="y2:Q")
    )
    text = chart_of(picture.labels).encode(x=x, y=y, text="text:N")
    texts = [
        text.transform_filter("datum.role === 'on'").mark_text(limit=NAME_LIMIT, color="var(--paper)"),
        text.transform_filter("datum.role === 'off'").mark_text(limit=NAME_LIMIT, color="var(--soft)"),
        text.transform_filter("datum.role === 'share'").mark_text(align="left", dx=6, fontWeight="bold"),
        text.transform_filter("datum.role === 'end'").mark_text(angle=90, fontWeight="bold"),
    ]
    layers = [chain, ribbons, boxes, ends, *texts]
    return finished(layers, alt_text, round(picture.height))


def depth_chart(members: list[Member], findings: Findings) -> Spec:
    """Every member's accuracy in the order of depth, beside that of the whole; hollow where only the hold-out's is known."""
    rows = [row for member in members if (row := _depth_row(member)) is not None]
    whole = {"name": f"all: {LABELS[findings.main]}", "value": findings.test.measured[findings.main]["accuracy"].value}
    order = [row["name"] for row in rows]
    tooltip = [
        alt.Tooltip("name:N", title="member"),
        alt.Tooltip("value:Q", title="accuracy", format=".1%"),
        alt.Tooltip("low:Q", title="95 % from", format=".1%"),
        alt.Tooltip("high:Q", title="to", format=".1%"),
    ]
    measured = alt.Tooltip("measured:N", title="measured")
    base = chart_of(rows).encode(
        y=alt.Y("name:N", title=None, sort=order).axis(labelLimit=NAME_LIMIT, labelColor="var(--ink)"),
        color=colour((NETWORK, LATES)),
        tooltip=[*tooltip[:2], measured],
    )
    x = alt.X("value:Q", title=_depth_axis(rows)).scale(zero=False, padding=12).axis(format=".0%", tickCount=5)
    tested = base.transform_filter(f"datum.measured === '{words.ON_THE_TEST_SET}'").encode(tooltip=[*tooltip, measured])
    hollow = base.transform_filter(f"datum.measured === '{words.ON_THE_HOLDOUT}'")
    whiskers = tested.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q")
    dots = tested.mark_point(filled=True, size=80, opacity=1).encode(x=x)
    rings = [hollow.mark_point(filled=False, size=60, strokeWidth=2, fill="var(--paper)", opacity=1).encode(x=x)]
    if all(row["measured"] == words.ON_THE_TEST_SET for row in rows):
        rings = []  # an empty layer would have no extent
    reference = (
        chart_of([whole])
        .mark_rule(strokeDash=[4, 3], color="var(--ink)")
        .encode(x="value:Q", tooltip=[alt.Tooltip("name:N"), alt.Tooltip("value:Q", title="accuracy", format=".1%")])
    )
    label = (
        chart_of([whole])
        .mark_text(align="right", dx=-4, dy=-6, baseline="bottom", color="var(--ink)")
        .encode(x="value:Q", y=alt.value(0), text="name:N")
    )
    return finished([reference, whiskers, dots, *rings, label], words.depth(findings), max(60, 24 * len(rows)))


def _depth_row(member: Member) -> Row | None:
    row: Row = {"name": member.name, "method": NETWORK if member.is_head else LATES}
    if member.accuracy is not None:
        own = member.accuracy
        return {**row, "value": own.value, "low": own.low, "high": own.high, "measured": words.ON_THE_TEST_SET}
    if member.holdout_accuracy is not None:
        return {**row, "value": member.holdout_accuracy, "measured": words.ON_THE_HOLDOUT}
    return None


def _depth_axis(rows: Sequence[Row]) -> str:
    if all(row["measured"] == words.ON_THE_TEST_SET for row in rows):
        return f"accuracy {words.ON_THE_TEST_SET}"
    return f"accuracy {words.ON_THE_TEST_SET}; hollow, no vote: {words.ON_THE_HOLDOUT}"
