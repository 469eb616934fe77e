"""The `Trainer` of transformers: a callback calibrates the model when training ends, saves it, and logs what it found."""

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


def make_callback(path: Path | None = None) -> CalibrateAfterTraining:
    train, holdout = (trainer_s_loader(draw_texts(200, seed)) for seed in (1, 2))
    return CalibrateAfterTraining(train=train, holdout=holdout, path=path, calibration=CALIBRATE)


def test_callback_calibrates_saves_and_logs_when_training_ends(tmp_path: Path) -> None:
    model = bert()
    callback = make_callback(tmp_path / "bert.lates.safetensors")
    assert callback.calibrated is None
    state, arguments = TrainerState(global_step=7), SimpleNamespace(process_index=0, world_size=1)
    control: Any = None
    callback.on_train_end(arguments, state, control, model=model)  # pyright: ignore[reportArgumentType]
    calibrated = callback.calibrated
    assert calibrated is not None
    assert calibrated.fit.nll <= calibrated.fit.nll_temperature
    assert lates.load(tmp_path / "bert.lates.safetensors", model).weights == calibrated.weights
    assert state.log_history[-1] == {"step": 7, **scalars(calibrated)}


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
