"""One linear map per block, from features to logits, trained on the training split."""

import torch

from lates.descent import train_by_lbfgs
from lates.features import Features
from lates.linear import TrainedProbe, full_precision
from lates.losses import find_probe_loss
from lates.memory import default_memory
from lates.progress import Progress
from lates.settings import DEFAULT, Settings
from lates.sgd import alike_in_width, train_by_sgd
from lates.standardised import Rows, keep_what_fits

DECAYS = tuple(0.3 * 10.0**-k for k in range(7))
DECAY_WITHOUT_HOLDOUT = 3e-3


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
    block's weight decay is the one best for it; without, it is fixed. Standardised copies of one block's features are kept
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
    probes: dict[str, TrainedProbe] = {}
    for names in [[name] for name in train.blocks] if lbfgs else alike_in_width(train):
        with full_precision(target), torch.no_grad():
            rows = {name: Rows.of(train, name, target, train, settings) for name in names}
            held = rows
            if holdout is not None:
                held = {name: Rows.of(holdout, name, target, train, settings) for name in names}
            keep_what_fits([*rows.values(), *held.values()], memory)
            if lbfgs:
                (name,) = names
                decays = DECAYS if holdout is not None else (DECAY_WITHOUT_HOLDOUT,)
                probes[name] = train_by_lbfgs(rows[name], held[name], objective, decays, settings)
            else:
                probes |= train_by_sgd(rows, held, objective, seed)
        if progress is not None:
            progress("training probes", len(probes), len(train.blocks))
    return {name: probes[name] for name in train.blocks}
