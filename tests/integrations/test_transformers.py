"""A vision and a text transformer from `transformers`, all the way: batches as its `Trainer` makes them, calibration,
files, graphs. What their blocks are and how they are pooled is in `test_foreign.py`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import BatchEncoding, PreTrainedModel, default_data_collator

import lates
from lates.export import check_onnx, export_onnx, export_program
from lates.integrations.hub import from_pretrained, save_pretrained
from tests.model.test_foreign import CLASSES, bert, draw_images, draw_texts, padded_further, vit, without_labels

MAKERS = {"vit": (vit, draw_images), "bert": (bert, draw_texts)}


@dataclass(frozen=True)
class Case:
    """A network with its calibration, in which a probe votes, and a test batch without labels."""

    make: Callable[[], PreTrainedModel]
    model: PreTrainedModel
    calibrated: lates.CalibratedModel
    inputs: dict[str, Tensor]


def rows_of(batches: Iterator[dict[str, Tensor]]) -> Any:
    """A list of single rows with a "label", as datasets hold them."""
    return [
        {("label" if name == "labels" else name): values[row] for name, values in batch.items()}
        for batch in batches
        for row in range(20)
    ]


def trainer_s_loader(batches: Iterator[dict[str, Tensor]]) -> DataLoader:
    """Made as `Trainer` makes its own: twenty rows at a time, put together by the default collator."""
    return DataLoader(rows_of(batches), batch_size=20, collate_fn=default_data_collator)


@pytest.fixture(scope="module", params=list(MAKERS))
def case(request: pytest.FixtureRequest) -> Case:
    make, draw = MAKERS[request.param]
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        model = make()
    train, holdout = trainer_s_loader(draw(200, 1)), trainer_s_loader(draw(200, 2))
    first = next(iter(train))
    assert isinstance(first, Mapping)
    assert "labels" in first
    calibrated = lates.calibrate(model, train=train, holdout=holdout, budget=None, views=None, progress=False)
    assert len(calibrated.member_names) > 1, "a probe must vote"
    return Case(make, model, calibrated, without_labels(next(draw(20, 3))))


def test_calibrated_model_takes_the_tokenizers_mapping(case: Case) -> None:
    encoded = BatchEncoding(case.inputs)
    assert not isinstance(encoded, dict)
    assert torch.equal(case.calibrated.predict_proba(encoded), case.calibrated.predict_proba(case.inputs))
    exported = export_program(case.calibrated, encoded).module()(dict(encoded))
    assert exported.shape == (20, CLASSES)


def test_network_and_calibration_load_from_their_folders(case: Case, tmp_path: Path) -> None:
    case.model.save_pretrained(tmp_path / "network")
    save_pretrained(case.calibrated, tmp_path / "network" / "lates")
    again = type(case.model).from_pretrained(tmp_path / "network")
    calibrated = from_pretrained(tmp_path / "network" / "lates", again)
    torch.testing.assert_close(calibrated.predict_proba(case.inputs), case.calibrated.predict_proba(case.inputs))
    case.calibrated.save(tmp_path / "one.lates.safetensors")
    assert lates.load(tmp_path / "one.lates.safetensors", again).weights == calibrated.weights


def test_exported_program_takes_mappings_of_any_size_and_order(case: Case) -> None:
    example = {name: values[:2] for name, values in case.inputs.items()}
    program = export_program(case.calibrated, example).module()
    assert isinstance(program, torch.nn.Module)
    with torch.no_grad():
        torch.testing.assert_close(program(case.inputs), case.calibrated(**case.inputs))
        if torch.__version__ >= "2.10":  # before, PyTorch's programs held the caller to the example's order
            turned = dict(reversed(case.inputs.items()))
            torch.testing.assert_close(program(turned), case.calibrated(**case.inputs))
        if "input_ids" in case.inputs:
            longer = padded_further(case.inputs, 7)
            torch.testing.assert_close(program(longer), case.calibrated(**longer))


def test_onnx_runtime_agrees_with_pytorch(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    export_onnx(case.calibrated, {name: values[:1] for name, values in case.inputs.items()}, path)
    assert check_onnx(case.calibrated, path, case.inputs).passed
    assert check_onnx(case.calibrated, path, dict(reversed(case.inputs.items()))).passed
    session = onnxruntime.InferenceSession(str(path))
    taken = {entry.name: entry.shape for entry in session.get_inputs()}
    if "input_ids" in case.inputs:
        assert taken == {"input_ids": ["batch", "tokens"], "attention_mask": ["batch", "tokens"]}
        for extra in (1, 30):
            assert check_onnx(case.calibrated, path, padded_further(case.inputs, extra)).passed
        with pytest.raises(ValueError, match="takes the inputs input_ids, attention_mask; here are input_ids"):
            check_onnx(case.calibrated, path, {"input_ids": case.inputs["input_ids"]})
    else:
        assert taken == {"pixel_values": ["batch", 3, 16, 16]}
