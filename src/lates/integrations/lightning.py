"""A Lightning callback that calibrates the LightningModule, a classifier, at the end of `fit`.

>>> callback = CalibrateAfterFit(train=train_loader, holdout=holdout_loader, path="net.lates.safetensors")
>>> Trainer(callbacks=[callback]).fit(module, train_loader)
>>> callback.calibrated.predict_proba(images)
"""

from lates.integrations.after_training import AfterTraining
from lates.integrations.loggers import scalars
from lates.runtime import OptionalImport

with OptionalImport("lightning", "lates.integrations.lightning"):
    from lightning.pytorch import Callback, LightningModule, Trainer


class CalibrateAfterFit(AfterTraining, Callback):
    """Calibrates the module, whose `forward` returns logits, with the weights that it has when `fit` ends.

    holdout      loader of rows not used in training; not the validation loader if that selected weights or stopped the fit
    train        loader of the training split, best without random augmentation; None: only temperature scaling
    path         where to save the calibration; None: nowhere
    calibration  the function that calibrates: `lates.calibrate`; with options, `partial(lates.calibrate, blocks=4)`; for a
                 part of the module, `lambda module, **loaders: lates.calibrate(module.net, **loaders)`

    `calibrated` is None until then. Every logger of the trainer gets its `loggers.scalars`. Several processes calibrate
    together, each on its shard of both loaders, with the same result; the first one saves and logs.
    """

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        calibrated = self._calibrate(pl_module, trainer.global_rank, trainer.world_size)
        for part in calibrated.modules():
            if isinstance(part, LightningModule):
                part.trainer = None  # the calibrated copy is kept, copied and exported without the trainer
        if trainer.is_global_zero:
            for logger in trainer.loggers:
                logger.log_metrics(scalars(calibrated), step=trainer.global_step)
        trainer.strategy.barrier("lates")
