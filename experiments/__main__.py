"""The paper's experiments: train, calibrate, measure, draw.

Begin with `python -m experiments run smoke`, some minutes on two cores;
`python -m experiments recipes` lists the others.

Recipes that corrupt images by frost need five photographs. Get them by
`pip install --no-deps imagecorruptions-imaug`, or name their folder in the
environment variable LATES_FROST.

Exit codes: 0 done, or stopped in good order when the time was up; 1 failed;
2 wrong arguments; 130 stopped by Ctrl-C.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.recipes import Recipe

COMMANDS = {
    "tables": ("experiments.reporting.document", "Write pages and tables from the results; --check compares instead."),
    "figures": ("experiments.reporting.figures", "Draw every figure from the results."),
    "ensemble": ("experiments.runner.ensemble", "Measure the ensembles of a recipe's seeds."),
    "search": ("experiments.evaluation.search", "Compare settings of the library on hold-out data."),
    "timing": ("experiments.evaluation.timing", "Time a calibration beside the training of its network."),
}
"""Those with a parser of their own."""


def main(arguments: Sequence[str] | None = None) -> int:
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    chosen = None if words and words[0] in COMMANDS else make_parser().parse_args(words)
    from experiments.runner.faults import faults_in_words

    with faults_in_words():
        return chosen.command(chosen) if chosen else import_module(COMMANDS[words[0]][0]).main(words[1:]) or 0


def make_parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__, formatter_class=layout)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    listing = commands.add_parser("recipes", help="What can be run, what it costs and what to expect of it.")
    listing.set_defaults(command=show_recipes)
    does = "Do the unfinished cells of a recipe; the same command goes on after any interruption, beside any other runner."
    running = commands.add_parser("run", help=does, description=does)
    running.set_defaults(command=run)
    says = "Which cells are done, running or waiting."
    waiting = commands.add_parser("status", help=says, description=says)
    waiting.set_defaults(command=show_status)
    for each in (running, waiting):
        each.add_argument("recipe", type=find_recipe, help="See `recipes`.")
        each.add_argument("--runs", type=Path, default=Path("runs"), help="Folder of the trained networks.")
        each.add_argument("--results", type=Path, default=Path("results"), help="Folder of the CSV and JSON files.")
        each.add_argument("--seeds", type=parse_seeds, help="Such as 0-4 or 0,2. Without it, the recipe's.")
        which = "A network and data set, such as resnet18/cifar100; several times for several."
        each.add_argument("--only", action="append", default=[], help=which)
    option = running.add_argument
    option("--data", type=Path, help="Folder of the data sets. Without it ./data, and what is missing is downloaded.")
    stop = "Stop in good order before that. Give at least 5: methods are fitted again."
    option("--max-minutes", type=parse_minutes, default="inf", help=stop)
    keep = "Keep each network in half precision, and logits of some test sets, in its folder of runs."
    option("--keep-weights", action="store_true", help=keep)
    beside = "Processes that score beside a GPU. Without it, each runner has its share of the cores."
    option("--workers", type=parse_workers, help=beside)
    option("--device", help="cuda or cpu. Without it, the GPU if there is one.")
    for name, (_, text) in COMMANDS.items():
        commands.add_parser(name, help=f"{text} See `{name} --help`.")
    return parser


def show_recipes(chosen: argparse.Namespace) -> int:
    from experiments.recipes import RECIPES
    from experiments.runner.display import describe_recipe

    print("\n\n".join(map(describe_recipe, RECIPES.values())), end="\n\n")
    return 0


def run(chosen: argparse.Namespace) -> int:
    import torch

    from experiments.runner.cells import Folders, choose_cells, run_cells
    from experiments.runner.display import Lines, describe_failure, wrapped

    cells = choose_cells(chosen.recipe, seeds=chosen.seeds, only=chosen.only)
    outcome = run_cells(
        chosen.recipe,
        cells,
        Folders(chosen.data, chosen.runs, chosen.results),
        chosen.device or ("cuda" if torch.cuda.is_available() else "cpu"),
        max_seconds=60 * chosen.max_minutes,
        workers=chosen.workers,
        keep=chosen.keep_weights,
        report=Lines(partial(print, flush=True)),
    )
    counts = (len(part) for part in (outcome.done, outcome.skipped, outcome.elsewhere, outcome.left, cells))
    print(wrapped("{} done now, {} before, {} claimed by other runners, {} left of {}.".format(*counts)))
    if outcome.left:
        print("The same command goes on from here.")
    for reason in dict.fromkeys(outcome.failed.values()):
        failed = [cell for cell, why in outcome.failed.items() if why == reason]
        print(describe_failure(reason, failed), file=sys.stderr)
    return 1 if outcome.failed else 0


def show_status(chosen: argparse.Namespace) -> int:
    from experiments.runner.cells import Folders, choose_cells, read_status

    folders = Folders(None, chosen.runs, chosen.results)
    for cell in choose_cells(chosen.recipe, seeds=chosen.seeds, only=chosen.only):
        print(f"{cell.trained_alike}  {read_status(chosen.recipe, cell, folders)}")
    return 0


# Arguments


def find_recipe(name: str) -> "Recipe":
    from experiments.recipes import RECIPES

    if name not in RECIPES:
        raise argparse.ArgumentTypeError(f'Unknown recipe "{name}". Recipes: {", ".join(RECIPES)}.')
    return RECIPES[name]


def parse_seeds(text: str) -> list[int]:
    """ "0-2,5" -> [0, 1, 2, 5]"""
    try:
        parts = [[int(end) for end in part.split("-", 1)] for part in text.split(",")]
        seeds = [seed for ends in parts for seed in range(ends[0], ends[-1] + 1)]
    except ValueError:
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f'"{text}": expected distinct numbers and ranges, such as 0-4 or 0,2.')
    return seeds


def parse_minutes(text: str) -> float:
    with suppress(ValueError):
        if (minutes := float(text)) >= 0:
            return minutes
    raise argparse.ArgumentTypeError(f"{text}: expected a number that is not negative.")


def parse_workers(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number, at least 1.")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
