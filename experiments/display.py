"""What the command shows in a terminal of 80 columns: recipes, progress, failures, the grid."""

import textwrap
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from experiments.recipes import Experiment
    from experiments.results import Cell
    from experiments.run import Moment, Standing

COLUMNS = 80
SECONDS_BETWEEN_LINES = 10.0
LAST_STAGE = "evaluating"
OTHER = "other"


class Lines:
    """A line now and then: which cell of how many, what it does, how long that will take, how long all will take."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.write, self.clock = write, clock
        self.started = clock()
        self.stage: tuple[str, str] | None = None
        self.began, self.first, self.last = 0.0, 0, 0.0
        self.ended = 0
        self.said: set[str] = set()

    def __call__(self, moment: "Moment") -> None:
        now = self.clock()
        who = f"[{moment.place}/{moment.total}] {moment.cell.training}"
        if moment.reason:
            if moment.reason not in self.said:
                self.write(wrapped(f"{who}  {moment.stage}: {moment.reason}"))
            self.said.add(moment.reason)
            return
        fresh = (moment.cell.name, moment.stage) != self.stage
        if fresh:
            self.stage, self.began, self.first = (moment.cell.name, moment.stage), now, moment.done
        finished = moment.done == moment.steps
        if not (fresh or finished or now - self.last >= SECONDS_BETWEEN_LINES):
            return
        self.last = now
        line = f"{who}  {moment.stage}"
        if finished:
            line += f", took {in_words(now - self.began)}"
        elif moment.done > self.first:
            left = (now - self.began) / (moment.done - self.first) * (moment.steps - moment.done)
            line += f" {moment.done / moment.steps:.0%}, {in_words(left)} left"
        self.write(wrapped(line))
        if finished and moment.stage == LAST_STAGE:
            self.ended += 1
            if rest := moment.total - moment.place:
                left = rest * (now - self.started) / self.ended
                self.write(f"{count(rest, 'cell')} to go, about {in_words(left)}")


def describe_failure(reason: str, cells: "list[Cell]", named: int = 3) -> str:
    """One reason, and the cells that failed for it."""
    names = ", ".join(cell.training for cell in cells[:named])
    more = f" and {len(cells) - named} more" if len(cells) > named else ""
    return wrapped(f"Error: {count(len(cells), 'cell')} failed ({names}{more}): {reason}")


def describe_recipe(experiment: "Experiment") -> str:
    """Its command, which is one line, and in paragraphs what it asks, costs and should show."""
    said = (experiment.question, f"Cost: {experiment.cost}.", f"Expected: {experiment.expected}")
    return "\n".join([experiment.command, *(wrapped(f"  {text}", hanging="    ") for text in said)])


def wrapped(text: str, hanging: str = "  ") -> str:
    """Lines of at most 80 columns, unless a word, such as a path, is longer: it stays whole, to be copied."""
    lines = textwrap.wrap(text, COLUMNS, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def in_words(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def show_grid(standings: "list[Standing]", where: Console) -> None:
    """A line per network, data set and fraction; a column per seed."""
    seeds = sorted({standing.cell.seed for standing in standings})
    lines: dict[tuple[str, str], dict[int, str]] = {}
    for standing in standings:
        cell = standing.cell
        variant = cell.trained_alike.removeprefix(f"{cell.dataset}-{cell.network}-s{cell.seed}").removeprefix("-")
        lines.setdefault((f"{cell.network}/{cell.dataset}", variant), {})[cell.seed] = in_a_word(standing)
    table = Table("network/data set", "", *(f"s{seed}" for seed in seeds), box=None, pad_edge=False)
    for names, of_seed in lines.items():
        table.add_row(*names, *(of_seed.get(seed, "") for seed in seeds))
    where.print(table)
    done = sum(standing.finished for standing in standings)
    where.print(f"{done} of {count(len(standings), 'cell')} done, {sum(s.running for s in standings)} being worked on.")
    if others := sum(standing.other_recipe for standing in standings):
        where.print(f"{others} measured by another recipe, shown as {OTHER}: `run` says what differs.")


def in_a_word(standing: "Standing") -> str:
    if standing.finished:
        return "done"
    if standing.other_recipe:
        return OTHER
    word = "…" if standing.running else ""
    return f"{standing.trained:.0%}{word}" if standing.trained else word or "-"
