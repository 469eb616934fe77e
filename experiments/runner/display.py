"""What the command shows in a terminal of 80 columns: recipes, progress, failures."""

import textwrap
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.recipes import Cell, Recipe

COLUMNS = 80
SECONDS_BETWEEN_LINES = 10.0


class Lines:
    """A line for each new stage, and one every ten seconds: which cell of how many, its stage, and the share done."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.write, self.clock = write, clock
        self.shown, self.last = ("", ""), 0.0

    def __call__(self, cell: str, stage: str, done: int, steps: int) -> None:
        now = self.clock()
        if (cell, stage) != self.shown or done == steps or now - self.last >= SECONDS_BETWEEN_LINES:
            self.shown, self.last = (cell, stage), now
            self.write(wrapped(f"{cell}  {stage}" + (f" {done / steps:.0%}" if done else "")))


def describe_failure(reason: str, cells: "list[Cell]") -> str:
    """One reason, and the cells that failed for it, of which three are named."""
    names = ", ".join(cell.training for cell in cells[:3])
    more = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
    counted = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
    return wrapped(f"Error: {counted} failed ({names}{more}): {reason}")


def describe_recipe(recipe: "Recipe") -> str:
    """Its command, which is one line, and in paragraphs what it asks, costs and should show."""
    said = (recipe.question, f"Cost: {recipe.cost}.", f"Expected: {recipe.expected}")
    return "\n".join([recipe.command, *(wrapped(f"  {text}", hanging="    ") for text in said)])


def wrapped(text: str, hanging: str = "  ") -> str:
    """Lines of at most 80 columns, unless a word, such as a path, is longer: it stays whole, to be copied."""
    lines = textwrap.wrap(text, COLUMNS, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)
