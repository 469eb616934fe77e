"""The calibrated model as one graph: torch.export, and ONNX in ONNX Runtime, must give what PyTorch gives."""

import io
import logging
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import lates
from lates.export import OPSET, TOLERANCE, Check, check_onnx, export_onnx, export_program, make_onnx
from tests.conftest import Problem, draw_patterns
from tests.test_model import with_weights

Both = tuple[lates.Features, lates.Features]
BLOCKS = ["stages.0", "stages.1", "stages.2"]


def voting(problem: Problem, features: Both, weights: list[float], rank: int = 0) -> lates.CalibratedModel:
    """The problem's network with these weights for its three probes and its head."""
    return with_weights(problem.model, features, dict(zip([*BLOCKS, "head"], weights, strict=True)), rank)


def operations(program: torch.export.ExportedProgram) -> Counter[str]:
    return Counter(str(node.target) for node in program.graph.nodes if node.op == "call_function")


def assert_same(program: torch.export.ExportedProgram, calibrated: lates.CalibratedModel, inputs: Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(program.module()(inputs), calibrated(inputs), atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def all_vote(problem: Problem, features: Both) -> lates.CalibratedModel:
    return voting(problem, features, [0.4, 0.2, 0.3, 0.8])


@pytest.fixture(scope="module")
def file(all_vote: lates.CalibratedModel, problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ONNX file made from a single image."""
    path = tmp_path_factory.mktemp("export") / "network.onnx"
    export_onnx(all_vote, problem.images[:1], path)
    return path


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_program_takes_any_number_of_rows_however_many_the_example_had(
    all_vote: lates.CalibratedModel, problem: Problem, rows: int
) -> None:
    program = export_program(all_vote, problem.images[:rows])
    for other in (1, 2, 37):
        assert_same(program, all_vote, problem.images[:other])


def test_a_program_can_be_saved_and_leaves_the_model_as_it_was(
    all_vote: lates.CalibratedModel, problem: Problem
) -> None:
    before = all_vote.predict_proba(problem.images)
    stream = io.BytesIO()
    torch.export.save(export_program(all_vote, problem.images[:4].numpy()), stream)
    stream.seek(0)
    assert_same(torch.export.load(stream), all_vote, problem.images)
    assert torch.equal(all_vote.predict_proba(problem.images), before)


@pytest.mark.parametrize(
    ("weights", "linear", "convolutions"),
    [
        ([0.4, 0.2, 0.3, 0.8], 4, 10),
        ([0.4, 0.0, 0.3, 0.8], 3, 10),
        ([0.0, 0.0, 0.0, 0.8], 1, 10),
        ([0.4, 0.2, 0.3, 0.0], 3, 8),
        ([0.4, 0.0, 0.0, 0.0], 1, 3),
        ([0.0, 0.0, 0.0, 0.0], 1, 10),
    ],
)
def test_members_without_weight_are_not_in_the_program(
    problem: Problem, features: Both, weights: list[float], linear: int, convolutions: int
) -> None:
    """Nor is what of the network served them alone: a stem, then blocks of two, two, three and two convolutions."""
    calibrated = voting(problem, features, weights)
    program = export_program(calibrated, problem.images[:2])
    found = operations(program)
    assert found["aten.linear.default"] == linear
    assert found["aten.conv2d.default"] == convolutions
    members = calibrated.members(problem.images[:9])
    assert isinstance(members, Tensor)
    voting_weights = torch.tensor([calibrated.weights[name] for name in calibrated.member_names])
    torch.testing.assert_close(program.module()(problem.images[:9]), members @ voting_weights, atol=1e-4, rtol=0)


def test_members_without_weight_are_not_in_the_onnx_file(problem: Problem, features: Both, tmp_path: Path) -> None:
    path = tmp_path / "early.onnx"
    calibrated = voting(problem, features, [0.0, 0.7, 0.0, 0.0], rank=3)
    export_onnx(calibrated, problem.images[:2], path)
    found = Counter(node.op_type for node in onnx.load(path).graph.node)
    assert found["MatMul"] + found["Gemm"] == 2, "of the one probe, of low rank"
    assert found["Conv"] == 5
    assert check_onnx(calibrated, path, problem.images).passed


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
    assert check == Check(rows, check.difference, True)
    assert check.difference < TOLERANCE
    assert check.passed


def test_the_check_measures_against_the_model_that_it_is_given(
    file: Path, all_vote: lates.CalibratedModel, problem: Problem, features: Both
) -> None:
    other = voting(problem, features, [0.0, 0.0, 0.0, 0.1])
    check = check_onnx(other, file, problem.images)
    gap = (other.predict_proba(problem.images) - all_vote.predict_proba(problem.images)).abs().max()
    assert check.difference == pytest.approx(float(gap), abs=1e-5)
    assert not check.same_top_class
    assert not check.passed
    surer = voting(problem, features, [4.0, 2.0, 3.0, 8.0])
    gap = (surer.predict_proba(problem.images) - all_vote.predict_proba(problem.images)).abs().max()
    assert check_onnx(surer, file, problem.images).difference == pytest.approx(float(gap), abs=1e-5)
    nearly = voting(problem, features, [0.4, 0.2, 0.3, 0.801])
    assert not check_onnx(nearly, file, problem.images).passed, "a thousandth of one weight is beyond rounding"


def test_a_check_passes_only_with_the_same_top_classes_and_within_the_tolerance() -> None:
    assert Check(3, TOLERANCE, True).passed
    assert not Check(3, TOLERANCE, False).passed
    assert not Check(3, 2 * TOLERANCE, True).passed


def test_a_model_too_large_for_one_file_is_refused(
    all_vote: lates.CalibratedModel, problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(values.nbytes for values in all_vote.state_dict().values())
    monkeypatch.setattr("lates.export.LARGEST_FILE", size - 1)
    with pytest.raises(ValueError, match=r"takes 0\.0 GiB; a single ONNX file holds at most 2\. Use export_program"):
        export_onnx(all_vote, problem.images[:2], tmp_path / "network.onnx")


def test_an_ensemble_is_one_graph(ensemble: list[nn.Module], problem: Problem, tmp_path: Path) -> None:
    calibrated = lates.calibrate(
        ensemble, train=problem.train, holdout=problem.holdout, budget=None, views=None, progress=False
    )
    export_onnx(calibrated, problem.images[:2], tmp_path / "ensemble.onnx")
    assert check_onnx(calibrated, tmp_path / "ensemble.onnx", problem.images).passed
    assert_same(export_program(calibrated, problem.images[:2]), calibrated, problem.images)


def test_one_logit_gives_two_columns() -> None:
    rows = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    labels = (rows[:, 0] * rows[:, 1] > 0).long()
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    train, holdout = [(rows[:100], labels[:100])], [(rows[100:], labels[100:])]
    calibrated = lates.calibrate(model, train=train, holdout=holdout, budget=None, progress=False)
    program = export_program(calibrated, rows[:1])
    assert program.module()(rows).shape == (200, 2)
    assert_same(program, calibrated, rows)


def test_the_whole_graph_compiles(all_vote: lates.CalibratedModel, problem: Problem) -> None:
    """Without inductor, whose code `test_compile.py` tries: here only that nothing breaks the graph."""
    torch._dynamo.reset()
    compiled = torch.compile(all_vote, fullgraph=True, backend="aot_eager", dynamic=True)
    with torch.no_grad():
        for rows in (5, 8):
            torch.testing.assert_close(compiled(problem.images[:rows]), all_vote(problem.images[:rows]))
    predict = torch.compile(all_vote.predict_proba, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(predict(problem.images), all_vote.predict_proba(problem.images))


def test_mc_dropout_is_refused(problem: Problem) -> None:
    sampled = lates.mc_dropout(problem.model, samples=2)
    calibrated = lates.calibrate(sampled, holdout=problem.holdout, blocks=[], progress=False)
    with pytest.raises(ValueError, match="MC dropout cannot be exported: it draws anew in every call"):
        export_program(calibrated, problem.images[:2])


def test_an_example_without_rows_or_with_labels_is_refused(all_vote: lates.CalibratedModel, problem: Problem) -> None:
    for nothing in (problem.images[:0], torch.tensor(1.0), {}, "images"):
        with pytest.raises(ValueError, match=r"The example holds no rows\. Expected inputs as a loader gives them"):
            export_program(all_vote, nothing)
    with pytest.raises(
        ValueError, match=r"The example holds labels: its keys are images, labels\. Pass the inputs alone"
    ):
        export_program(all_vote, {"images": problem.images, "labels": problem.labels})


class FixedRows(nn.Module):
    """Writes its number of rows into a reshape, as many hand-made networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(self.body(rows).reshape(5, 4))


def test_what_cannot_be_traced_is_said_and_no_file_is_touched(tmp_path: Path) -> None:
    rows, labels = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1])
    calibrated = lates.calibrate(FixedRows().eval(), holdout=[(rows, labels)], blocks=[], progress=False)
    path = tmp_path / "network.onnx"
    path.write_text("what was there before")
    with pytest.raises(
        ValueError, match=r"cannot trace this network for any number of rows: .* written into a reshape"
    ):
        export_onnx(calibrated, rows, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["network.onnx"]
    assert path.read_text() == "what was there before"


class Scaled(nn.Module):
    """Takes what it likes: rows, a scale that is no row, a switch."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, *inputs: Any) -> Tensor:
        rows, scale, centred = inputs
        return self.head(self.body(rows - rows.mean(1, keepdim=True) if centred else rows) * scale)


@pytest.mark.parametrize("scale", [torch.tensor(2.0), torch.tensor([0.5, 1.0, 1.5, 2.0])], ids=["number", "vector"])
def test_inputs_that_are_no_rows_stay_as_they_are(scale: Tensor, tmp_path: Path) -> None:
    rows = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    holdout = [(rows, scale, True, torch.arange(9) % 3)]
    calibrated = lates.calibrate(Scaled().eval(), holdout=holdout, blocks=[], progress=False)
    program = export_program(calibrated, (rows[:1], scale, True)).module()
    with torch.no_grad():
        torch.testing.assert_close(program((rows, scale, True)), calibrated(rows, scale, True))
    export_onnx(calibrated, (rows[:3], scale, True), tmp_path / "scaled.onnx")
    assert check_onnx(calibrated, tmp_path / "scaled.onnx", (rows, scale, True)).passed
    session = onnxruntime.InferenceSession(str(tmp_path / "scaled.onnx"))
    assert [entry.name for entry in session.get_inputs()] == ["input_0", "input_1"]


class Either(FixedRows):
    """Takes its rows under one of two names."""

    def forward(self, rows: Tensor | None = None, others: Tensor | None = None) -> Tensor:
        return self.head(self.body(others if rows is None else rows))


def test_inputs_of_another_form_than_the_example_s_are_named() -> None:
    rows, labels = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1])
    calibrated = lates.calibrate(Either().eval(), holdout=[(rows, labels)], blocks=[], progress=False)
    graph = make_onnx(calibrated, {"rows": rows})
    assert check_onnx(calibrated, graph, rows).passed
    with pytest.raises(
        ValueError, match=r"The graph takes the inputs rows; here are others\. Pass inputs in the form of"
    ):
        check_onnx(calibrated, graph, {"others": rows})


class Particular(FixedRows):
    """Works in place, and asserts something of its inputs: both are calls whose result nobody reads."""

    def forward(self, rows: Tensor) -> Tensor:
        torch.ops.aten._assert_async.msg((rows < 100).all(), "too large")
        hidden = self.body(rows)
        hidden[:, :2].mul_(2.0)
        return self.head(hidden)


def test_what_is_done_in_place_and_what_is_asserted_stay_in_the_program(seeded: None) -> None:
    rows, model = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), Particular().eval()
    labels = model(rows).argmax(1)
    labels[:5] = torch.arange(5) % 3
    calibrated = lates.calibrate(model, holdout=[(rows, labels)], blocks=[], progress=False)
    assert calibrated.weights["head"] > 0
    program = export_program(calibrated, rows)
    assert_same(program, calibrated, rows)
    with pytest.raises(RuntimeError, match="too large"):
        program.module()(1000 * rows)


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
    tokens, model = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(0)), Attentive().eval()
    tokens[:3, 3:] = 0
    labels = model(tokens).argmax(1)
    calibrated = lates.calibrate(model, holdout=[(tokens, labels)], blocks=[], progress=False)
    assert check_onnx(calibrated, make_onnx(calibrated, tokens), tokens).passed
    assert torch.backends.mha.get_fastpath_enabled()
    assert logging.getLogger("torch.onnx").level == logging.INFO


class Bessel(FixedRows):
    """Of any number of rows, but with a function that ONNX does not know."""

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(torch.special.bessel_j0(self.body(rows)))


def test_what_onnx_does_not_know_is_said(tmp_path: Path) -> None:
    rows, labels = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1])
    calibrated = lates.calibrate(Bessel().eval(), holdout=[(rows, labels)], blocks=[], progress=False)
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
    with pytest.raises(ImportError, match=r'needs the package onnxruntime.*Run: pip install "lates\[export\]"'):
        check_onnx(all_vote, file, problem.images)
    with pytest.raises(ImportError, match=r'needs the package onnxscript.*Run: pip install "lates\[export\]"'):
        export_onnx(all_vote, problem.images[:2], tmp_path / "network.onnx")


def test_numpy_in_numpy_out_is_all_that_serving_needs(
    file: Path, all_vote: lates.CalibratedModel, problem: Problem
) -> None:
    session = onnxruntime.InferenceSession(str(file))
    logits, probabilities = session.run(None, {"images": problem.images[:7].numpy()})
    assert isinstance(probabilities, np.ndarray)
    assert isinstance(logits, np.ndarray)
    np.testing.assert_allclose(probabilities, all_vote.predict_proba(problem.images[:7]).numpy(), atol=1e-5)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    assert (logits.argmax(1) == probabilities.argmax(1)).all()
