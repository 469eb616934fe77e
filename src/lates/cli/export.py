"""`lates export`: the calibrated model as one graph, for other runtimes."""

import io
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lates.cli.options import OUTPUT, AsJson, Checkpoints, Data, Device, Force, Model, OtherWeights
from lates.cli.outputs import check_output, print_json, tell_written

if TYPE_CHECKING:
    from lates.export import Check
    from lates.model import CalibratedModel

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
            "--check",
            rich_help_panel=OUTPUT,
            help="Run the ONNX file on batches of three sizes and compare with PyTorch; keep it only if it agrees.",
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
    if check:
        import_runtime()
    import torch

    from lates.cli.sources import load_calibrated, make_loaders
    from lates.export import export_program, make_onnx
    from lates.storage import write_whole

    calibrated = load_calibrated(file, model, checkpoints, device, other_weights)
    inputs = make_loaders(data).first_inputs
    checks: list[Check] = []
    if output.suffix == PROGRAM:
        program = io.BytesIO()
        torch.export.save(export_program(calibrated, inputs), program)
        content = program.getvalue()
    else:
        content = make_onnx(calibrated, inputs)
        checks = check_sizes(calibrated, content, inputs) if check else []
    write_whole(output, content)
    tell_written(output)
    if as_json:
        size = output.stat().st_size
        print_json({"file": str(output), "bytes": size, "checks": [asdict(one) for one in checks]})
    elif checks:
        typer.echo(
            f"ONNX Runtime against PyTorch, batches of {', '.join(str(one.rows) for one in checks)} rows:\n"
            f"probabilities differ by at most {max(one.difference for one in checks):.1e}."
        )


def import_runtime() -> None:
    """Tell what --check lacks before the work, not after it."""
    try:
        import_module("onnxruntime")
    except ImportError as fault:
        raise ImportError(
            f'--check needs the package onnxruntime, which does not import ({fault}). Run: pip install "lates[export]"'
        ) from fault


def check_sizes(calibrated: "CalibratedModel", graph: bytes, inputs: Any) -> list["Check"]:
    """The graph on one row, on the batch it was traced with and on another count: a trace may have kept the number of rows."""
    from lates.batches import count_rows, take_rows
    from lates.export import TOLERANCE, check_onnx

    rows = count_rows(inputs)
    checks = [check_onnx(calibrated, graph, take_rows(inputs, rows, count)) for count in sorted({1, rows, rows + 2})]
    for one in checks:
        if not one.passed:
            top = "the same top class" if one.same_top_class else "ANOTHER TOP CLASS in some rows"
            raise ValueError(
                f"The exported graph does not compute what the model computes: on {one.rows} rows, probabilities differ by "
                f"up to {one.difference:.1e}, {top}; expected at most {TOLERANCE:.0e}. Does the network draw at random, or "
                "compute with values that it keeps in Python? Tracing writes such values into the graph. Nothing was written."
            )
    return checks
