"""One linear map per block, from features to logits, trained on the training split."""

from functools import partial

import torch
from torch import Tensor

from lates.descent import train_by_lbfgs
from lates.features import Features
from lates.lbfgs import PAIRS
from lates.linear import TrainedProbe, full_precision
from lates.losses import find_probe_loss
from lates.memory import default_memory
from lates.progress import Progress
from lates.settings import DEFAULT, Settings
from lates.sgd import alike_in_width, train_by_sgd
from lates.standardised import Rows, keep_what_fits, size_in_bytes
from lates.streams import group_jobs, side_by_side

DECAYS = tuple(0.3 * 10.0**-k for k in range(7))
DECAY_WITHOUT_HOLDOUT = 3e-3
COPIES = 3 * PAIRS
"""Of a probe's weights, about, that its descent holds."""


def train_probes(
    train: Features,
    holdout: Features | None = None,
    *,
    loss: str = "nll",
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
    settings: Settings = DEFAULT,
    memory: int | None = None,
) -> dict[str, TrainedProbe]:
    """Train one probe per block on the training split's features.

    `loss`: "nll" or "brier" ("soft_ece" is for the stack alone; its probes train to the log-loss). With a `holdout` each
    block's weight decay is the one best for it; without, it is fixed. Standardised copies of the features at work are kept
    while they take at most `memory` bytes (default: a share of what is free), otherwise made anew in every reading.
    """
    if holdout is not None and holdout.classes != train.classes:
        raise ValueError(
            f"train has {train.classes} classes and holdout {holdout.classes}: they were extracted from different networks."
        )
    missing = [] if holdout is None else [name for name in train.blocks if name not in holdout.blocks]
    if missing:
        raise ValueError(
            f"holdout lacks the blocks {', '.join(missing)} of train. Extract it with like=, the training features."
        )
    objective = find_probe_loss(loss)
    target = torch.device(device) if device is not None else train.logits.device
    lbfgs = settings.optimiser == "lbfgs"
    if memory is None:
        memory = default_memory(target, train.team.neighbours())
    decays = DECAYS if holdout is not None else (DECAY_WITHOUT_HOLDOUT,)
    probes: dict[str, TrainedProbe] = {}
    for names in _trained_together(train, holdout, target, memory) if lbfgs else alike_in_width(train):
        with full_precision(target), torch.no_grad():
            rows = {name: Rows.of(train, name, target, train, settings) for name in names}
            held = rows
            if holdout is not None:
                held = {name: Rows.of(holdout, name, target, train, settings) for name in names}
            keep_what_fits([*rows.values(), *held.values()], memory)
            if lbfgs:
                jobs = [partial(train_by_lbfgs, rows[name], held[name], objective, decays, settings) for name in names]
                probes |= zip(names, side_by_side(jobs, target, _tensors), strict=True)
            else:
                probes |= train_by_sgd(rows, held, objective, seed)
        if progress is not None:
            progress("training probes", len(probes), len(train.blocks))
    return {name: probes[name] for name in train.blocks}


def _trained_together(train: Features, holdout: Features | None, device: torch.device, memory: int) -> list[list[str]]:
    """Blocks in groups: more than one at a time only in half of the memory, for what is made of a chunk of rows takes some
    too, and by one process alone, for several meet in a fixed order."""
    rows = len(train.labels) + (0 if holdout is None else len(holdout.labels))
    both = rows + COPIES * train.classes
    sizes = {name: size_in_bytes(both, block.shape[1]) for name, block in train.blocks.items()}
    return group_jobs(sizes, memory / 2 if train.team.size == 1 else 0, device)


def _tensors(found: TrainedProbe) -> tuple[Tensor, ...]:
    return found.probe.down, found.probe.bias, found.mean_logits, found.basis
