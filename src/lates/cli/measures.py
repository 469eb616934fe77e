"""How good each method is on a test set, how sure that is, and whether the last differs from its rival beyond chance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from lates import metrics
from lates.demo.table import MARKS
from lates.report.predictions import LATES, Predictions
from lates.report.resampling import Intervals, draws_for, resample

COLUMNS = {"accuracy": "accuracy", "ece": "ECE", "nll": "NLL", "brier": "Brier"}
ROUNDING = 1e-6  # of float32 logits: two methods that are one and the same may differ by so much
NAME, WIDE, NARROW = 13, 12, 6
TITLES = {LATES: "LATES"}


@dataclass(frozen=True)
class MeasuredSet:
    """One test set, by method.

    measured      metric -> value and interval
    differences   of every method but the last: metric -> the last one's value minus its, paired; empty: no comparison
    ece_floor     the ECE that perfect calibration would measure
    auc           without an interval: it would have to sort all logits anew in every draw
    """

    name: str
    rows: int
    classes: int
    draws: int
    measured: dict[str, Intervals]
    differences: dict[str, Intervals]
    ece_floor: dict[str, float]
    auc: dict[str, float]

    @property
    def main(self) -> str:
        return list(self.measured)[-1]

    @property
    def rival(self) -> str | None:
        """Whom the last method is held against: the method before it."""
        return list(self.differences)[-1] if self.differences else None

    def verdict(self, method: str, metric: str) -> str:
        """Of the last method against its rival: "better", "worse", or "equal" where chance explains the difference."""
        if method != self.main or self.rival is None:
            return "equal"
        difference = self.differences[self.rival][metric]
        if not difference.excludes_zero or abs(difference.value) < ROUNDING:
            return "equal"
        return "better" if difference.favours(metric) else "worse"


def measure(name: str, predictions: Predictions, seed: int, *, compared: bool = True) -> MeasuredSet:
    """Every metric of every method, their intervals from draws of rows that all methods share.

    compared   whether the last method is to be held against those before it
    """
    measured, differences, _ = resample(predictions, seed)
    return MeasuredSet(
        name,
        predictions.rows,
        predictions.classes,
        draws_for(predictions.rows),
        measured,
        differences if compared else {},
        ece_floor={method: metrics.ece_floor(logits, seed=seed) for method, logits in predictions.logits.items()},
        auc={method: metrics.auc(logits, predictions.labels) for method, logits in predictions.logits.items()},
    )


def measures_lines(sets: Sequence[MeasuredSet]) -> Text:
    """Two lines for each method, its metrics and below them their intervals; 80 columns wide."""
    lines = [Text(_line({**COLUMNS, "floor": "floor", "auc": "AUC"}), style="bold")]
    for one in sets:
        lines.append(Text(f"\n{one.name}, {one.rows:,} rows, {one.classes:,} classes", style="bold"))
        for method in one.measured:
            lines += [_values(one, method), _intervals(one.measured[method])]
    return Text("\n").join(lines)


def explanation(sets: Sequence[MeasuredSet]) -> str:
    """How to read the table, in lines of at most 80 columns."""
    lines = [
        "Smaller is better, except for accuracy and AUC. Below each number its 95 %",
        "interval, by a bootstrap over the rows. Floor: the ECE that perfect calibration",
        "would measure on so many rows.",
    ]
    first = sets[0]
    if first.rival is not None:
        main, rival = (TITLES.get(method, method) for method in (first.main, first.rival))
        lines += [
            f"* {main} better, ! worse than {rival} by more than chance (paired); of",
            f"{len(sets) * len(COLUMNS)} comparisons chance alone would mark about {len(sets) * len(COLUMNS) / 20:.1g}.",
        ]
    return "\n".join(lines)


def _values(one: MeasuredSet, method: str) -> Text:
    name = TITLES.get(method, method)
    line = Text(f"  {name if len(name) < NAME else f'{name[: NAME - 2]}…':<{NAME}}")
    for metric in COLUMNS:
        mark, style = MARKS[one.verdict(method, metric)]
        line.append(f"{short(one.measured[method][metric].value):>{WIDE}}{mark}", style)
        if metric == "ece":
            line.append(f"{short(one.ece_floor[method]):>{NARROW}} ", "dim")
    return line.append(f"{short(one.auc[method]):>{NARROW}}")


def _intervals(measured: Intervals) -> Text:
    cells = {metric: f"{short(measured[metric].low)}–{short(measured[metric].high)}" for metric in COLUMNS}
    return Text(_line(cells), style="dim")


def _line(cells: Mapping[str, str]) -> str:
    """A line with the cells of `COLUMNS`, "floor" and "auc", each in its place."""
    line = " " * (NAME + 2)
    for metric in COLUMNS:
        line += f"{cells[metric]:>{WIDE}} "
        if metric == "ece":
            line += f"{cells.get('floor', ''):>{NARROW}} "
    return (line + f"{cells.get('auc', ''):>{NARROW}}").rstrip()


def short(value: float) -> str:
    """Five characters: .0123, 1.234, 12.34; with a minus sign, six."""
    size = abs(value)
    text = f"{size:.{4 if size < 1 else 3 if size < 10 else 2}f}"
    return ("-" if value < 0 else "") + (text.removeprefix("0") if text.startswith("0.") else text)
