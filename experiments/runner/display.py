"""What the command shows in a terminal of 80 columns: recipes, progress, failures."""

import textwrap
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.recipes import Cell, Recipe
    from experiments.runner.cells import Moment

COLUMNS = 80
SECONDS_BETWEEN_LINES = 10.0
LAST_STAGE = "evaluating"


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


def describe_recipe(recipe: "Recipe") -> str:
    """Its command, which is one line, and in paragraphs what it asks, costs and should show."""
    said = (recipe.question, f"Cost: {recipe.cost}.", f"Expected: {recipe.expected}")
    return "\n".join([recipe.command, *(wrapped(f"  {text}", hanging="    ") for text in said)])


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
