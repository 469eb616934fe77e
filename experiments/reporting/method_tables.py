"""Tables inside of pages: a row for each method, comparison or rival. See `prose`."""

from collections.abc import Sequence

from experiments.reporting.names import DEFAULT, EXPECT_SHIFT, in_words
from experiments.reporting.places import Place, check_methods, columns_named, places_named
from experiments.reporting.quantities import Quantity
from experiments.reporting.significance import compare
from experiments.reporting.summaries import Group, Measured
from experiments.reporting.tables.comparisons import GAIN_COLUMNS, shown
from experiments.reporting.tables.markdown import ABSENT, NOT_RUN, grid


def score_table(measured: Sequence[Measured], places: str, columns: str, methods: Sequence[str]) -> str:
    """A method that was not run on all networks of a place has dashes there."""
    check_methods(*methods)
    found, metrics = places_named(measured, places), columns_named(columns)
    titles = [place.title for place in found]
    if one_column := len(metrics) == 1 and len(found) > 1:
        header = ("method", *titles)
    else:
        header = (" / ".join(titles) if len(found) > 1 else "method", *_titles(metrics))
    rows: list[tuple[str, ...]] = []
    for method in methods:
        networks = [place.networks(measured, ensemble=method == "ensemble") for place in found]
        values = [[Quantity(each, *column, method).mean().replace(NOT_RUN, ABSENT) for each in networks] for column in metrics]
        title = f"**{in_words(method)}**" if method in (DEFAULT, EXPECT_SHIFT) else in_words(method)
        rows.append((title, *(values[0] if one_column else map(_beside, values))))
    return _grid_if_run(header, rows)


def gain_table(measured: Sequence[Measured], places: str, columns: str, method: str, rival: str) -> str:
    check_methods(method, rival)
    rows = [
        (place.title, in_words(metric), group.title, *shown(compare(networks, method, rival, metric, group)))
        for place in places_named(measured, places)
        for networks in [place.networks(measured)]
        for metric, group in columns_named(columns)
    ]
    return _grid_if_run(("data set", "metric", "test sets", *GAIN_COLUMNS), rows, text_columns=3)


def better_table(measured: Sequence[Measured], place: str, columns: str, method: str, rivals: Sequence[str]) -> str:
    """Seeds of one architecture are not independent."""
    check_methods(method, *rivals)
    networks, metrics = Place(place).networks(measured), columns_named(columns)
    rows = [
        (
            in_words(rival),
            *(Quantity(networks, *each, method, rival).wins().replace(NOT_RUN, ABSENT) for each in metrics),
        )
        for rival in rivals
    ]
    return _grid_if_run(("better than", *_titles(metrics)), rows)


def _titles(columns: Sequence[tuple[str, Group]]) -> list[str]:
    return [f"{in_words(metric)}, {group.title}" for metric, group in columns]


def _beside(values: Sequence[str]) -> str:
    return ABSENT if set(values) == {ABSENT} else " / ".join(values)


def _grid_if_run(header: tuple[str, ...], rows: Sequence[tuple[str, ...]], text_columns: int = 1) -> str:
    measured = any(cell != ABSENT for row in rows for cell in row[text_columns:])
    return grid(header, rows, text_columns) if measured else "Not run."
