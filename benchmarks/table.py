"""The table as it is printed: one block for each group, within 100 columns."""

from collections.abc import Iterable
from textwrap import fill

from benchmarks.records import Group

WIDTH = 100
MARKS = {True: "met", False: "NOT MET", None: ""}


def draw_end(groups: Iterable[Group]) -> str:
    """Who did not take part, where and why, and how many goals were met."""
    groups = list(groups)
    absent = dict.fromkeys(f"Not measured: {who}: {why}" for group in groups for who, why in group.absent.items())
    verdicts = [goal.met for group in groups for goal in group.goals if goal.met is not None]
    lines = [fill(line, WIDTH, subsequent_indent="   ") for line in absent]
    return "\n".join([*lines, f"{sum(verdicts)} of {len(verdicts)} goals met"])


def draw_group(group: Group) -> str:
    lines = [f"{group.row}  {group.title}"]
    for line in group.lines:
        ratio = "" if line.ratio is None else f"{line.ratio:.3g}x"
        count = len(line.repeats)
        runs = f"{count} run{'s' * (count > 1)}" if count else ""
        lines.append(f"   {line.who:<20}{amount(line.amount, line.unit):>12}{ratio:>8}{runs:>9}   {line.reached}")
    for goal in group.goals:
        name = "seen" if goal.met is None else "goal"
        text = f"{name}: {goal.text}: {goal.found}  {MARKS[goal.met]}"
        lines.append(fill(text, WIDTH, initial_indent="   ", subsequent_indent="      "))
    return "\n".join(line[:WIDTH].rstrip() for line in lines)


def amount(value: float, unit: str = "s") -> str:
    """A number to three or four digits with its unit; seconds below 1 in milliseconds."""
    if unit == "s" and value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.4g} {unit}"
