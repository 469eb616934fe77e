"""What all charts share: one look, one way to switch methods, one form of a row.

Colours are CSS variables of the page, so that light, dark and print need no second drawing. The methods shown are one
parameter, `shown`, which the switches of the page set in every chart.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt

from lates.metrics import Comparison
from lates.report.formats import IN_PERCENT, LABELS, inside_name
from lates.report.predictions import LATES, NETWORK, TEMPERATURE

Spec = dict[str, Any]
Row = dict[str, Any]

SHAPES = {NETWORK: "circle", TEMPERATURE: "triangle-up", LATES: "square"}
NAME_LIMIT = 150  # pixels
COLOUR = alt.Color("method:N", legend=None).scale(domain=list(SHAPES), range=[f"var(--{method})" for method in SHAPES])
SHAPE = alt.Shape("method:N", legend=None).scale(domain=list(SHAPES), range=list(SHAPES.values()))
UNIT = [0, 1.04]  # shares, with room for the mark of a share of 1
QUARTERS = [0, 0.25, 0.5, 0.75, 1]

CONFIG: Spec = {
    "background": "transparent",
    "font": "system-ui, -apple-system, 'Segoe UI', sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "gridColor": "var(--grid)",
        "domain": False,
        "ticks": False,
        "labelPadding": 6,
        "titlePadding": 8,
    },
    "text": {"color": "var(--ink)", "fontSize": 11},
    "rule": {"color": "var(--soft)"},
}


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
