"""`lates report`: one HTML page that shows what a calibration did."""

from pathlib import Path
from typing import Annotated

import typer

from lates.cli.options import OUTPUT, AsJson, Checkpoints, Data, Device, Force, Model, Seed
from lates.cli.outputs import check_output, print_json, tell_written


def report_calibration(
    file: Annotated[Path, typer.Argument(help="What `lates calibrate` wrote.", show_default=False)],
    model: Model,
    data: Data,
    checkpoints: Checkpoints = None,
    device: Device = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", rich_help_panel=OUTPUT, help="The page to write.")
    ] = Path("report.html"),
    title: Annotated[
        str | None, typer.Option(rich_help_panel=OUTPUT, help="The page's heading.", show_default=False)
    ] = None,
    seed: Seed = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write one HTML page about a calibration; it opens from disk and needs no network access.

    `--data` must give `test`: a loader, or a mapping from names to loaders, of which the first is the plain test set and
    the others are its shifts.

        lates report my.lates.safetensors -o report.html \\
            --model my_module:make_model --data my_module:make_loaders
    """
    check_output(output, force)
    import lates
    from lates.cli.sources import make_loaders, make_network

    tests = make_loaders(data).needed_test
    calibrated = lates.load(file, make_network(model, checkpoints, device))
    lates.write_report(calibrated, tests, output, title=title, seed=seed)
    tell_written(output)
    link = output.resolve().as_uri()
    if as_json:
        print_json({"file": str(output), "link": link, "bytes": output.stat().st_size})
    else:
        typer.echo(link)
