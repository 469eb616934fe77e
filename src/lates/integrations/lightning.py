"""A Lightning callback that calibrates at the end of `fit`: the LightningModule goes in as the classifier that it is.

>>> callback = CalibrateAfterFit(train=train_loader, holdout=holdout_loader, path="net.lates.safetensors")
>>> Trainer(callbacks=[callback]).fit(module, train_loader)
>>> callback.calibrated.predict_proba(images)
"""

import os
from collections.abc import Callable, Iterable
from typing import Any

from lates.algorithm import calibrate
from lates.integrations.loggers import scalars
from lates.model import CalibratedModel
from lates.storage import check_target

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as fault:
    raise ImportError(
        f"lates.integrations.lightning needs Lightning, which does not import ({fault}). "
        'Run: pip install "lates[lightning]"'
    ) from fault


class CalibrateAfterFit(Callback):
    """Calibrates the module, whose `forward` returns logits, with the weights that it has when `fit` ends.

    holdout      loader of rows that trained nothing; not the validation loader if that chose the weights or stopped the fit
    train        loader of the training split, best without random augmentation; None: temperature scaling alone
    path         where to save the calibration; None: nowhere
    calibration  what calibrates: `lates.calibrate`, or that with options, `partial(lates.calibrate, blocks=4)`, or for a
                 part of the module, `lambda module, **loaders: lates.calibrate(module.net, **loaders)`

    `calibrated` is None until then. Every logger of the trainer gets `loggers.scalars` of it. Several processes calibrate
    together, each on its share of both loaders, and end with the same; the first one saves and logs.
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
        self.calibrated = self._calibrate(pl_module)
        if trainer.is_global_zero:
            if self.path is not None:
                self.calibrated.save(self.path)
            for logger in trainer.loggers:
                logger.log_metrics(scalars(self.calibrated), step=trainer.global_step)
        trainer.strategy.barrier("lates")

    def _calibrate(self, module: LightningModule) -> CalibratedModel:
        if self.train is None:
            calibrated = self.calibration(module, holdout=self.holdout, blocks=[])
        else:
            calibrated = self.calibration(module, train=self.train, holdout=self.holdout)
        for part in calibrated.modules():
            if isinstance(part, LightningModule):
                part.trainer = None  # the copy outlives the trainer, and must be copied and exported without it
        return calibrated
