"""A Lightning callback that calibrates the LightningModule, a classifier, at the end of `fit`.

>>> callback = CalibrateAfterFit(train=train_loader, holdout=holdout_loader, path="net.lates.safetensors")
>>> Trainer(callbacks=[callback]).fit(module, train_loader)
>>> callback.calibrated.predict_proba(images)
"""

import os
from collections.abc import Callable, Iterable
from typing import Any

from lates.algorithm import calibrate
from lates.integrations.after_training import calibrate_shards
from lates.integrations.loggers import scalars
from lates.model import CalibratedModel
from lates.runtime import check_target, install_line

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as fault:
    raise ImportError(
        f"lates.integrations.lightning needs Lightning, which does not import ({fault}). {install_line('lightning')}"
    ) from fault


class CalibrateAfterFit(Callback):
    """Calibrates the module, whose `forward` returns logits, with the weights that it has when `fit` ends.

    holdout      loader of rows not used in training; not the validation loader if that selected weights or stopped the fit
    train        loader of the training split, best without random augmentation; None: only temperature scaling
    path         where to save the calibration; None: nowhere
    calibration  the function that calibrates: `lates.calibrate`; with options, `partial(lates.calibrate, blocks=4)`; for a
                 part of the module, `lambda module, **loaders: lates.calibrate(module.net, **loaders)`

    `calibrated` is None until then. Every logger of the trainer gets its `loggers.scalars`. Several processes calibrate
    together, each on its shard of both loaders, with the same result; the first one saves and logs.
    """

    def __init__(
        self,
        *,
        holdout: Iterable[Any],
        train: Iterable[Any] | None = None,
        path: str | os.PathLike[str] | None = None,
        calibration: Callable[..., CalibratedModel] = calibrate,
    ) -> None:
        if path is not None:
            check_target(path)
        self.holdout = holdout
        self.train = train
        self.path = path
        self.calibration = calibration
        self.calibrated: CalibratedModel | None = None

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.calibrated = self._calibrate(pl_module, trainer.global_rank, trainer.world_size)
        if trainer.is_global_zero:
            if self.path is not None:
                self.calibrated.save(self.path)
            for logger in trainer.loggers:
                logger.log_metrics(scalars(self.calibrated), step=trainer.global_step)
        trainer.strategy.barrier("lates")

    def _calibrate(self, module: LightningModule, rank: int, world_size: int) -> CalibratedModel:
        calibrated = calibrate_shards(module, self.train, self.holdout, self.calibration, rank, world_size)
        for part in calibrated.modules():
            if isinstance(part, LightningModule):
                part.trainer = None  # the calibrated copy is kept, copied and exported without the trainer
        return calibrated
