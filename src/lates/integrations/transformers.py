"""A callback of transformers' `Trainer` that calibrates the model when training ends.

>>> callback = CalibrateAfterTraining(train=train_loader, holdout=holdout_loader, path="net.lates.safetensors")
>>> Trainer(model, arguments, train_dataset=rows, callbacks=[callback]).train()
>>> callback.calibrated.predict_proba(inputs)
"""

from typing import Any

from lates.integrations.after_training import AfterTraining
from lates.integrations.loggers import scalars
from lates.runtime import OptionalImport

with OptionalImport("transformers", "lates.integrations.transformers"):
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class CalibrateAfterTraining(AfterTraining, TrainerCallback):
    """Calibrates the model with the weights that it has when training ends: the best ones, with `load_best_model_at_end`.

    holdout      loader of rows not used in training; not the evaluation rows if these selected weights or stopped training
    train        loader of the training split; None: only temperature scaling
    path         where to save the calibration; None: nowhere
    calibration  the function that calibrates: `lates.calibrate`; with options, `partial(lates.calibrate, tokenizer=tokenizer)`

    Loaders are plain ones, `DataLoader(rows, collate_fn=trainer.data_collator)`. `calibrated` is None until training ended;
    then its `loggers.scalars` are the last entry of `trainer.state.log_history`. Several processes calibrate together, each on
    its shard of both loaders, with the same result; the first one saves.
    """

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        calibrated = self._calibrate(kwargs["model"], args.process_index, args.world_size)
        state.log_history.append({"step": state.global_step, **scalars(calibrated)})
