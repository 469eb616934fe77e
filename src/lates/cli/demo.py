"""`lates demo`"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lates.cli.console import print_json, say
from lates.cli.options import AsJson, check_output

PAGE = Path("lates-demo-report.html")
"""The demo overwrites this file without asking."""


def show_demo(
    train: Annotated[bool, typer.Option("--train", help="Train the network first: a few minutes.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of training, views, noise and bootstrap.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Use a sixth of the images: ten seconds, rough numbers.")] = False,
    report: Annotated[
        Path | None, typer.Option(dir_okay=False, metavar="FILE", help="The page with charts to write.", show_default=str(PAGE))
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no page.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing page that you name.")] = False,
    as_json: AsJson = False,
) -> None:
    """See it work: one network, three calibrations, four test sets, in half a minute.

    A small residual network, trained on Fashion-MNIST, is overconfident. Temperature scaling, LATES without
    views and LATES calibrate it on held-out images. A table compares them on test images, as they are and with noise, lower
    contrast and blur, and marks differences beyond chance. A page shows the same with charts. Everything it needs is in
    the package.
    """
    page = report or PAGE
    if not no_report:
        check_output(page, force or report is None)
    from lates import demo
    from lates.cli.table import show_demo_results
    from lates.report import write_report
    from lates.runtime import shown

    splits = demo.load_splits().shrink(6 if quick else 1)
    with shown(True) as progress:
        network = demo.train_network(splits.train, seed=seed, progress=progress) if train else demo.load_network()
        results, calibrated = demo.run_experiment(network, splits, seed=seed, progress=progress)
    if as_json:
        print_json(asdict(results))
    else:
        show_demo_results(results, Console())
    if no_report:
        return
    tests = {name: split.batches for name, split in demo.shift_split(splits.test, seed).items()}
    title = "A small residual network on Fashion-MNIST"
    try:
        write_report(calibrated, tests, page, title=title, class_names=demo.CLASS_NAMES, seed=seed)
    except ModuleNotFoundError as error:
        say(f"\nNo page was written. {error}", err=True)
    else:
        say(f"\nThe same with charts:\n{page.resolve().as_uri()}", err=as_json)
