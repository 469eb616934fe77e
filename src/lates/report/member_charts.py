"""The charts of the layers: what each member contributes, and how accurate it is alone."""

import altair as alt

from lates.report import sentences
from lates.report.findings import Findings, Member
from lates.report.formats import LABELS, share
from lates.report.predictions import LATES, NETWORK
from lates.report.style import NAME_LIMIT, Row, Spec, chart_of, colour, finished, interval_fields, tooltip


def contribution_chart(members: list[Member], findings: Findings) -> Spec:
    """A bar for each member, from the first block to the head."""
    rows = [
        {"name": one.name, "method": method_of(one), "weight": one.weight, "contribution": one.contribution}
        | {"text": share(one.contribution)}
        for one in members
    ]
    x = alt.X("contribution:Q", title="share of the sum of weights").scale(padding=24).axis(format="~%", tickCount=5)
    numbers = [*tooltip(".4f", ("weight", "weight")), *tooltip(".1%", ("contribution", "contribution"))]
    hints = [alt.Tooltip("name:N", title="member"), *numbers]
    base = chart_of(rows).encode(x=x, y=names_axis(members), color=colour((NETWORK, LATES)), tooltip=hints)
    labels = base.mark_text(align="left", dx=6).encode(text="text:N", color=alt.value("var(--ink)"))
    return finished(
        [base.mark_bar(cornerRadius=3, height=14), labels], sentences.contributions(findings), max(60, 24 * len(rows))
    )


def names_axis(members: list[Member]) -> alt.Y:
    axis = alt.Y("name:N", title=None, sort=[one.name for one in members])
    return axis.axis(labelLimit=NAME_LIMIT, labelColor="var(--ink)")


def method_of(member: Member) -> str:
    """The method whose colour the member has."""
    return NETWORK if member.is_head else LATES


def depth_chart(members: list[Member], findings: Findings) -> Spec:
    """Every member's accuracy in the order of depth, with that of all together; hollow where only the hold-out's is known."""
    rows = [row for member in members if (row := _depth_row(member)) is not None]
    whole = {"name": f"all: {LABELS[findings.main]}", "value": findings.test.measured[findings.main]["accuracy"].value}
    measured = alt.Tooltip("measured:N", title="measured")
    value = [alt.Tooltip("name:N", title="member"), *tooltip(".1%", ("value", "accuracy"))]
    base = chart_of(rows).encode(
        y=names_axis(members),
        color=colour((NETWORK, LATES)),
        tooltip=[*value, measured],
    )
    all_tested = all(row["measured"] == sentences.ON_THE_TEST_SET for row in rows)
    title = "accuracy" if all_tested else f"accuracy (hollow: {sentences.ON_THE_HOLDOUT})"
    x = alt.X("value:Q", title=title).scale(zero=False, padding=12).axis(format="~%", tickCount=5)
    hints = [*value, *tooltip(".1%", ("low", "95 % from"), ("high", "to")), measured]
    tested = base.transform_filter(f"datum.measured === '{sentences.ON_THE_TEST_SET}'").encode(tooltip=hints)
    hollow = base.transform_filter(f"datum.measured === '{sentences.ON_THE_HOLDOUT}'")
    whiskers = tested.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q")
    dots = tested.mark_point(filled=True, size=80, opacity=1).encode(x=x)
    rings = hollow.mark_point(filled=False, size=60, strokeWidth=2, fill="var(--paper)", opacity=1).encode(x=x)
    reference = chart_of([whole]).mark_rule(strokeDash=[4, 3], color="var(--ink)").encode(x="value:Q", tooltip=value)
    label = chart_of([whole]).mark_text(align="right", dx=-4, dy=-6, baseline="bottom", color="var(--ink)")
    label = label.encode(x="value:Q", y=alt.value(0), text="name:N")
    layers = [reference, whiskers, dots, *([] if all_tested else [rings]), label]  # an empty layer has no extent
    return finished(layers, sentences.depth(findings), max(60, 24 * len(rows)))


def _depth_row(member: Member) -> Row | None:
    row: Row = {"name": member.name, "method": method_of(member)}
    if member.accuracy is not None:
        return {**row, **interval_fields(member.accuracy), "measured": sentences.ON_THE_TEST_SET}
    if member.holdout_accuracy is not None:
        return {**row, "value": member.holdout_accuracy, "measured": sentences.ON_THE_HOLDOUT}
    return None
