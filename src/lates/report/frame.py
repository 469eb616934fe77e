"""What all charts share: one look, one way to switch methods, one form of a row.

Colours are the page's CSS variables, so that light, dark and print need no second drawing; the methods shown are one parameter,
`shown`, which the page's switches set in every chart.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt

from lates.report.numbers import SetNumbers
from lates.report.predictions import LATES, NETWORK, TEMPERATURE
from lates.report.words import IN_PERCENT, LABELS, inside_name

Spec = dict[str, Any]
Row = dict[str, Any]

SHAPES = {NETWORK: "circle", TEMPERATURE: "triangle-up", LATES: "square"}
NAME_LIMIT = 150  # pixels

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


def colour(methods: Iterable[str]) -> alt.Color:
    chosen = list(methods)
    return alt.Color("method:N", legend=None).scale(domain=chosen, range=[f"var(--{method})" for method in chosen])


def shape(methods: Iterable[str]) -> alt.Shape:
    chosen = list(methods)
    return alt.Shape("method:N", legend=None).scale(domain=chosen, range=[SHAPES[method] for method in chosen])


def chart_of(rows: list[Row]) -> alt.Chart:
    return alt.Chart(alt.Data(values=[{key: _plain(value) for key, value in row.items()} for row in rows]))


def finished(layers: Sequence[alt.Chart], alt_text: str, height: int, methods: Iterable[str] = ()) -> Spec:
    """The specification: as wide as its place on the page, with its alternative text, and switchable where methods are."""
    chart = alt.LayerChart(layer=list(layers), width="container", height=height, description=alt_text)
    if methods:
        chart = chart.add_params(alt.param(name="shown", value=list(methods)))
    return chart.to_dict()


def shown(chart: alt.Chart) -> alt.Chart:
    return chart.transform_filter("indexof(shown, datum.method) >= 0")


def interval_row(one: SetNumbers, method: str, metric: str) -> Row:
    found = one.measured[method][metric]
    return {"method": method, "name": LABELS[method], "value": found.value, "low": found.low, "high": found.high}


def interval_tooltip(metric: str) -> list[alt.Tooltip]:
    style = ".2%" if metric in IN_PERCENT else ".4f"
    return [
        alt.Tooltip("name:N", title="method"),
        alt.Tooltip("value:Q", title=inside_name(metric), format=style),
        alt.Tooltip("low:Q", title="95 % from", format=style),
        alt.Tooltip("high:Q", title="to", format=style),
    ]


def axis_format(metric: str) -> str:
    return "~%" if metric in IN_PERCENT else "~g"


def unit_axis(field: str, title: str | None = None) -> alt.X:
    axis = alt.X(field, title=title).scale(domain=[0, 1], nice=False)
    return axis.axis(format=".0%", values=[0, 0.25, 0.5, 0.75, 1])


def short(count: int) -> str:
    return f"{count:,}" if count < 10_000 else f"{count / 1000:.0f}k"


def _plain(value: Any) -> Any:
    """Numbers that JSON knows: what is not finite becomes null, which draws nothing."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
