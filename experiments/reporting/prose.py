"""Pages: templates whose tables and numbers are filled in from the results, so that no number in a sentence can go stale.

A template in `pages/` holds `{{…}}` where something is filled in:

    {{table NAME}}                                   a table, as Markdown
    {{mean METRIC SETS PLACE METHOD}}                1.375
    {{gain METRIC SETS PLACE METHOD RIVAL}}          0.209 (bootstrap 0.180 to 0.242, t 0.150 to 0.268)
    {{percent METRIC SETS PLACE METHOD RIVAL}}       15 %: the gain as a share of the rival's mean
    {{wins METRIC SETS PLACE METHOD RIVAL}}          9 of 9: networks on which METHOD is better
    {{ahead METRIC SETS PLACE METHOD}}               5 of 7: networks on which METHOD is better than every rival
    {{rivals PLACE}}                                 20: rivals that were run on some network
    {{networks PLACE}}                               9
    {{seeds PLACE}}                                  3, or 1 to 3
    {{most FACT PLACE METHOD}}                       1.00: the largest share, in percent, that METHOD adds to a network

SETS is clean, corrupted, like or unlike (the jitter), or bar. PLACE is `both`, a data set, or `DATASET/NETWORK`, with `@TRAIN`
for a share of the training split and `~RATE` for dropout, after `strong:` where networks of the strong recipe are meant,
after `public:` for released ones. What was not run reads "not run".
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.recipes import CIFAR_SETS, RECIPES
from experiments.reporting.names import METHOD_TITLES, METRIC_TITLES, RIVALS, in_words
from experiments.reporting.significance import architecture_gains, compare, network_gains
from experiments.reporting.summaries import (
    GROUPS,
    PAPER_TRAINING,
    PLAIN,
    Architectures,
    Group,
    Measured,
    by_architecture,
    over_architectures,
    trained,
)
from experiments.reporting.tables.comparisons import better_of
from experiments.reporting.tables.markdown import NOT_RUN, number

PAGES = Path(__file__).parent / "pages"
_FIELD = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_PLACE = re.compile(
    r"((?P<training>strong|public):)?(?P<dataset>\w+)(/(?P<network>\w+))?(@(?P<train>[\d.]+))?(~(?P<rate>[\d.]+))?"
)


class TemplateError(Exception):
    """A field of a template that cannot be filled."""


def fill(template: str, measured: Sequence[Measured], tables: Mapping[str, str]) -> str:
    """The page of a template; `tables` are Markdown. A field may go over the end of a line, also of a quoted one."""

    def filled(field: re.Match[str]) -> str:
        words = field[1].replace(">", " ").split()
        try:
            return _value(words, measured, tables)
        except (KeyError, TypeError, ValueError) as error:
            quantities = ", ".join((*_COMPARED, "networks", "seeds", "rivals", "most"))
            known = f"tables: {', '.join(sorted(tables))}; quantities: {quantities}"
            raise TemplateError(f"{{{{{' '.join(words)}}}}} cannot be filled: {error}. Known {known}.") from error

    return _FIELD.sub(filled, template)


def _value(words: list[str], measured: Sequence[Measured], tables: Mapping[str, str]) -> str:
    match words:
        case ["table", name]:
            return tables[name].rstrip("\n")
        case ["networks", place]:
            return str(sum(map(len, _place(measured, place))))
        case ["seeds", place]:
            counts = sorted({len(cells) for cells in _place(measured, place) if cells})
            return " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]]))) if counts else NOT_RUN
        case ["rivals", place]:
            run = {name for cells in _place(measured, place) for cell in cells for name in cell.methods}
            return str(len(run & RIVALS.keys())) if run else NOT_RUN
        case ["most", fact, place, method]:
            _check("nll", method)
            shares = [100 * cell.fact("methods", method, fact) for cells in _place(measured, place) for cell in cells]
            return number(float(np.max(shares)) if shares else math.nan, 2, NOT_RUN)
        case [kind, metric, sets, place, *methods]:
            _check(metric, *methods)
            return _COMPARED[kind](_place(measured, place), *methods, metric, GROUPS[sets])
    raise ValueError("there is no such field")


def _place(measured: Sequence[Measured], text: str) -> Architectures:
    if (parsed := _PLACE.fullmatch(text)) is None:
        raise ValueError(f'"{text}" is no place')
    training = parsed["training"] or PAPER_TRAINING
    datasets = CIFAR_SETS if parsed["dataset"] == "both" else (parsed["dataset"],)
    if parsed["network"] is None:
        return [cells for dataset in datasets for cells in by_architecture(measured, dataset, training)]
    parts = {part[0]: part for part in (*RECIPES["low_data"].fractions, *RECIPES["holdout_size"].fractions)}
    part = parts[float(parsed["train"] or PLAIN[0])]
    options = {"dropout": float(parsed["rate"] or 0), "training": training}
    return [trained(measured, dataset, parsed["network"], part, **options) for dataset in datasets]


def _check(metric: str, *methods: str) -> None:
    """A misspelt name would otherwise read "not run"."""
    if metric not in METRIC_TITLES:
        raise ValueError(f'"{metric}" is no metric')
    for method in methods:
        if method not in METHOD_TITLES and in_words(method) == method:
            raise ValueError(f'"{method}" is no method')


# Quantities of methods


def _mean(architectures: Architectures, method: str, metric: str, group: Group) -> str:
    mean = over_architectures(architectures, lambda cell: cell.mean(method, metric, group.sets))
    return number(mean, 3, NOT_RUN)


def _gain(architectures: Architectures, method: str, rival: str, metric: str, group: Group) -> str:
    gain = compare(architectures, method, rival, metric, group)
    intervals = [
        f"{kind} {number(each.low, 3)} to {number(each.high, 3)}"
        for kind, each in (("bootstrap", gain.bootstrap), ("t", gain.t))
        if not math.isnan(each.low)
    ]
    return number(gain.mean, 3, NOT_RUN) + (f" ({', '.join(intervals)})" if intervals else "")


def _percent(architectures: Architectures, method: str, rival: str, metric: str, group: Group) -> str:
    gains = architecture_gains(architectures, method, rival, metric, group.sets)
    if not len(gains):
        return NOT_RUN
    theirs = over_architectures(architectures, lambda cell: cell.mean(rival, metric, group.sets))
    return f"{number(100 * gains.mean() / theirs, 0)} %"


def _wins(architectures: Architectures, method: str, rival: str, metric: str, group: Group) -> str:
    gains = network_gains([cell for cells in architectures for cell in cells], method, rival, metric, group.sets)
    return better_of(gains, NOT_RUN)


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
    "gain": _gain,
    "percent": _percent,
    "wins": _wins,
    "ahead": _ahead,
}
