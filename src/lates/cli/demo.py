"""`lates demo`"""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lates.cli.options import AsJson
from lates.cli.outputs import check_output, print_json, print_written, say

PAGE = Path("lates-demo-report.html")
"""The demo overwrites this file without asking."""


def show_demo(
    train: Annotated[bool, typer.Option("--train", help="Train the network first: a few minutes.")] = False,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="With --train; the shipped network took 30.", show_default=False)
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            show_default=False,
            help="The network's weights: read from this file instead of the package, or, with --train, written to it "
            "(by default to the user's cache folder).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of training, views, noise and bootstrap.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use a sixth of the images: ten seconds, rough numbers.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(dir_okay=False, metavar="FILE", help="The page with charts to write.", show_default=str(PAGE)),
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no page.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file that you name.")] = False,
    as_json: AsJson = False,
) -> None:
    """See it work: one network, three calibrations, four test sets, in half a minute.

    A small residual network, trained on Fashion-MNIST, is overconfident. Temperature scaling, LATES without
    views and LATES calibrate it on held-out images. A table compares them on test images, as they are and with noise, lower
    contrast and blur, and marks differences beyond chance. A page shows the same with charts. Everything it needs is in
    the package.
    """
    if epochs is not None and not train:
        raise typer.BadParameter("only works together with --train.", param_hint="--epochs")
    page, trained = report or PAGE, weights or cache_folder() / f"demo-network-{seed}.safetensors"
    if not no_report:
        check_output(page, force or report is None, [trained if train else weights])
    if train:
        trained.parent.mkdir(parents=True, exist_ok=True)
        check_output(trained, force or weights is None)
    from lates import demo
    from lates.cli.demo_text import show
    from lates.report import write_report
    from lates.runtime import shown

    splits = demo.load_splits().shrink(6 if quick else 1)
    with shown(True) as progress:
        if train:
            network = demo.train_network(splits.train, epochs=epochs or demo.EPOCHS, seed=seed, progress=progress)
            demo.save_network(network, trained)
            print_written(trained)
        network = demo.load_network(trained if train else weights)
        calibrated = demo.calibrate_all(network, splits, seed=seed, progress=progress)
        results = demo.compare_all(network, splits, calibrated, seed=seed, progress=progress)
    if as_json:
        print_json(asdict(results))
    else:
        show(results, Console())
    if no_report:
        return
    tests = {name: split.batches for name, split in demo.shift_split(splits.test, seed).items()}
    title = "A small residual network on Fashion-MNIST"
    try:
        model = calibrated[demo.LATES].model
        write_report(model, tests, page, title=title, class_names=demo.CLASS_NAMES, seed=seed)
    except ModuleNotFoundError as error:
        say(f"\nNo page was written. {error}", err=True)
    else:
        say(f"\nThe same with charts:\n{page.resolve().as_uri()}", err=as_json)


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lates"
