"""Methods compared on test sets, as text of 80 columns: the tables of `lates demo` and `lates evaluate`."""

import textwrap
from collections.abc import Mapping
from functools import partial
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lates.cli.console import COLUMNS
from lates.demo import LATES, NO_VIEWS, TEMPERATURE, Results
from lates.metrics import Comparison, fit_selector, verdict
from lates.report import Predictions
from lates.runtime import printable

METRICS = {"accuracy": "accuracy", "ece": "ECE", "nll": "NLL", "brier": "Brier"}
MARKS = {"better": ("*", "green"), "worse": ("!", "red"), "unclear": (" ", "")}
TITLES = {"lates": "LATES"}
NARROW = 6
"""Columns of the ECE's floor and of the AUC."""
BAR = 18
"""Columns of a contribution of 1."""
NEXT = """\
import lates
calibrated = lates.calibrate(model, train=train_loader, holdout=holdout_loader)
probabilities = calibrated.predict_proba(images)"""

AUC = Mapping[str, Mapping[str, float]]
"""test set -> method -> AUC, which has no interval: every draw of a bootstrap would sort all logits again."""


def comparison_text(sets: Mapping[str, Comparison], auc: AUC, baseline: str | None, *, intervals: bool) -> Text:
    """One line per method, and one for its intervals; marks show where it differs from the baseline. Below: how to read it."""
    name_width, width = (13, 12) if intervals else (22, 8)

    def line(name: str, cells: Mapping[str, Text], floor: str = "", area: str = "") -> Text:
        text = Text(f"  {name if len(name) < name_width else f'{name[: name_width - 2]}…':<{name_width}}")
        for metric in METRICS:
            text.append(" " * (width + 1 - len(cells[metric]))).append_text(cells[metric])
            if metric == "ece":
                text.append(f"{floor:>{NARROW}} ", "dim")
        text.append(f"{area:>{NARROW}}")
        text.rstrip()
        return text

    def value(comparison: Comparison, method: str, metric: str) -> Text:
        difference = comparison.differences[method].get(baseline or "")
        mark, style = MARKS["unclear" if difference is None else verdict(difference[metric], metric)]
        return Text(short(comparison.measured[method][metric].value) + mark, style)

    lines = [line("", {metric: Text(f"{title} ") for metric, title in METRICS.items()}, "floor", "AUC")]
    lines[0].stylize("bold")
    for test, comparison in sets.items():
        lines.append(Text(f"\n{printable(test)}, {comparison.rows:,} rows, {comparison.classes:,} classes", "bold"))
        for method, measured in comparison.measured.items():
            cells = {metric: value(comparison, method, metric) for metric in METRICS}
            name = printable(TITLES.get(method, method))
            lines.append(line(name, cells, short(comparison.ece_floor[method]), short(auc[test][method])))
            if intervals:
                ranges = {m: Text(f"{short(measured[m].low)}–{short(measured[m].high)} ", "dim") for m in METRICS}
                lines.append(line("", ranges))
    return Text("\n").join([*lines, Text(f"\n{explain(sets, baseline, intervals)}")])


def explain(sets: Mapping[str, Comparison], baseline: str | None, intervals: bool) -> str:
    """How to read the table."""
    text = "Lower is better, except for accuracy and AUC. Floor: the ECE of perfect calibration on as many rows. "
    if intervals:
        text += "Below each number: its 95 % interval, by a bootstrap over the rows."
    text = textwrap.fill(text, COLUMNS)
    compared = sum(baseline in others for comparison in sets.values() for others in comparison.differences.values())
    if compared:
        tests = compared * len(METRICS)
        marks = (
            f"* better, ! worse than {baseline} beyond chance: the 95 % interval of the paired difference excludes 0. "
            f"Of {tests} comparisons, chance alone would mark about {0.05 * tests:.1g}."
        )
        text += f"\n{textwrap.fill(marks, COLUMNS)}"
    return text


def short(value: float) -> str:
    """Five characters: .0123, 1.234, 12.34; with a minus sign, six."""
    size = abs(value)
    text = f"{size:.{4 if size < 1 else 3 if size < 10 else 2}f}"
    return ("-" if value < 0 else "") + (text.removeprefix("0") if text.startswith("0.") else text)


def select_all(tests: Mapping[str, Predictions], risk: float, seed: int) -> dict[str, Any]:
    """By method, ready for JSON: the confidence from which predictions are accepted, found on the first test set, which fitted
    nothing else, and what it does there and on all others."""
    (first, fitting), *others = tests.items()
    selected: dict[str, Any] = {}
    for method, selector in fitting.by_method(partial(fit_selector, risk=risk, seed=seed)).items():
        sets = {first: selector.fitted} | {name: selector.measure(one.logits[method], one.labels) for name, one in others}
        numbers = {name: {**vars(one), "coverage": one.coverage, "risk": one.risk} for name, one in sets.items()}
        promise = {"threshold": selector.threshold, "risk": selector.risk, "delta": selector.delta}
        selected[method] = {**promise, "sets": numbers}
    return selected


def selective_lines(selected: Mapping[str, Any]) -> str:
    """One line for each method and test set."""
    one = next(iter(selected.values()))
    first = next(iter(one["sets"]))
    lines = [f"  {'':<18}{'confidence':>12}{'accepted':>12}{'wrong':>12}"]
    for name, found in one["sets"].items():
        remark = " that tested them" if name == first else ", the same thresholds"
        lines.append(f"\n{name}, {found['rows']:,} rows{remark}")
        for method, selector in selected.items():
            selection = selector["sets"][name]
            threshold = "none" if selector["threshold"] > 1 else short(selector["threshold"])
            wrong = short(selection["risk"]) if selection["accepted"] else ""
            title = TITLES.get(method, method)[:17]
            lines.append(f"  {title:<18}{threshold:>12}{short(selection['coverage']):>12}{wrong:>12}".rstrip())
    text = (
        f"Predictions of at least this confidence are accepted. On new inputs like those of {first} at most "
        f"{100 * one['risk']:.3g} % of the accepted ones are wrong, guaranteed but for a chance of "
        f"{100 * one['delta']:.3g} %. Under shift there is no guarantee."
    )
    return "\n".join([*lines, "", textwrap.fill(text, COLUMNS)])


def show_demo_results(results: Results, console: Console) -> None:
    def say(text: str, style: str = "") -> None:
        console.print(text, style=style, highlight=False, markup=False)

    images, sets = results.images, results.comparisons
    say(
        f"A residual network of {results.parameters:,} parameters, trained on Fashion-MNIST. Probes are trained on its "
        f"{images['train']:,} training images, weights fitted on {images['holdout']:,} held-out ones; the table is measured "
        f"on {images['test']:,} more, as they are and under three shifts.\n"
    )
    console.print(comparison_text(sets, results.auc, TEMPERATURE, intervals=False), soft_wrap=True)
    say("")
    for method in (NO_VIEWS, LATES):
        differences = [one.differences[method][TEMPERATURE] for one in sets.values()]
        verdicts = [verdict(each[metric], metric) for each in differences for metric in METRICS]
        say(f"{method}: {verdicts.count('better')} better, {verdicts.count('worse')} worse.")
    say(
        "\nLATES trains its probes on views: four randomly changed copies of each image. Noise and contrast resemble them, "
        "blur does not. Other networks give other results: try `lates demo --train --seed 1`.\n"
    )
    console.print(cost_table(results, "#" if console.options.ascii_only else "█"))
    say("\nFor your own model:\n")
    say(NEXT, style="cyan")


def cost_table(results: Results, brick: str) -> Table:
    """The contribution of every member, and below it what the calibration costs."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("contribution of", no_wrap=True, min_width=21)
    for method in (NO_VIEWS, LATES):
        table.add_column(method, no_wrap=True, min_width=BAR + 6)
    costs = [results.costs[method] for method in (NO_VIEWS, LATES)]
    for member in costs[0].contributions:
        parts = [cost.contributions[member] for cost in costs]
        table.add_row(member, *(f"{part:.2f} {brick * round(BAR * part)}" for part in parts))
    table.add_section()
    table.add_row("parameters added", *(f"{cost.added_parameters:.1%}" for cost in costs))
    table.add_row("time to predict", *(f"{cost.prediction_time:.2f} x the network's" for cost in costs))
    table.add_row("time to calibrate", *(f"{cost.calibration_seconds:.1f} s" for cost in costs))
    return table
