"""The calibrated model in ONNX Runtime: it must give what PyTorch gives."""

import logging
import sys
from collections import Counter
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import lates
from lates.export import OPSET, check_onnx, export_onnx, export_program, make_onnx
from tests.conftest import Problem, draw_patterns
from tests.test_export import Both, FixedRows, assert_same, of_rows, voting


@pytest.fixture(scope="module")
def all_vote(problem: Problem, features: Both) -> lates.CalibratedModel:
    return voting(problem, features, [0.4, 0.2, 0.3, 0.8])


@pytest.fixture(scope="module")
def file(all_vote: lates.CalibratedModel, problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ONNX file made from a single image."""
    path = tmp_path_factory.mktemp("export") / "network.onnx"
    export_onnx(all_vote, problem.images[:1], path)
    return path


def test_an_onnx_file_stands_alone_and_says_what_it_takes_and_gives(file: Path, problem: Problem) -> None:
    assert [path.name for path in file.parent.iterdir()] == ["network.onnx"]
    model = onnx.load(file)
    onnx.checker.check_model(model, full_check=True)
    assert [entry.version for entry in model.opset_import if entry.domain == ""] == [OPSET]
    session = onnxruntime.InferenceSession(str(file))
    assert [(entry.name, entry.shape) for entry in session.get_inputs()] == [("images", ["batch", 3, 8, 8])]
    outputs = [(entry.name, entry.shape) for entry in session.get_outputs()]
    assert outputs == [("logits", ["batch", 10]), ("probabilities", ["batch", 10])]
    found = Counter(node.op_type for node in model.graph.node)
    assert found["MatMul"] + found["Gemm"] == 4, "three probes and the head"


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 60), seed=st.integers(0, 1000), scale=st.floats(0.01, 3))
def test_onnx_runtime_gives_what_pytorch_gives(
    file: Path, all_vote: lates.CalibratedModel, rows: int, seed: int, scale: float
) -> None:
    images = scale * draw_patterns(rows, 10, seed)[0]
    check = check_onnx(all_vote, file, images)
    assert check.rows == rows
    assert check.difference < 1e-5
    assert check.passed


def test_the_check_measures_against_the_model_that_it_is_given(
    file: Path, all_vote: lates.CalibratedModel, problem: Problem, features: Both
) -> None:
    other = voting(problem, features, [0.0, 0.0, 0.0, 0.1])
    check = check_onnx(other, file, problem.images)
    gap = (other.predict_proba(problem.images) - all_vote.predict_proba(problem.images)).abs().max()
    assert check.difference == pytest.approx(float(gap), abs=1e-5)
    assert not check.passed
    surer = voting(problem, features, [4.0, 2.0, 3.0, 8.0])
    gap = (surer.predict_proba(problem.images) - all_vote.predict_proba(problem.images)).abs().max()
    assert check_onnx(surer, file, problem.images).difference == pytest.approx(float(gap), abs=1e-5)
    nearly = voting(problem, features, [0.4, 0.2, 0.3, 0.801])
    assert not check_onnx(nearly, file, problem.images).passed, "a thousandth of one weight is beyond rounding"


def test_a_model_too_large_for_one_file_is_refused(
    all_vote: lates.CalibratedModel, problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(values.nbytes for values in [*all_vote.parameters(), *all_vote.buffers()])
    monkeypatch.setattr("lates.export.LARGEST_FILE", size - 1)
    with pytest.raises(ValueError, match=r"takes 0\.0 GiB; a single ONNX file holds at most 2\. Use export_program"):
        export_onnx(all_vote, problem.images[:2], tmp_path / "network.onnx")


class Either(FixedRows):
    """Takes its rows under one of two names."""

    def forward(self, rows: Tensor | None = None, others: Tensor | None = None) -> Tensor:
        return self.head(self.body(others if rows is None else rows))


def test_inputs_of_another_form_than_the_example_s_are_named() -> None:
    calibrated, rows = of_rows(Either())
    graph = make_onnx(calibrated, {"rows": rows})
    assert check_onnx(calibrated, graph, rows).passed
    with pytest.raises(ValueError, match=r"The graph takes the inputs rows; here are others\. Pass inputs in the form of"):
        check_onnx(calibrated, graph, {"others": rows})


class Attentive(nn.Module):
    """In evaluation its layers would take one call of PyTorch's own that ONNX does not know, on rows packed by the mask."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        padding = tokens.abs().sum(2) == 0
        return self.head(self.layers(tokens, src_key_padding_mask=padding)[:, 0])


def test_attention_is_written_out_and_nothing_of_the_export_s_ways_stays(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="torch.onnx")
    tokens, model = torch.randn(50, 5, 8, generator=torch.Generator().manual_seed(0)), Attentive().eval()
    tokens[:20, 3:] = 0
    labels = model(tokens).argmax(1)
    labels[15:25] = torch.arange(10) % 3
    calibrated = lates.calibrate(model, holdout=[(tokens, labels)], blocks=[], progress=False)
    assert 1 < calibrated.weights["head"] < 100, "with no label wrong it would grow until it magnifies rounding"
    assert check_onnx(calibrated, make_onnx(calibrated, tokens), tokens).passed
    assert torch.backends.mha.get_fastpath_enabled()
    assert logging.getLogger("torch.onnx").level == logging.INFO


class Bessel(FixedRows):
    """Of any number of rows, but with a function that ONNX does not know."""

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(torch.special.bessel_j0(self.body(rows)))


def test_what_onnx_does_not_know_is_said(tmp_path: Path) -> None:
    calibrated, rows = of_rows(Bessel())
    assert_same(export_program(calibrated, rows), calibrated, rows[:3])
    with pytest.raises(ValueError, match=r"PyTorch cannot translate this network to ONNX: .*bessel_j0"):
        export_onnx(calibrated, rows, tmp_path / "network.onnx")
    assert list(tmp_path.iterdir()) == []


def test_wrong_paths_are_said(file: Path, all_vote: lates.CalibratedModel, problem: Problem, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        export_onnx(all_vote, "no images, which is found later", tmp_path / "none" / "network.onnx")
    with pytest.raises(FileNotFoundError, match=r"There is no file .*none.onnx. export_onnx"):
        check_onnx(all_vote, tmp_path / "none.onnx", problem.images)


def test_a_missing_package_names_its_extra(
    file: Path, all_vote: lates.CalibratedModel, problem: Problem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for package in ("onnxruntime", "onnxscript"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r'needs onnxruntime.*Run: pip install "\.\[export\]"'):
        check_onnx(all_vote, file, problem.images)
    with pytest.raises(ImportError, match=r'needs onnxscript.*Run: pip install "\.\[export\]"'):
        export_onnx(all_vote, problem.images[:2], tmp_path / "network.onnx")
