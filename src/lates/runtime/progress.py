"""Progress is a callback; this is the one that draws bars with the time left, where somebody can see them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lates.runtime.text import printable

Progress = Callable[[str, int, int | None], None]
"""(stage, steps done, steps in all or None where unknown)"""


@contextmanager
def shown(progress: bool | Progress | None) -> Iterator[Progress | None]:
    """A callback for the stages: the user's own; bars on a terminal or in a notebook for True; None, silence, otherwise."""
    if progress is not True:
        yield None if progress is False else progress
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield None
        return
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        tasks = {}

        def update(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(escape(printable(stage)), total=total)
            bars.update(tasks[stage], completed=done)

        yield update
