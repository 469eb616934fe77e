"""What the callbacks of trainers share: calibrate the trained network on every process's shard of the loaders."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from lates.algorithm import calibrate
from lates.model import CalibratedModel
from lates.network import shard_loaders
from lates.runtime import check_target


@dataclass(kw_only=True, eq=False, repr=False)
class AfterTraining:
    """Takes the loaders before training, calibrates after it. Each callback describes the arguments."""

    holdout: Iterable[Any]
    train: Iterable[Any] | None = None
    path: str | os.PathLike[str] | None = None
    calibration: Callable[..., CalibratedModel] = calibrate
    calibrated: CalibratedModel | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.path is not None:
            check_target(self.path)

    def _calibrate(self, model: nn.Module, rank: int, world_size: int) -> CalibratedModel:
        """Without a training split, of the temperature alone. The first process saves."""
        loaders = {"holdout": self.holdout} if self.train is None else {"train": self.train, "holdout": self.holdout}
        shards = shard_loaders(loaders, rank, world_size)
        self.calibrated = self.calibration(model, **shards, **({"blocks": []} if self.train is None else {}))
        if rank == 0 and self.path is not None:
            self.calibrated.save(self.path)
        return self.calibrated
