"""`lates export`: the calibrated model as one graph, for other runtimes."""

import io
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lates.cli import options
from lates.cli.console import print_results, print_written

ONNX, PROGRAM = ".onnx", ".pt2"


def export_calibration(
    file: options.CalibrationFile,
    model: options.Model,
    data: options.Data,
    output: Annotated[
        Path,
        options.result("--output", "-o", metavar="FILE", help=f"{ONNX} writes ONNX, {PROGRAM} writes torch.export."),
    ],
    checkpoints: options.Checkpoints = None,
    other_weights: options.OtherWeights = False,
    device: options.Device = None,
    check: Annotated[
        bool,
        options.result(
            "--check",
            help="Run the ONNX graph on batches of three sizes, compare with PyTorch, and write it only if they agree.",
        ),
    ] = False,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Export the calibrated model, including the network, as one ONNX or torch.export graph.

    Any loader of `--data` will do: its first batch shows how the network is called. The batch size stays free. Blocks
    with weight 0 are not in the graph.

        lates export my.lates.safetensors -o my.onnx --check \\
            --model my_module:make_model --checkpoint weights.pt \\
            --data my_module:make_loaders
    """
    if output.suffix not in (ONNX, PROGRAM):
        raise typer.BadParameter(f"{output}: expected a name ending in {ONNX} or {PROGRAM}.", param_hint="--output")
    if check and output.suffix != ONNX:
        raise typer.BadParameter(f"works for {ONNX} only.", param_hint="--check")
    options.check_output(output, force, [file, *(checkpoints or ())], [model, data])
    import torch

    from lates.cli.user_code import first_inputs, load_calibrated
    from lates.export import check_sizes, export_program, import_package, make_onnx
    from lates.runtime import write_whole

    if check:
        import_package("onnxruntime")  # fail before the work, not after it
    calibrated = load_calibrated(file, model, checkpoints, device, other_weights)
    inputs = first_inputs(data)
    if output.suffix == PROGRAM:
        program = io.BytesIO()
        torch.export.save(export_program(calibrated, inputs), program)
        content = program.getvalue()
    else:
        content = make_onnx(calibrated, inputs)
    checks = check_sizes(calibrated, content, inputs) if check else []
    write_whole(output, content)
    print_written(output)
    results = {"file": str(output), "bytes": len(content), "checks": [asdict(one) for one in checks]}
    text = ""
    if checks:
        text = (
            f"ONNX Runtime against PyTorch, batches of {', '.join(str(one.rows) for one in checks)} rows:\n"
            f"probabilities differ by at most {max(one.difference for one in checks):.1e}."
        )
    print_results(results, text, as_json)
