"""`lates report`: one HTML page that shows what a calibration did."""

from pathlib import Path
from typing import Annotated

import typer

from lates.cli.options import OUTPUT, AsJson, Checkpoints, Data, Device, Force, Model, OtherWeights, Seed
from lates.cli.outputs import check_output, print_json, tell_written


def report_calibration(
    file: Annotated[Path, typer.Argument(help="What `lates calibrate` wrote.", show_default=False)],
    model: Model,
    data: Data,
    checkpoints: Checkpoints = None,
    other_weights: OtherWeights = False,
    device: Device = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", rich_help_panel=OUTPUT, help="The page to write.")
    ] = Path("report.html"),
    title: Annotated[
        str | None, typer.Option(rich_help_panel=OUTPUT, help="The page's heading.", show_default=False)
    ] = None,
    class_names: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="A text file with the name of each class, one on a line.",
            show_default=False,
        ),
    ] = None,
    seed: Seed = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write one HTML page about a calibration; it opens from disk and needs no network access.

    `--data` must give `test`: a loader, or a mapping from names to loaders, of which the first is the plain test set and
    the others are its shifts.

        lates report my.lates.safetensors -o report.html \\
            --model my_module:make_model --checkpoint weights.pt \\
            --data my_module:make_loaders
    """
    check_output(output, force)
    from lates.cli.sources import load_calibrated, make_loaders
    from lates.report import write_report

    names = None if class_names is None else read_names(class_names)
    calibrated = load_calibrated(file, model, checkpoints, device, other_weights)
    tests = make_loaders(data).needed_test
    write_report(calibrated, tests, output, title=title, class_names=names, seed=seed)
    tell_written(output)
    link = output.resolve().as_uri()
    if as_json:
        print_json({"file": str(output), "link": link, "bytes": output.stat().st_size})
    else:
        typer.echo(link)


def read_names(path: Path) -> list[str]:
    """One name on each line; blank lines at the end are none."""
    if not path.is_file():
        raise FileNotFoundError(f"--class-names {path}: there is no such file.")
    return path.read_text("utf-8").rstrip().splitlines()
