"""Algorithm 1 of the paper: probes on the blocks, trained on the training split; weights for all, fitted on the hold-out."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from lates.model import CalibratedModel
from lates.network import (
    Draws,
    Features,
    Reading,
    Views,
    check_loader,
    device_of,
    extract_draws,
    read_draws,
    refuse_overlap,
    warn_of_overlap,
)
from lates.probes import check_budget, holdout_accuracies, member_logits, plan_budget, train_probes
from lates.runtime import Progress, Run
from lates.settings import DEFAULT, Settings
from lates.stack import check_loss, fit_members


def calibrate(
    model: nn.Module | Sequence[nn.Module],
    *,
    train: Iterable[Any] | None = None,
    holdout: Iterable[Any],
    blocks: Sequence[str] | int | None = None,
    loss: str = "nll",
    budget: float | None = 0.01,
    views: Views = "auto",
    passes: int | None = None,
    holdout_views: Views = None,
    memory: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool | Progress = True,
    settings: Settings = DEFAULT,
    distributed: bool = True,
) -> CalibratedModel:
    """Calibrate a trained classifier with all of its layers; the model itself is left as it was.

    model     an nn.Module that returns logits; `mc_dropout(model)`; or a list of models, an ensemble
    train     loader of (inputs, labels) on which the model was trained: the probes learn from it
    holdout   loader of rows that trained nothing: it chooses the weights
    blocks    None: all natural blocks; an int: the last n; a list of names; []: temperature scaling, which needs no train
    loss      minimised by the weights: "nll", "brier" or "soft_ece"; probes minimise the log-loss
    budget    cap on added parameters, as a share of the network's; None: no cap
    views     on what variants of the inputs the probes train: None, "flip", "shift", "jitter", "robust", a function
              inputs -> inputs, or "auto", for images what the settings say and None otherwise; `passes` times over (None: as
              the settings say, and once where there are no views)
    holdout_views   None, or views as above: then decays, ranks and weights are chosen, and the fit's hold-out numbers are
              measured, on the hold-out and one view of each of its rows, which makes the result less confident under shift
    settings  the choices that a user rarely touches: `DEFAULT`, `PAPER`, or your own `Settings`
    seed      of all that is drawn: views, dropout, the order of a loader that shuffles
    device    where to work; None: where the model is
    memory    bytes for what grows with the rows; beyond that it goes to temporary files, with the same result
    progress  bars on a terminal or in a notebook; False: silence; or a function (stage, done, total); on rank 0
    distributed   where torch.distributed runs several processes: True, all of them call this, each with loaders of its own
              shard of the rows, and get the same calibration; False, this process works alone

    >>> calibrated = lates.calibrate(model, train=train_loader, holdout=holdout_loader)
    >>> probabilities = calibrated.predict_proba(images)
    """
    draws = read_draws(model)
    device = device_of(draws.networks[0]) if device is None else device
    with Run.start(device, seed=seed, memory=memory, distributed=distributed, progress=progress) as run:
        _check_arguments(train, holdout, blocks, loss, budget, settings, draws, run)
        reading = Reading("holdout", holdout_views, passes=None, plain_first=True)
        holdouts = extract_draws(draws, holdout, reading, run.with_memory(1 / 4), settings, blocks, budget=budget)
        firsts = holdouts[:: draws.samples]  # the first draw of each network
        reading = Reading("train", views, passes, keep_logits=False)
        trainings = _extract_training(draws, train, firsts, reading, settings, run)
        spare = run.memory - sum(features.bytes_in_memory for features in (*trainings, *holdouts))
        options = {"seed": run.seed, "device": run.device, "progress": run.progress, "memory": spare}
        probe_loss = loss if settings.optimiser == "sgd" else "nll"
        trained = [  # popped, so that the training features of one network are freed before those of the next are copied
            train_probes(trainings.pop(0), first, loss=probe_loss, settings=settings, **options) for first in firsts
        ]
        pairs = list(zip(trained, firsts, strict=True))
        plans = [plan_budget(dense, first, budget, settings) for dense, first in pairs]
        probes, curves = [plan[0] for plan in plans], [plan[1] for plan in plans]
        accuracies = [holdout_accuracies(dense, first) for dense, first in pairs]
        probes_of_draws, room = draws.repeat(probes), run.memory // 4 // len(holdouts)
        members = [member_logits(*pair, memory=room) for pair in zip(probes_of_draws, holdouts, strict=True)]
        reduce = run.processes.sum if run.processes.world_size > 1 else None
        labels, passes = holdouts[0].labels, holdouts[0].passes
        stack = fit_members(members, labels, draws.samples, loss, settings, run.seed, reduce, passes)
        stack = stack.with_budgets(curves[0], holdouts[0].parameters) if len(curves) == 1 else stack
    return CalibratedModel.assemble(model, probes, stack, [first.poolings for first in firsts], accuracies, run.seed)


def _extract_training(
    draws: Draws,
    train: Iterable[Any] | None,
    like: Sequence[Features],
    reading: Reading,
    settings: Settings,
    run: Run,
) -> list[Features]:
    """The training features of each network; where there is no block to probe, the loader is not read."""
    if train is None or not any(rows.blocks for rows in like):
        return list(like)
    trainings = extract_draws(replace(draws, samples=1), train, reading, run.with_memory(1 / 2), settings, like=like)
    warn_of_overlap(trainings[0], like[0])
    return trainings


def _check_arguments(
    train: Iterable[Any] | None,
    holdout: Iterable[Any],
    blocks: Sequence[str] | int | None,
    loss: str,
    budget: float | None,
    settings: Settings,
    draws: Draws,
    run: Run,
) -> None:
    check_loss(loss, several=len(draws.models) > 1)
    check_budget(budget)
    check_loader(holdout, "holdout")
    if train is not None:
        check_loader(train, "train")
        refuse_overlap(train, holdout)
    elif not isinstance(blocks, Sequence) or len(blocks) > 0:
        raise ValueError(
            "The probes learn from the training split: pass train=, the loader the model was trained on. For temperature "
            "scaling, which needs none, pass blocks=[]."
        )
    if run.processes.world_size > 1 and "sgd" in (settings.optimiser, settings.solver):
        raise ValueError(
            f"The paper's SGD is for one process, and here are {run.processes.world_size}. Use the settings' other solvers, or "
            "let one process work alone: distributed=False."
        )
