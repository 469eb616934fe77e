"""The calibrated model as a program of torch.export: it must give what the model gives."""

import copy
import io
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import lates
from lates.export import check_onnx, export_onnx, export_program
from tests.conftest import Problem
from tests.model.test_model import with_weights

Both = tuple[lates.Features, lates.Features]
BLOCKS = ["stages.0", "stages.1", "stages.2"]


def voting(problem: Problem, features: Both, weights: list[float], rank: int = 0) -> lates.CalibratedModel:
    """The problem's network with these weights for its three probes and its head."""
    return with_weights(problem.model, features, dict(zip([*BLOCKS, "head"], weights, strict=True)), rank)


def assert_same(program: torch.export.ExportedProgram, calibrated: lates.CalibratedModel, inputs: Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(program.module()(inputs), calibrated(inputs), atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def all_vote(problem: Problem, features: Both) -> lates.CalibratedModel:
    return voting(problem, features, [0.4, 0.2, 0.3, 0.8])


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_program_takes_any_number_of_rows_however_many_the_example_had(
    all_vote: lates.CalibratedModel, problem: Problem, rows: int
) -> None:
    program = export_program(all_vote, problem.images[:rows])
    for other in (1, 2, 37):
        assert_same(program, all_vote, problem.images[:other])


def test_a_program_can_be_saved_and_leaves_the_model_as_it_was(all_vote: lates.CalibratedModel, problem: Problem) -> None:
    before = all_vote.predict_proba(problem.images)
    stream = io.BytesIO()
    torch.export.save(export_program(all_vote, problem.images[:4].numpy()), stream)
    stream.seek(0)
    assert_same(torch.export.load(stream), all_vote, problem.images)
    assert torch.equal(all_vote.predict_proba(problem.images), before)


@pytest.mark.filterwarnings("ignore")  # tracing is deprecated, and warns of branches
def test_a_graph_moves_to_another_device(all_vote: lates.CalibratedModel, problem: Problem) -> None:
    images = problem.images[:4]
    trace: Any = torch.jit.trace(copy.deepcopy(all_vote), (images,))
    for graph in (export_program(all_vote, images).module(), trace):
        assert graph.to("meta")(images.to("meta")).is_meta


@pytest.mark.parametrize(
    ("weights", "linear"),
    [
        ([0.4, 0.2, 0.3, 0.8], 4),
        ([0.4, 0.0, 0.3, 0.8], 3),
        ([0.0, 0.0, 0.0, 0.8], 1),
    ],
)
def test_probes_without_weight_are_not_in_the_program(
    problem: Problem, features: Both, weights: list[float], linear: int
) -> None:
    calibrated = voting(problem, features, weights)
    program = export_program(calibrated, problem.images[:2])
    assert sum(str(node.target) == "aten.linear.default" for node in program.graph.nodes) == linear
    members = calibrated.members(problem.images[:9])
    assert isinstance(members, Tensor)
    voting_weights = torch.tensor([calibrated.weights[name] for name in calibrated.member_names])
    torch.testing.assert_close(program.module()(problem.images[:9]), members @ voting_weights, atol=1e-4, rtol=0)


def test_an_ensemble_is_one_graph(ensemble: list[nn.Module], problem: Problem, tmp_path: Path) -> None:
    calibrated = lates.calibrate(
        ensemble, train=problem.train, holdout=problem.holdout, budget=None, views=None, progress=False
    )
    export_onnx(calibrated, problem.images[:2], tmp_path / "ensemble.onnx")
    assert check_onnx(calibrated, tmp_path / "ensemble.onnx", problem.images).passed
    assert_same(export_program(calibrated, problem.images[:2]), calibrated, problem.images)


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
    with pytest.raises(ValueError, match=r"The example holds labels: its keys are images, labels\. Pass the inputs alone"):
        export_program(all_vote, {"images": problem.images, "labels": problem.labels})


def of_rows(network: nn.Module) -> tuple[lates.CalibratedModel, Tensor]:
    """A network of rows [n, 4] and three classes with its temperature, and the five rows of its hold-out."""
    rows, labels = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1])
    return lates.calibrate(network.eval(), holdout=[(rows, labels)], blocks=[], progress=False), rows


class FixedRows(nn.Module):
    """Writes its number of rows into a reshape, as many hand-made networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(self.body(rows).reshape(5, 4))


def test_what_cannot_be_traced_is_said_and_no_file_is_touched(tmp_path: Path) -> None:
    calibrated, rows = of_rows(FixedRows())
    path = tmp_path / "network.onnx"
    path.write_text("what was there before")
    with pytest.raises(ValueError, match=r"cannot trace this network for any number of rows: .* written into a reshape"):
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
