"""The `Trainer` of transformers: a callback calibrates the model when training ends, saves it, and logs what it found."""

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainerState, TrainingArguments, default_data_collator

import lates
from lates.integrations.loggers import scalars
from lates.integrations.transformers import CalibrateAfterTraining
from tests.integrations.test_transformers import rows_of, trainer_s_loader
from tests.model.test_foreign import bert, draw_texts, without_labels

CALIBRATE = partial(lates.calibrate, budget=None, progress=False)


def make_callback(path: Path | None = None, **options: Any) -> CalibrateAfterTraining:
    loaders: dict[str, Any] = {"train": trainer_s_loader(draw_texts(200, 1)), **options}
    holdout = trainer_s_loader(draw_texts(200, 2))
    return CalibrateAfterTraining(holdout=holdout, path=path, calibration=CALIBRATE, **loaders)


def end_training(callback: CalibrateAfterTraining, model: torch.nn.Module) -> TrainerState:
    """As the trainer ends: in one process, its first."""
    state, arguments = TrainerState(global_step=7), SimpleNamespace(process_index=0, world_size=1)
    control: Any = None
    callback.on_train_end(arguments, state, control, model=model)  # pyright: ignore[reportArgumentType]
    return state


def test_callback_calibrates_saves_and_logs_when_training_ends(tmp_path: Path) -> None:
    model = bert()
    callback = make_callback(tmp_path / "bert.lates.safetensors")
    assert callback.calibrated is None
    state = end_training(callback, model)
    calibrated = callback.calibrated
    assert calibrated is not None
    assert calibrated.fit.nll <= calibrated.fit.nll_temperature
    assert lates.load(tmp_path / "bert.lates.safetensors", model).weights == calibrated.weights
    assert state.log_history[-1] == {"step": 7, **scalars(calibrated)}


def test_without_a_training_split_the_temperature_alone_is_fitted() -> None:
    callback = make_callback(train=None)
    end_training(callback, bert())
    assert callback.calibrated is not None
    assert list(callback.calibrated.weights) == ["head"]


def test_a_path_that_cannot_be_written_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        make_callback(tmp_path / "missing" / "bert.lates.safetensors")


def test_the_trainer_calls_it_with_the_trained_weights(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate")
    model, callback = bert(), make_callback()
    arguments = TrainingArguments(
        str(tmp_path), max_steps=5, per_device_train_batch_size=1, use_cpu=True, report_to="none", disable_tqdm=True
    )
    rows = rows_of(draw_texts(20, 3))
    trainer = Trainer(model, arguments, train_dataset=rows, data_collator=default_data_collator, callbacks=[callback])
    trainer.train()
    assert callback.calibrated is not None
    inputs = without_labels(next(draw_texts(20, 4)))
    direct = CALIBRATE(model, train=callback.train, holdout=callback.holdout)
    torch.testing.assert_close(callback.calibrated(**inputs), direct(**inputs))
    assert trainer.state.log_history[-1]["lates/holdout_rows"] == 200


def test_missing_transformers_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "lates.integrations.transformers")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r'pip install "lates\[transformers\]"'):
        __import__("lates.integrations.transformers")
