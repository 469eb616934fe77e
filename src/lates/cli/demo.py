"""`lates demo`"""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


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
    as_json: Annotated[bool, typer.Option("--json", help="Print numbers for machines instead of the table.")] = False,
) -> None:
    """See it work: a network, three ways to calibrate it, four sets of test images, in half a minute.

    A small residual network, trained on Fashion-MNIST, is too sure of itself. Temperature scaling, LATES and LATES with
    views calibrate it on held-out images; a table compares them on test images, as they are and under noise, lower
    contrast and blur, and says which differences exceed chance. All it needs is in the package.
    """
    if epochs is not None and not train:
        raise typer.BadParameter("only has a meaning together with --train.", param_hint="--epochs")
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


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lates"
