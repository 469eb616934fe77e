"""Methods compared on test sets, as text of 80 columns: the table of `lates demo` and `lates evaluate`."""

import textwrap
from collections.abc import Mapping

from rich.text import Text

from lates.cli.outputs import COLUMNS
from lates.metrics import Comparison, verdict
from lates.runtime import printable

METRICS = {"accuracy": "accuracy", "ece": "ECE", "nll": "NLL", "brier": "Brier"}
MARKS = {"better": ("*", "green"), "worse": ("!", "red"), "unclear": (" ", "")}
TITLES = {"lates": "LATES"}
NARROW = 6
"""Columns of the ECE's floor and of the AUC."""

AUC = Mapping[str, Mapping[str, float]]
"""test set -> method -> AUC, which has no interval: every draw of a bootstrap would sort all logits again."""


def comparison_lines(sets: Mapping[str, Comparison], auc: AUC, baseline: str | None, *, intervals: bool) -> Text:
    """One line per method, and one for its intervals; marks show where a method differs from the baseline."""
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
    return Text("\n").join(lines)


def explain(sets: Mapping[str, Comparison], baseline: str | None, *, intervals: bool) -> str:
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


def count_verdicts(sets: Mapping[str, Comparison], method: str, baseline: str) -> dict[str, int]:
    """How often the table marks the method "better" and "worse" than the baseline."""
    differences = [comparison.differences[method][baseline] for comparison in sets.values()]
    verdicts = [verdict(difference[metric], metric) for difference in differences for metric in METRICS]
    return {mark: verdicts.count(mark) for mark in ("better", "worse")}


def short(value: float) -> str:
    """Five characters: .0123, 1.234, 12.34; with a minus sign, six."""
    size = abs(value)
    text = f"{size:.{4 if size < 1 else 3 if size < 10 else 2}f}"
    return ("-" if value < 0 else "") + (text.removeprefix("0") if text.startswith("0.") else text)
