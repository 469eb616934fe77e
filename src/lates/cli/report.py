"""`lates report`: one HTML page that shows what a calibration did."""

from pathlib import Path
from typing import Annotated

from lates.cli import options
from lates.cli.console import print_results, print_written


def report_calibration(
    file: options.CalibrationFile,
    model: options.Model,
    data: options.Data,
    checkpoints: options.Checkpoints = None,
    other_weights: options.OtherWeights = False,
    device: options.Device = None,
    output: Annotated[
        Path, options.result("--output", "-o", metavar="FILE", help="The page to write.", show_default=True)
    ] = Path("report.html"),
    title: Annotated[str | None, options.result(help="The heading of the page.")] = None,
    class_names: Annotated[
        Path | None,
        options.result(metavar="FILE", help="A text file with the names of the classes, one per line."),
    ] = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Write one HTML page about a calibration; it opens from disk and needs no internet access.

    `--data` must give `test`: a loader, or a dict of names and loaders, first the plain test set, then shifted ones.

        lates report my.lates.safetensors -o report.html \\
            --model my_module:make_model --checkpoint weights.pt \\
            --data my_module:make_loaders
    """
    options.check_output(output, force, [file, class_names, *(checkpoints or ())], [model, data])
    from lates.cli.user_code import load_calibrated, make_loaders
    from lates.report import write_report

    if class_names is not None and not class_names.is_file():
        raise FileNotFoundError(f"--class-names {class_names}: there is no such file.")
    try:
        names = None if class_names is None else class_names.read_text("utf-8-sig").rstrip().splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"--class-names {class_names}: no text in UTF-8 ({error}). Save it as UTF-8.") from error
    calibrated = load_calibrated(file, model, checkpoints, device, other_weights)
    tests = make_loaders(data, "test")["test"]
    write_report(calibrated, tests, output, title=title, class_names=names, seed=seed)
    print_written(output)
    link = output.resolve().as_uri()
    print_results({"file": str(output), "link": link, "bytes": output.stat().st_size}, link, as_json)
