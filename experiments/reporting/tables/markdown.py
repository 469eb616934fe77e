"""A table as data, as Markdown and as CSV."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.data.files import format_csv
from experiments.reporting.significance import Interval
from experiments.reporting.summaries import Spread

ABSENT = "–"
NOT_RUN = "not run"


@dataclass(frozen=True)
class Table:
    """Cells are text already: what stands here is what is compared by `tables --check`."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str
    text_columns: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(
                    f'Table "{self.name}" has {len(self.header)} columns, a row has {len(row)}: {" | ".join(row)}.'
                )


def markdown(table: Table) -> str:
    """Title, rows, note."""
    return f"**{table.title}**\n\n{grid(table.header, table.rows, table.text_columns)}\n\n{table.note}\n"


def grid(header: tuple[str, ...], rows: Sequence[tuple[str, ...]], text_columns: int = 1) -> str:
    """Header and rows. The first `text_columns` are aligned left, numbers right."""
    rule = [":--" if place < text_columns else "--:" for place in range(len(header))]
    return "\n".join([_line(header), _line(rule), *map(_line, rows)])


def as_csv(table: Table) -> str:
    """Header and rows; a true minus becomes a hyphen, so that numbers read as numbers."""
    return format_csv([table.header, *([cell.replace("−", "-") for cell in row] for row in table.rows)])


def merge_missing(rows: Sequence[tuple[str, ...]], shared: int, text_columns: int) -> tuple[tuple[str, ...], ...]:
    """Rows without a number that stand together and share their first cells become one that says so."""
    merged: list[tuple[str, ...]] = []
    for row in rows:
        gap = (*row[:shared], NOT_RUN, *[ABSENT] * (len(row) - shared - 1))
        if any(cell != ABSENT for cell in row[text_columns:]):
            merged.append(row)
        elif merged[-1:] != [gap]:
            merged.append(gap)
    return tuple(merged)


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


# Numbers as text


def number(value: float, digits: int = 4, missing: str = ABSENT) -> str:
    """Rounded, with a true minus."""
    if math.isnan(value):
        return missing
    text = f"{value:.{digits}f}"
    return (text if float(text) else text.lstrip("-")).replace("-", "−")


def signed(value: float, digits: int = 1) -> str:
    text = number(value, digits)
    return f"+{text}" if value > 0 and float(text) else text


def with_deviation(spread: Spread, digits: int = 4) -> str:
    """mean ± standard deviation over seeds, or the mean alone of one."""
    if spread.count < 2:
        return number(spread.mean, digits)
    return f"{number(spread.mean, digits)} ± {number(spread.deviation, digits)}"


def interval(bounds: Interval) -> str:
    return ABSENT if math.isnan(bounds.low) else f"[{signed(bounds.low, 4)}, {signed(bounds.high, 4)}]"


def p_value(p: float) -> str:
    if math.isnan(p):
        return ABSENT
    if p < 1e-9:
        return "< 1e-9"
    return f"{p:.1e}" if p < 1e-3 else f"{p:.3f}"
