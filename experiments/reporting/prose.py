"""Pages: templates whose tables and numbers are filled in from the results, so that no number in a sentence can go stale.

A template in `pages/` holds `{{…}}` where something is filled in:

    {{table NAME}}                                   a table, as Markdown
    {{mean METRIC SETS PLACE METHOD}}                1.375
    {{gain METRIC SETS PLACE METHOD RIVAL}}          0.209 (bootstrap 0.180 to 0.242, t 0.150 to 0.268)
    {{percent METRIC SETS PLACE METHOD RIVAL}}       15 %: the gain as a share of the rival's mean
    {{wins METRIC SETS PLACE METHOD RIVAL}}          9 of 9: networks on which METHOD is better
    {{networks PLACE}}                               9
    {{seeds PLACE}}                                  3, or 1 to 3
    {{most FACT PLACE METHOD}}                       1.00: the largest share, in percent, that METHOD adds to a network
    {{holdout METRIC IMAGES CANDIDATE}}              0.713: of the search for defaults, on hold-out images
    {{third METRIC IMAGES CANDIDATE}}                0.536: of its third round

SETS is clean, corrupted, like or unlike (the jitter). PLACE is `both`, a data set, or `DATASET/NETWORK`, with `@TRAIN` for a
share of the training split and `~RATE` for dropout, after `strong:` where networks of the strong recipe are meant, after
`public:` for released ones. What was not run reads "not run".
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.recipes import CIFAR_SETS
from experiments.reporting.names import METHOD_TITLES, METRIC_TITLES, method_title
from experiments.reporting.shift_search import Search
from experiments.reporting.significance import Architectures, architecture_gains, compare, count_better, network_gains
from experiments.reporting.summaries import (
    GROUPS,
    HOLDOUT_SIZE,
    LOW_DATA,
    PAPER_TRAINING,
    PLAIN,
    Measured,
    by_architecture,
    spread,
    trained,
)
from experiments.reporting.tables.comparisons import gain_text
from experiments.reporting.tables.markdown import NOT_RUN, number

PAGES = Path(__file__).parent / "pages"
_FIELD = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_PLACE = re.compile(
    r"((?P<training>strong|public):)?(?P<dataset>\w+)(/(?P<network>\w+))?(@(?P<train>[\d.]+))?(~(?P<rate>[\d.]+))?"
)


class TemplateError(Exception):
    """A field of a template that cannot be filled."""


@dataclass(frozen=True)
class Sources:
    """What pages are filled from: networks, tables as Markdown, both rounds of the search for defaults."""

    measured: Sequence[Measured]
    tables: Mapping[str, str]
    search: Search = Search({})  # noqa: RUF009 (frozen)
    third: Search = Search({})  # noqa: RUF009 (frozen)


def fill(template: str, sources: Sources) -> str:
    """The page of a template. A field may go over the end of a line, also of a quoted one."""
    return _FIELD.sub(lambda field: _filled(field[1].replace(">", " ").split(), sources), template)


def _filled(words: list[str], sources: Sources) -> str:
    kind, arguments = words[0], words[1:]
    try:
        if kind == "table":
            return sources.tables[arguments[0]].rstrip("\n")
        if kind in ("holdout", "third"):
            metric, images, *candidate = arguments
            value = (sources.search if kind == "holdout" else sources.third).value(" ".join(candidate), images, metric)
            return NOT_RUN if math.isnan(value) else number(value, 3)
        return _QUANTITIES[kind](sources.measured, *arguments)
    except (KeyError, TypeError, ValueError) as error:
        known = f"tables: {', '.join(sorted(sources.tables))}; quantities: holdout, third, {', '.join(_QUANTITIES)}"
        raise TemplateError(f"{{{{{' '.join(words)}}}}} cannot be filled: {error}. Known {known}.") from error


def _place(measured: Sequence[Measured], text: str) -> Architectures:
    if (parsed := _PLACE.fullmatch(text)) is None:
        raise ValueError(f'"{text}" is no place')
    training = parsed["training"] or PAPER_TRAINING
    datasets = CIFAR_SETS if parsed["dataset"] == "both" else (parsed["dataset"],)
    if parsed["network"] is None:
        return [cells for dataset in datasets for cells in by_architecture(measured, dataset, training)]
    share = float(parsed["train"] or PLAIN.train_fraction)
    part = next(part for part in (PLAIN, *LOW_DATA.parts, *HOLDOUT_SIZE.parts) if part.train_fraction == share)
    options = {"dropout": float(parsed["rate"] or 0), "training": training}
    return [trained(measured, dataset, parsed["network"], part, **options) for dataset in datasets]


def _cells(measured: Sequence[Measured], place: str) -> list[Measured]:
    return [cell for cells in _place(measured, place) for cell in cells]


# Quantities


def _mean_of(architectures: Architectures, metric: str, sets: str, method: str) -> float:
    means = [[cell.mean(method, metric, GROUPS[sets].sets) for cell in cells] for cells in architectures]
    return spread(spread(values).mean for values in means).mean


def _mean(measured: Sequence[Measured], metric: str, sets: str, place: str, method: str) -> str:
    _check(metric, method)
    value = _mean_of(_place(measured, place), metric, sets, method)
    return NOT_RUN if math.isnan(value) else number(value, 3)


def _gain(measured: Sequence[Measured], metric: str, sets: str, place: str, method: str, rival: str) -> str:
    _check(metric, method, rival)
    return gain_text(compare(_place(measured, place), method, rival, metric, GROUPS[sets]))


def _percent(measured: Sequence[Measured], metric: str, sets: str, place: str, method: str, rival: str) -> str:
    _check(metric, method, rival)
    architectures = _place(measured, place)
    gains = architecture_gains(architectures, method, rival, metric, GROUPS[sets].sets)
    return (
        f"{number(100 * gains.mean() / _mean_of(architectures, metric, sets, rival), 0)} %" if len(gains) else NOT_RUN
    )


def _wins(measured: Sequence[Measured], metric: str, sets: str, place: str, method: str, rival: str) -> str:
    _check(metric, method, rival)
    gains = network_gains(_cells(measured, place), method, rival, metric, GROUPS[sets].sets)
    return f"{count_better(gains)} of {gains.size}" if gains.size else NOT_RUN


def _networks(measured: Sequence[Measured], place: str) -> str:
    return str(len(_cells(measured, place)))


def _seeds(measured: Sequence[Measured], place: str) -> str:
    counts = sorted({len(cells) for cells in _place(measured, place) if cells})
    return " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]]))) if counts else NOT_RUN


def _most(measured: Sequence[Measured], fact: str, place: str, method: str) -> str:
    _check("nll", method)
    shares = [100 * cell.fact("methods", method, fact) for cell in _cells(measured, place)]
    return number(max(shares), 2) if shares and not any(map(math.isnan, shares)) else NOT_RUN


def _check(metric: str, *methods: str) -> None:
    """A misspelt name would otherwise read "not run"."""
    if metric not in METRIC_TITLES:
        raise ValueError(f'"{metric}" is no metric')
    for method in methods:
        if method not in METHOD_TITLES and method_title(method) == method:
            raise ValueError(f'"{method}" is no method')


_QUANTITIES: Mapping[str, Callable[..., str]] = {
    "mean": _mean,
    "gain": _gain,
    "percent": _percent,
    "wins": _wins,
    "networks": _networks,
    "seeds": _seeds,
    "most": _most,
}
