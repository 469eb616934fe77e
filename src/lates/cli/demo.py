"""`lates demo`"""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lates.cli.outcomes import tell
from lates.cli.outputs import check_output

PAGE = Path("lates-demo-report.html")
"""Ours by its name: the demo replaces it without asking."""


def show_demo(
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
    report: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            metavar="FILE",
            help="The page to write: the same with pictures.",
            show_default=str(PAGE),
        ),
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no page.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file that you name.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print numbers for machines instead of the table.")] = False,
) -> None:
    """See it work: a network, three ways to calibrate it, four sets of test images, in half a minute.

    A small residual network, trained on Fashion-MNIST, is too sure of itself. Temperature scaling, LATES and LATES with
    views calibrate it on held-out images; a table compares them on test images, as they are and under noise, lower
    contrast and blur, and says which differences exceed chance. A page shows the same with pictures. All it needs is in
    the package.
    """
    if epochs is not None and not train:
        raise typer.BadParameter("only has a meaning together with --train.", param_hint="--epochs")
    page, trained = report or PAGE, weights or cache_folder() / f"demo-network-{seed}.safetensors"
    if not no_report:
        check_output(page, force or report is None)
    if train:
        trained.parent.mkdir(parents=True, exist_ok=True)
        check_output(trained, force or weights is None)
    from lates.demo import (
        calibrate_all,
        compare,
        load_network,
        load_splits,
        same_weights,
        save_network,
        show,
        train_network,
    )
    from lates.demo.training import EPOCHS
    from lates.progress import shown

    splits = load_splits().shrink(6 if quick else 1)
    with shown(True) as progress:
        if train:
            network = train_network(splits.train, epochs=epochs or EPOCHS, seed=seed, progress=progress)
            save_network(network, trained)
            shipped = "the same as" if same_weights(network, load_network()) else "another than"
            typer.echo(f"Wrote {trained}: {shipped} the shipped network.", err=True)
        network = load_network(trained if train else weights)
        made = calibrate_all(network, splits, seed=seed, progress=progress)
        comparison = compare(network, splits, made, seed=seed, progress=progress)
    if as_json:
        typer.echo(json.dumps(asdict(comparison), indent=2, allow_nan=False))
    else:
        show(comparison, Console())
    if not no_report:
        from lates.demo import write_page

        try:
            write_page(made, splits, page, seed=seed, progress=True)
        except ModuleNotFoundError as fault:
            tell(f"\nNo page was written. {fault}")
        else:
            typer.echo(f"\nThe same with pictures:\n{page.resolve().as_uri()}", err=as_json)


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lates"
