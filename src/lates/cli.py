"""The command `lates`. What needs torch is imported inside the commands: reading the help must not wait for it.

Exit codes: 0 done, 1 failed, 2 wrongly called, 130 stopped by Ctrl-C. Results go to standard output, all else to
standard error.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lates import __version__

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown"
)


def print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"lates {__version__}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="LATES_DEBUG", help="Show the traceback of an error.")
    ] = False,
    show_version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Calibrate a PyTorch classifier with all of its layers.

    Start with `lates demo`. On your own model, in Python:

    `lates.calibrate(model, train=train_loader, holdout=holdout_loader)`
    """
    context.obj = debug


@app.command()
def demo(
    context: typer.Context,
    train: Annotated[bool, typer.Option("--train", help="First train the network anew: a few minutes.")] = False,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="With --train: how long; 30 made the shipped network.", show_default=False)
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            show_default=False,
            help="The network's weights: read from this file instead of the package, or, with --train, written to it "
            "(otherwise to the user's cache folder).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of training, views, noise and bootstrap.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A sixth of the images: a look in ten seconds, its numbers rough.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print numbers for machines instead of the table.")] = False,
) -> None:
    """See it work: a network, three ways to calibrate it, four sets of test images, in half a minute.

    A small residual network, trained on Fashion-MNIST, is too sure of itself. Temperature scaling, LATES and LATES with
    views calibrate it on held-out images; a table compares them on test images, as they are and under noise, lower
    contrast and blur, and says which differences exceed chance. All it needs is in the package.
    """
    if epochs is not None and not train:
        raise typer.BadParameter("only has a meaning together with --train.", param_hint="--epochs")
    with told_in_words(debug=bool(context.obj)):
        from lates.demo import compare, load_network, load_splits, same_weights, save_network, show, train_network
        from lates.demo.training import EPOCHS
        from lates.progress import shown

        splits = load_splits().shrink(6 if quick else 1)
        with shown(True) as progress:
            if train:
                weights = weights or cache_folder() / f"demo-network-{seed}.safetensors"
                weights.parent.mkdir(parents=True, exist_ok=True)
                network = train_network(splits.train, epochs=epochs or EPOCHS, seed=seed, progress=progress)
                save_network(network, weights)
                shipped = "the same as" if same_weights(network, load_network()) else "another than"
                typer.echo(f"Wrote {weights}: {shipped} the shipped network.", err=True)
            comparison = compare(load_network(weights), splits, seed=seed, progress=progress)
        if as_json:
            typer.echo(json.dumps(asdict(comparison), indent=2, allow_nan=False))
        else:
            show(comparison, Console())


@contextmanager
def told_in_words(*, debug: bool) -> Iterator[None]:
    """An error becomes one message and exit code 1, unless its traceback was asked for; Ctrl-C becomes exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)
        raise typer.Exit(130) from None
    except Exception as fault:
        if debug:
            raise
        typer.echo(f"Error: {fault or type(fault).__name__}", err=True)
        if not isinstance(fault, OSError | ValueError):
            typer.echo("This looks like a fault of lates itself; `lates --debug …` shows where it arose.", err=True)
        raise typer.Exit(1) from None


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lates"
