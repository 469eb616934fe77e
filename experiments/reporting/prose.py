"""Pages: templates whose tables and numbers are filled in from the results, so that no number in a sentence can go stale.

A template in `pages/` holds `{{…}}` where something is filled in:

    {{table NAME}}                                   a table, as Markdown
    {{columns NAME | COLUMN | COLUMN}}               some columns of it, without title and note
    {{cell NAME | ROW | COLUMN}}                     one cell of it; rows go by what their first column holds
    {{significant NAME}}                             1 of 4 (CIFAR-100, corrupted): its rows with a p after Holm below .05
    {{probe_images RECIPE DATASET}}                  150: of each class
    {{scores PLACES COLUMNS METHODS}}                a table of means: a row for each method, for instance
                                                     {{scores strong:cifar100,strong:cifar10 nll:clean,ece:bar temperature sms}}
                                                     with several places and columns a cell holds all places: 1.375 / 0.320
    {{gains PLACES COLUMNS METHOD RIVAL}}            a table of gains with intervals, likewise
    {{better PLACE COLUMNS METHOD RIVALS}}           a table: on how many networks METHOD is better
    {{mean METRIC SETS PLACE METHOD}}                1.375
    {{percent METRIC SETS PLACE METHOD RIVAL}}       15 %: the gain as a share of the rival's mean
    {{each METRIC SETS PLACE METHOD RIVAL}}          15 % (VGG16) and 3 % (small ViT): that of every architecture
    {{interval METRIC SETS PLACE METHOD RIVAL}}      [−0.0116, +0.0452]: 95 %, of the gain, t over architectures
    {{wins METRIC SETS PLACE METHOD RIVAL}}          9 of 9: networks on which METHOD is better
    {{ahead METRIC SETS PLACE METHOD}}               5 of 7: networks on which METHOD is better than every rival
    {{worse METRIC SETS PLACE METHOD RIVAL}}         4 of 399: test sets, of all networks, on which METHOD is worse
    {{where METRIC SETS PLACE METHOD RIVAL}}         pixelate at severity 5 (4 networks, by 0.059 to 0.477): those test sets
    {{least METRIC SETS PLACE METHOD RIVAL}}         from 1.19 to 1.12 (small ViT): where METHOD is better by least
    {{names PLACE}}                                  ResNet18, VGG16 and small ViT
    {{networks PLACE}}                               9
    {{seeds PLACE}}                                  3, or 1 to 3
    {{most FACT PLACE METHOD}}                       1.00 %: the largest share that METHOD adds to a network

SETS is clean, corrupted, like or unlike (the jitter), bar or natural, or a type of corruption. PLACE is `both`, a data set, or
`DATASET/NETWORK`; with `#SEED` for one seed, `?METHOD` for those networks on which a method was run, `@TRAIN` for a share of
the training split, `~RATE` for dropout; after `strong:` where networks of the strong recipe are meant (WRN-28-10 has one of its
own), after `public:` for released ones, after `again:` for the one trained twice. COLUMNS are METRIC:SETS; PLACES and COLUMNS
are joined by commas; of PLACES `DATASET/*` is each network that was run. What was not run on every network of a place reads
"not run".
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from pathlib import Path

import numpy as np

from experiments.data.corruptions import BAR_NAMES, NAMES
from experiments.recipes import CIFAR_SETS, RECIPES
from experiments.reporting.names import DEFAULT, EXPECT_SHIFT, METHOD_TITLES, METRIC_TITLES, RIVALS, in_words, sign
from experiments.reporting.significance import compare, mean_gains, network_gains
from experiments.reporting.summaries import (
    GROUPS,
    PAPER_TRAINING,
    PLAIN,
    Architectures,
    Group,
    Measured,
    networks_of,
    over_architectures,
    trained,
)
from experiments.reporting.tables.comparisons import GAIN_COLUMNS, better_of, shown
from experiments.reporting.tables.markdown import ABSENT, NOT_RUN, Table, grid, interval, markdown, number

PAGES = Path(__file__).parent / "pages"
_FIELD = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_PLACE = re.compile(
    r"((?P<training>strong|public|again):)?(?P<dataset>\w+)(/(?P<network>\w+))?(#(?P<seed>\d+))?(\?(?P<method>\w+))?(@(?P<train>[\d.]+))?(~(?P<rate>[\d.]+))?"
)


class TemplateError(Exception):
    """A field of a template that cannot be filled."""


def fill(template: str, measured: Sequence[Measured], tables: Mapping[str, Table]) -> str:
    """The page of a template. A field may go over the end of a line, also of a quoted one."""

    def filled(field: re.Match[str]) -> str:
        words = field[1].replace(">", " ").split()
        try:
            return _value(words, measured, tables)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            fields = (*_COMPARED, "cell", "columns", "significant", "probe_images", "scores", "gains", "better")
            quantities = ", ".join((*fields, "names", "networks", "seeds", "most"))
            known = f"tables: {', '.join(sorted(tables))}; quantities: {quantities}"
            raise TemplateError(f"{{{{{' '.join(words)}}}}} cannot be filled: {error}. Known {known}.") from error

    return _FIELD.sub(filled, template)


def _value(words: list[str], measured: Sequence[Measured], tables: Mapping[str, Table]) -> str:
    match words:
        case ["table", name]:
            return markdown(tables[name]).rstrip("\n")
        case ["columns", *_]:
            name, *shown_columns = " ".join(words[1:]).split(" | ")
            places = [tables[name].header.index(column) for column in shown_columns]
            rows = [tuple(row[place] for place in places) for row in tables[name].rows]
            return grid(tuple(shown_columns), rows, sum(place < tables[name].text_columns for place in places))
        case ["significant", name]:
            table = tables[name]
            p_values = {row[0]: row[table.header.index("p, Holm")] for row in table.rows}
            below = [name for name, p in p_values.items() if p != ABSENT and float(p.lstrip("< ")) < 0.05]
            return f"{len(below)} of {len(p_values)}" + (f" ({'; '.join(below)})" if below else "")
        case ["probe_images", recipe, dataset]:
            return str(RECIPES[recipe].probe_images[dataset])
        case ["cell", *_]:
            name, start, column = " ".join(words[1:]).split(" | ")
            table = tables[name]
            found = [row for row in table.rows if row[0] == start]
            return found[0][table.header.index(column)] if found or table.rows else NOT_RUN
        case ["scores", places, columns, *methods]:
            return _score_table(measured, places.split(","), _columns(columns), methods)
        case ["gains", places, columns, method, rival]:
            return _gain_table(measured, places.split(","), _columns(columns), method, rival)
        case ["better", place, columns, method, *rivals]:
            return _better_table(_place(measured, place), _columns(columns), method, rivals)
        case ["names", place]:
            return _listed([_network(cells) for cells in _place(measured, place) if cells]) or NOT_RUN
        case ["networks", place]:
            return str(sum(map(len, _place(measured, place))))
        case ["seeds", place]:
            counts = sorted({len(cells) for cells in _place(measured, place) if cells})
            return " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]]))) if counts else NOT_RUN
        case ["most", fact, place, method]:
            _check("nll", method)
            shares = [100 * cell.fact("methods", method, fact) for cells in _place(measured, place) for cell in cells]
            return f"{number(max(shares), 2)} %" if shares else NOT_RUN
        case [kind, metric, sets, place, *methods]:
            _check(metric, *methods)
            found = _place(measured, place, ensemble=methods == ["ensemble"])
            return _COMPARED[kind](found, *methods, metric, _group(sets))
    raise ValueError("there is no such field")


def _place(measured: Sequence[Measured], text: str, *, ensemble: bool = False) -> Architectures:
    if (parsed := _PLACE.fullmatch(text)) is None:
        raise ValueError(f'"{text}" is no place')
    training = parsed["training"] or PAPER_TRAINING
    parts = {part[0]: part for part in (*RECIPES["low_data"].fractions, *RECIPES["holdout_size"].fractions)}
    part = parts[float(parsed["train"] or PLAIN[0])]
    options = {"dropout": float(parsed["rate"] or 0), "training": training}

    def cells_of(ensemble: bool) -> Architectures:
        return [
            [each for each in cells if parsed["seed"] in (None, str(each.cell.seed))]
            for dataset in (CIFAR_SETS if parsed["dataset"] == "both" else (parsed["dataset"],))
            for network in ([parsed["network"]] if parsed["network"] else networks_of(dataset, training))
            for cells in [trained(measured, dataset, network, part, **options, ensemble=ensemble)]
        ]

    if not (method := parsed["method"]):
        return cells_of(ensemble)
    _check("nll", method)
    run = [bool(cells) and all(method in each.methods for each in cells) for cells in cells_of(method == "ensemble")]
    return list(compress(cells_of(ensemble), run))


def _check(metric: str, *methods: str) -> None:
    """A misspelt name would otherwise read "not run"."""
    if metric not in METRIC_TITLES:
        raise ValueError(f'"{metric}" is no metric')
    for method in methods:
        if method not in METHOD_TITLES and in_words(method) == method:
            raise ValueError(f'"{method}" is no method')


def _network(cells: Sequence[Measured]) -> str:
    return in_words(cells[0].cell.network)


def _listed(items: Sequence[str]) -> str:
    """One, two and three."""
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def _columns(text: str) -> list[tuple[str, Group]]:
    """Metric and group of test sets of each column."""
    pairs = [column.split(":") for column in text.split(",")]
    for metric, _ in pairs:
        _check(metric)
    return [(metric, _group(sets)) for metric, sets in pairs]


def _group(sets: str) -> Group:
    return Group(sets.replace("_", " "), (sets,)) if sets in (*NAMES, *BAR_NAMES) else GROUPS[sets]


# Tables of methods


def _score_table(
    measured: Sequence[Measured], places: Sequence[str], columns: Sequence[tuple[str, Group]], methods: Sequence[str]
) -> str:
    """A method that was not run on all networks of a place has dashes there."""
    places = [each for place in places for each in _each_network(measured, place)]
    if one_column := len(columns) == 1 and len(places) > 1:
        header = ["method", *map(_title, places)]
    else:
        first = " / ".join(map(_title, places)) if len(places) > 1 else "method"
        header = [first, *(f"{in_words(metric)}, {group.title}" for metric, group in columns)]
    rows: list[tuple[str, ...]] = []
    for method in methods:
        _check("nll", method)
        of_places = [_place(measured, place, ensemble=method == "ensemble") for place in places]
        values = [
            [_mean(cells, method, metric, group).replace(NOT_RUN, ABSENT) for cells in of_places]
            for metric, group in columns
        ]
        title = f"**{in_words(method)}**" if method in (DEFAULT, EXPECT_SHIFT) else in_words(method)
        rows.append((title, *(values[0] if one_column else map(_beside, values))))
    return _grid_if_run(tuple(header), rows)


def _beside(values: Sequence[str]) -> str:
    return ABSENT if set(values) == {ABSENT} else " / ".join(values)


def _gain_table(
    measured: Sequence[Measured],
    places: Sequence[str],
    columns: Sequence[tuple[str, Group]],
    method: str,
    rival: str,
) -> str:
    _check("nll", method, rival)
    rows = [
        (
            *(_title(place), in_words(metric), group.title),
            *shown(compare(_place(measured, place), method, rival, metric, group)),
        )
        for place in places
        for metric, group in columns
    ]
    return _grid_if_run(("data set", "metric", "test sets", *GAIN_COLUMNS), rows, text_columns=3)


def _better_table(
    architectures: Architectures, columns: Sequence[tuple[str, Group]], method: str, rivals: Sequence[str]
) -> str:
    """Seeds of one architecture are not independent."""
    _check("nll", method, *rivals)
    header = ("better than", *(f"{in_words(metric)}, {group.title}" for metric, group in columns))
    rows = [
        (
            in_words(rival),
            *(_wins(architectures, method, rival, *column).replace(NOT_RUN, ABSENT) for column in columns),
        )
        for rival in rivals
    ]
    return _grid_if_run(header, rows)


def _grid_if_run(header: tuple[str, ...], rows: Sequence[tuple[str, ...]], text_columns: int = 1) -> str:
    measured = any(cell != ABSENT for row in rows for cell in row[text_columns:])
    return grid(header, rows, text_columns) if measured else "Not run."


def _each_network(measured: Sequence[Measured], place: str) -> list[str]:
    """Where it ends in `/*`, a place for each network that was run."""
    whole = place.removesuffix("/*")
    names = [cells[0].cell.network for cells in _place(measured, whole) if cells] if whole != place else []
    return [f"{whole}/{name}" for name in names] or [whole]


def _title(place: str) -> str:
    """The network and the data set of a place, or the share of the training split."""
    parsed = _PLACE.fullmatch(place)
    if parsed is None or parsed["train"]:
        return f"{float(parsed['train']):.0%} to train".replace("%", " %") if parsed else place
    names = ", ".join(in_words(name) for name in (parsed["network"], parsed["dataset"]) if name)
    return f"{names}, dropout {parsed['rate']}" if parsed["rate"] else names


# Quantities of methods


def _mean(architectures: Architectures, method: str, metric: str, group: Group) -> str:
    mean = over_architectures(architectures, lambda cell: cell.mean(method, metric, group.sets))
    return number(mean, 3, NOT_RUN)


def _percent(architectures: Architectures, method: str, rival: str, metric: str, group: Group) -> str:
    ours, theirs = (
        over_architectures(architectures, lambda cell, name=name: cell.mean(name, metric, group.sets))
        for name in (method, rival)
    )
    share = number(100 * sign(metric) * (ours - theirs) / theirs, 0, NOT_RUN)
    return share if share == NOT_RUN else f"{share} %"


def _each(architectures: Architectures, method: str, rival: str, metric: str, group: Group) -> str:
    pair = (method, rival, metric, group)
    return _listed([f"{_percent([cells], *pair)} ({_network(cells)})" for cells in architectures if cells]) or NOT_RUN


def _interval(architectures: Architectures, method: str, rival: str, metric: str, group: Group) -> str:
    return interval(compare(architectures, method, rival, metric, group).t).replace(ABSENT, NOT_RUN)


def _wins(architectures: Architectures, method: str, rival: str, metric: str, group: Group) -> str:
    gains = network_gains([cell for cells in architectures for cell in cells], method, rival, metric, group.sets)
    return better_of(gains, NOT_RUN)


def _least(architectures: Architectures, method: str, rival: str, metric: str, group: Group) -> str:
    gains = [
        (
            sign(metric) * (ours - theirs),
            f"from {number(theirs, 3)} to {number(ours, 3)} ({in_words(cell.cell.network)})",
        )
        for cell in (each for cells in architectures for each in cells)
        for ours, theirs in [[cell.mean(name, metric, group.sets) for name in (method, rival)]]
        if not math.isnan(ours - theirs)
    ]
    return min(gains, default=(0, NOT_RUN))[1]


def _losses(
    architectures: Architectures, method: str, rival: str, metric: str, group: Group
) -> list[tuple[Measured, str, float]]:
    """By how much it is worse, on each test set of each network."""
    return [
        (cell, name, -float(gains[0, 0]))
        for cells in architectures
        for cell in cells
        for name in cell.asked(group.sets)
        if len(gains := mean_gains([cell], method, rival, metric, [[name]]))
    ]


def _worse(architectures: Architectures, method: str, rival: str, metric: str, group: Group) -> str:
    losses = _losses(architectures, method, rival, metric, group)
    return better_of(np.asarray([loss for _, _, loss in losses]), NOT_RUN)


def _where(architectures: Architectures, method: str, rival: str, metric: str, group: Group) -> str:
    """The corruption of the largest loss first."""
    losses = _losses(architectures, method, rival, metric, group)
    by_type: dict[str, list[tuple[Measured, str, float]]] = {}
    for loss in sorted((each for each in losses if each[2] > 0), key=lambda each: -each[2]):
        by_type.setdefault(loss[1].rpartition("-")[0], []).append(loss)
    found: list[str] = []
    for name, of_type in by_type.items():
        severities = sorted({each[1].rpartition("-")[2] for each in of_type})
        networks = len({each[0].cell.name for each in of_type})
        at = f"{name.replace('_', ' ')} at severit{'ies' if len(severities) > 1 else 'y'} {_listed(severities)}"
        smallest, largest = number(of_type[-1][2], 3), number(of_type[0][2], 3)
        by = largest if smallest == largest else f"{smallest} to {largest}"
        found.append(f"{at} ({networks} network{'s' if networks > 1 else ''}, by {by})")
    return _listed(found) or ("none" if losses else NOT_RUN)


def _ahead(architectures: Architectures, method: str, metric: str, group: Group) -> str:
    """Of every rival that was run on the network."""
    cells = [cell for cells in architectures for cell in cells if method in cell.methods]
    gains = [
        [network_gains([cell], method, rival, metric, group.sets) for rival in RIVALS if rival in cell.methods]
        for cell in cells
    ]
    return better_of(np.asarray([np.concatenate(each).min() for each in gains]), NOT_RUN)


_COMPARED: Mapping[str, Callable[..., str]] = {
    "mean": _mean,
    "percent": _percent,
    "each": _each,
    "interval": _interval,
    "wins": _wins,
    "worse": _worse,
    "where": _where,
    "least": _least,
    "ahead": _ahead,
}
