"""The calibrated model as one graph, for torch.export and for ONNX: networks, probes and weights together.

An exported graph takes its inputs in the form of the example that it was made with, as a loader gives them: a tensor, a
tuple, a mapping. Any number of rows may come; so may any number of tokens, where inputs are integers [n, tokens] and the
network allows it. Probes of weight 0 are not in the graph.

MC dropout is not exported: it draws anew in every call, so no graph could be checked against it.
"""

import copy
import inspect
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import mha

from lates.model import CalibratedModel
from lates.network import LABEL_KEYS, call_arguments, copy_inputs, count_rows, device_of, move_inputs, take_rows
from lates.runtime import OptionalImport, check_target, process_lock, write_whole

OPSET = 18
"""The ONNX operator set written: the one that PyTorch's exporter is written in, and that runtimes since 2023 read."""

TOLERANCE = 1e-4
"""The largest difference of an exported graph's probabilities from PyTorch's: many layers of float32 sums in another order."""

LARGEST_FILE = 2**31
"""Bytes that a single ONNX file, a protocol buffer, can hold."""


@dataclass(frozen=True)
class Check:
    """How an ONNX file compares with the model it was made from.

    rows        compared
    difference  the largest |p_onnx - p_torch| over rows and classes
    """

    rows: int
    difference: float

    @property
    def passed(self) -> bool:
        return self.difference <= TOLERANCE


def export_program(calibrated: CalibratedModel, example: Any) -> torch.export.ExportedProgram:
    """Trace the calibrated model into one graph that returns logits [n, classes]; the number of rows is free.

    example   inputs, without labels, in the form in which a loader gives them; the program takes the same form

    >>> program = lates.export.export_program(calibrated, images)
    >>> torch.export.save(program, "resnet18.pt2")
    >>> program.module()(images).softmax(-1)
    """
    return _trace(_Graph(calibrated), _prepared(calibrated, example))


def export_onnx(calibrated: CalibratedModel, example: Any, path: str | os.PathLike[str]) -> None:
    """Write the calibrated model to one ONNX file, whole or not at all.

    It gives `logits` and `probabilities`, [n, classes], of any number of rows, in operator set 18. Its inputs are named as
    the network names them: the keys of a mapping, or the parameters of `forward`.

    >>> lates.export.export_onnx(calibrated, images, "resnet18.onnx")
    >>> lates.export.check_onnx(calibrated, "resnet18.onnx", images).passed
    """
    check_target(path)
    write_whole(path, make_onnx(calibrated, example))


def make_onnx(calibrated: CalibratedModel, example: Any) -> bytes:
    """What `export_onnx` writes."""
    for package in ("onnx", "onnxscript"):
        import_package(package)
    size = sum(values.nbytes for values in [*calibrated.parameters(), *calibrated.buffers()])
    if size > LARGEST_FILE:
        raise ValueError(
            f"The calibrated model takes {size / 2**30:.1f} GiB; a single ONNX file holds at most 2. Use export_program."
        )
    example = _prepared(calibrated, example)
    program = _trace(_Graph(calibrated, probabilities=True), example)
    try:
        with _exporting(Warning):
            translated = torch.onnx.export(
                program,
                input_names=list(_by_name(calibrated, example)),
                output_names=("logits", "probabilities"),
                opset_version=OPSET,
                dynamic_shapes=(_free_axes(example, "batch", "tokens"),),
                dynamo=True,
                verbose=False,
            )
    except Exception as fault:
        raise ValueError(
            f"PyTorch cannot translate this network to ONNX: {_first_line(fault.__cause__ or fault)} It may have a form that "
            'can be: of transformers\' models, for one, model.set_attn_implementation("eager").'
        ) from fault
    assert translated is not None  # as it is only with dynamo=False
    return translated.model_proto.SerializeToString()


def check_onnx(calibrated: CalibratedModel, graph: str | os.PathLike[str] | bytes, inputs: Any) -> Check:
    """Run an exported graph in ONNX Runtime, on the CPU, and compare its probabilities with the calibrated model's.

    A copy of the model computes its own on the CPU too: of convolutions on a GPU PyTorch's default precision is less.

    graph    the path of what `export_onnx` wrote, or what `make_onnx` gave
    inputs   in the form of the example that it was made with, any number of rows
    """
    runtime = import_package("onnxruntime")
    if not isinstance(graph, bytes) and not Path(graph).is_file():
        raise FileNotFoundError(f"There is no file {graph}. export_onnx(calibrated, example, path) writes one.")
    content = graph if isinstance(graph, bytes) else os.fspath(graph)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    on_cpu = copy.deepcopy(calibrated).cpu()
    inputs = move_inputs(copy_inputs(inputs), device_of(on_cpu))
    expected, given = on_cpu.predict_proba(inputs).double(), _by_name(on_cpu, inputs)
    wanted = [entry.name for entry in session.get_inputs()]
    if not set(wanted) <= set(given):
        raise ValueError(
            f"The graph takes the inputs {', '.join(wanted)}; here are {', '.join(given)}. Pass inputs in the form of the "
            "example that it was exported with."
        )
    (output,) = session.run(["probabilities"], {name: given[name].numpy() for name in wanted})
    return Check(len(expected), float((torch.from_numpy(output).double() - expected).abs().max()))


def check_sizes(calibrated: CalibratedModel, graph: bytes, inputs: Any) -> list[Check]:
    """Run the graph on one row, on the traced batch and on a larger one: a trace may fix the batch size."""
    rows = count_rows(inputs)
    checks = [check_onnx(calibrated, graph, take_rows(inputs, rows, count)) for count in sorted({1, rows, rows + 2})]
    for one in checks:
        if not one.passed:
            raise ValueError(
                f"The exported graph does not compute what the model computes: on {one.rows} rows, probabilities differ by "
                f"up to {one.difference:.1e}; expected at most {TOLERANCE:.0e}. Does the network draw at random, or "
                "compute with values that it keeps in Python? Tracing fixes such values in the graph. Nothing was written."
            )
    return checks


class _Graph(nn.Module):
    """The calibrated model called with one argument, the inputs as a loader gives them: logits, or also probabilities."""

    def __init__(self, calibrated: CalibratedModel, probabilities: bool = False) -> None:
        super().__init__()
        self.calibrated, self.probabilities = calibrated, probabilities

    def forward(self, inputs: Any) -> Tensor | tuple[Tensor, Tensor]:
        positional, named = call_arguments(inputs)
        logits = self.calibrated(*positional, **named)
        return (logits, logits.softmax(-1)) if self.probabilities else logits


def _trace(module: nn.Module, example: Any) -> torch.export.ExportedProgram:
    shapes = (_free_axes(example, torch.export.Dim.DYNAMIC, torch.export.Dim.AUTO),)
    try:
        with _exporting(FutureWarning), torch.no_grad():
            return torch.export.export(module, (example,), dynamic_shapes=shapes)
    except Exception as fault:
        raise ValueError(
            f"torch.export cannot trace this network for any number of rows: {_first_line(fault)} Common causes: a Python "
            "branch on the values of a tensor, or a number of rows written into a reshape."
        ) from fault


def _first_line(fault: BaseException) -> str:
    return next((line.strip() for line in str(fault).splitlines() if line.strip()), type(fault).__name__)


def _prepared(calibrated: CalibratedModel, example: Any) -> Any:
    """Plain containers of tensors, on the model's device, of at least two rows: from one row a graph learns "one row"."""
    if calibrated.networks[0].dropout:
        raise ValueError(
            "MC dropout cannot be exported: it draws anew in every call. Calibrate and export the plain network, or serve "
            "the calibrated model with PyTorch."
        )
    example = move_inputs(copy_inputs(example), device_of(calibrated))
    rows = count_rows(example)
    if rows == 0:
        raise ValueError("The example holds no rows. Expected inputs as a loader gives them: a tensor, a tuple, a mapping.")
    if isinstance(example, Mapping) and not set(LABEL_KEYS).isdisjoint(example):
        raise ValueError(f"The example holds labels: its keys are {', '.join(example)}. Pass the inputs alone.")
    return take_rows(example, rows, 2) if rows == 1 else example


def _free_axes(example: Any, batch: Any, tokens: Any) -> Any:
    """For each input which axes may vary, and as what: None where none may."""
    rows = count_rows(example)

    def free(values: Any) -> dict[int, Any] | None:
        if not isinstance(values, Tensor) or values.dim() == 0 or len(values) != rows:
            return None
        holds_tokens = values.dim() == 2 and not values.is_floating_point()
        return {0: batch, 1: tokens} if holds_tokens else {0: batch}

    if isinstance(example, Mapping):
        return {name: free(values) for name, values in example.items()}
    return tuple(map(free, example)) if isinstance(example, tuple) else free(example)


def _by_name(calibrated: CalibratedModel, inputs: Any) -> dict[str, Tensor]:
    """The tensors among the inputs, named as the network's `forward` names them, in order."""
    positional, named = call_arguments(inputs)
    parameters = inspect.signature(calibrated.networks[0].network.network.forward).parameters
    names = [name for name, each in parameters.items() if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    names += [f"input_{index}" for index in range(len(names), len(positional))]
    everything = {**dict(zip(names, positional, strict=False)), **named}
    return {name: values for name, values in everything.items() if isinstance(values, Tensor)}


@contextmanager
def _exporting(category: type[Warning]) -> Iterator[None]:
    """What PyTorch's exporters need of the whole process; other threads that want it have to wait.

    They warn about themselves: their own deprecations, torchvision's absence, axes that share a name. Before torch 2.10 an
    encoder's fast path with a mask would pack its rows, which cannot be traced.
    """
    log = logging.getLogger("torch.onnx")
    with process_lock, warnings.catch_warnings():
        level, fast_path = log.level, mha.get_fastpath_enabled()
        try:
            log.setLevel(logging.ERROR)
            mha.set_fastpath_enabled(False)
            warnings.simplefilter("ignore", category)
            yield
        finally:
            log.setLevel(level)
            mha.set_fastpath_enabled(fast_path)


def import_package(package: str) -> Any:
    with OptionalImport("export", "ONNX"):
        return import_module(package)
