"""What the callbacks of trainers share: calibrate the trained network on every process's shard of the loaders."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from lates.model import CalibratedModel
from lates.network import shard_loader


def calibrate_shards(
    model: nn.Module,
    train: Iterable[Any] | None,
    holdout: Iterable[Any],
    calibration: Callable[..., CalibratedModel],
    rank: int,
    world_size: int,
) -> CalibratedModel:
    """`calibration` of the model; without a training split, of its temperature alone."""
    loaders = {"holdout": holdout} if train is None else {"train": train, "holdout": holdout}
    if world_size > 1:
        loaders = {role: shard_loader(loader, rank, world_size) for role, loader in loaders.items()}
    return calibration(model, **loaders, **({"blocks": []} if train is None else {}))
