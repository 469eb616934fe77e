"""`lates export`: the calibrated model as one graph, for other runtimes."""

import io
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lates.cli.options import OUTPUT, AsJson, Checkpoints, Data, Device, Force, Model, OtherWeights
from lates.cli.outcomes import FAILED
from lates.cli.outputs import check_output, print_json, tell_written

ONNX, PROGRAM = ".onnx", ".pt2"


def export_calibration(
    file: Annotated[Path, typer.Argument(help="What `lates calibrate` wrote.", show_default=False)],
    model: Model,
    data: Data,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help=f"Where to write: {ONNX} for ONNX, {PROGRAM} for torch.export.",
            show_default=False,
        ),
    ],
    checkpoints: Checkpoints = None,
    other_weights: OtherWeights = False,
    device: Device = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", rich_help_panel=OUTPUT, help="Run the ONNX file on a batch of the data and compare with PyTorch."
        ),
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Export the calibrated model, network and all, as one ONNX or torch.export graph.

    Any loader of `--data` will do: its first batch shows how the network is called. Batches of other sizes fit later.
    Blocks without a vote are not in the graph.

        lates export my.lates.safetensors -o my.onnx --check \\
            --model my_module:make_model --checkpoint weights.pt \\
            --data my_module:make_loaders
    """
    if output.suffix not in (ONNX, PROGRAM):
        raise typer.BadParameter(f"{output}: expected a name ending in {ONNX} or {PROGRAM}.", param_hint="--output")
    if check and output.suffix != ONNX:
        raise typer.BadParameter(f"only has a meaning for {ONNX}.", param_hint="--check")
    check_output(output, force)
    import torch

    from lates.cli.sources import load_calibrated, make_loaders
    from lates.export import check_onnx, export_onnx, export_program
    from lates.storage import write_whole

    calibrated = load_calibrated(file, model, checkpoints, device, other_weights)
    inputs = make_loaders(data).first_inputs
    if output.suffix == PROGRAM:
        program = io.BytesIO()
        torch.export.save(export_program(calibrated, inputs), program)
        write_whole(output, program.getvalue())
    else:
        export_onnx(calibrated, inputs, output)
    tell_written(output)
    checked = check_onnx(calibrated, output, inputs) if check else None
    if as_json:
        print_json({"file": str(output), "bytes": output.stat().st_size, "check": checked and asdict(checked)})
    elif checked is not None:
        same = "the same top class everywhere" if checked.same_top_class else "ANOTHER TOP CLASS in some rows"
        typer.echo(
            f"ONNX Runtime against PyTorch, {checked.rows} rows: probabilities differ by at most "
            f"{checked.difference:.1e}, {same}."
        )
    if checked is not None and not checked.passed:
        typer.echo("Error: the exported graph does not compute what the model computes.", err=True)
        raise typer.Exit(FAILED)
