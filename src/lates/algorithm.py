"""Algorithm 1 of the paper: probes on the blocks, trained on the training split; weights for all, fitted on the hold-out."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from lates.arguments import Plan
from lates.model import CalibratedModel
from lates.network import (
    Ensemble,
    Features,
    Reading,
    Tokenizer,
    Views,
    device_of,
    extract_samples,
    extract_training,
    read_ensemble,
)
from lates.probes import ChosenProbes, choose_probes, member_logits, train_all
from lates.runtime import Progress, Run, check_budget
from lates.settings import DEFAULT, Settings
from lates.stack import MemberRows, Stack

HOLDOUT_SHARE, TRAINING_SHARE, MEMBERS_SHARE = 1 / 4, 1 / 2, 1 / 4
"""Of the memory, for both splits' features and for the members' logits. Probes are trained in what the features leave."""


def calibrate(
    model: nn.Module | Sequence[nn.Module],
    *,
    train: Iterable[Any] | None = None,
    holdout: Iterable[Any],
    blocks: Sequence[str] | int | None = None,
    loss: str = "nll",
    budget: float | str | None = 0.01,
    views: Views = "auto",
    passes: int | None = None,
    expect_shift: bool = False,
    holdout_views: Views = None,
    tokenizer: Tokenizer | None = None,
    memory: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool | Progress = True,
    settings: Settings = DEFAULT,
    distributed: bool = True,
) -> CalibratedModel:
    """Calibrate a trained classifier with all of its layers; the model itself is left as it was.

    This is Algorithm 1 of the paper. Beyond it: exact solvers, views, probe ranks chosen on the hold-out, a prior for few
    hold-out rows, outlier rows left out, and a fall-back to temperature scaling. `settings=lates.PAPER` has none of these but
    the paper's flips.

    model     an nn.Module that returns logits; `mc_dropout(model)`; or a list of models, an ensemble
    train     loader of (inputs, labels) on which the model was trained: the probes learn from it
    holdout   loader of rows on which the model was not trained: they choose the weights
    blocks    None: all natural blocks, but the last where `expect_shift` or the settings leave it out; an int: the last n of
              these; a list of names; [] or 0: temperature scaling, which needs no train
    loss      minimised by the weights: "nll", "brier" or "soft_ece"; probes minimise the log-loss, but by `PAPER` the Brier
              score where the weights do
    budget    limit on added parameters, as a share of the network's, such as 0.01 or "1%"; None: no limit
    views     which variants of the inputs the probes train on: None; for images "flip", "shift", "jitter", "robust"; for table
              rows "noise", "swap"; for text `lates.views.mask_tokens(tokenizer)`; a function inputs -> inputs; or "auto", for
              images what the settings say, for text masked tokens if the tokenizer is passed, and None otherwise; `passes`
              times over (None: as the settings say, and once where there are no views)
    expect_shift   True where the inputs in use will differ from the hold-out: other cameras, noise, blur. Changed copies of the
              hold-out, drawn by `views`, then lower the confidence; the last block gets no probe, and no probe's logits become
              larger than on the hold-out, unless the settings differ from the default there
    holdout_views   None, or views as above, of the hold-out too: decays, ranks and weights are then fitted to the hold-out plus
              one view of each of its rows, which makes the result less confident under shift; so are the fit's numbers
    tokenizer   of text, such as one of transformers: it knows which tokens are special; only "auto" reads it
    settings  what is rarely changed: `DEFAULT`, `PAPER`, or your own `Settings`
    seed      of everything random: views, dropout, the order of a loader that shuffles
    device    where to work; None: where the model is
    memory    bytes for what grows with the rows; beyond that it goes to temporary files, with the same result
    progress  bars on a terminal or in a notebook; False: silence; or a function (stage, done, total); on rank 0
    distributed   where torch.distributed runs several processes: True, all of them call this, each with loaders of its own
              shard of the rows, and get the same calibration; False, this process works alone

    >>> calibrated = lates.calibrate(model, train=train_loader, holdout=holdout_loader)
    >>> probabilities = calibrated.predict_proba(images)
    """
    ensemble, budget = read_ensemble(model), check_budget(budget)
    reading = Reading("train", blocks, views, passes, tokenizer=tokenizer, budget=budget, settings=settings)
    plan = Plan.of(reading, holdout_views, loss, expect_shift)
    device = device_of(ensemble.networks[0]) if device is None else device
    with Run.start(device, seed=seed, memory=memory, distributed=distributed, progress=progress) as run:
        plan.check(train, holdout, ensemble, run)
        # The hold-out first: faults show at once.
        holdouts = extract_samples(ensemble, holdout, plan.holdout, run.with_share(HOLDOUT_SHARE))
        # Step 1: one linear probe per block, trained on the training split, cut to the budget.
        chosen = _choose_probes(ensemble, train, holdouts, plan, run)
        # Step 2: the logits of all members, the probes and the network itself, on the hold-out.
        members = _read_members(ensemble, chosen, holdouts, run.with_share(MEMBERS_SHARE))
        # Steps 3 and 4: from the network as it is, (0, …, 0, 1), to the weights beta >= 0 that minimise the loss.
        stack = plan.fit_weights(members, run.seed)
    return _assemble(model, chosen, stack, run.seed)


def _choose_probes(
    ensemble: Ensemble, train: Iterable[Any] | None, holdouts: Sequence[Features], plan: Plan, run: Run
) -> list[ChosenProbes]:
    """The probes of each network, by the first of its samples. Training features are freed network by network."""
    firsts = holdouts[:: ensemble.samples]
    if plan.expect_shift:  # neither probes nor their ranks are fitted to the copies
        firsts = [features.first_pass() for features in firsts]
    trainings = extract_training(ensemble, train, plan.train, run.with_share(TRAINING_SHARE), firsts)
    used = sum(features.bytes_in_memory for features in (*trainings, *holdouts))
    spare, chosen = replace(run, memory=run.memory - used), []
    for features in firsts:
        trained = train_all(trainings.pop(0), features, plan.probe_loss, plan.settings, spare)
        chosen.append(choose_probes(trained, features, plan.train.budget, plan.settings))
    return chosen


def _read_members(ensemble: Ensemble, chosen: Sequence[ChosenProbes], holdouts: Sequence[Features], run: Run) -> MemberRows:
    samples, memory = zip(ensemble.per_sample(chosen), holdouts, strict=True), run.memory // len(holdouts)
    logits = [member_logits(network.probes, features, memory=memory) for network, features in samples]
    passes, reduce = holdouts[0].passes, run.processes.all_reduce
    return MemberRows.of(logits, holdouts[0].labels, samples_per_network=ensemble.samples, passes=passes, reduce=reduce)


def _assemble(
    model: nn.Module | Sequence[nn.Module], chosen: Sequence[ChosenProbes], stack: Stack, seed: int
) -> CalibratedModel:
    if len(chosen) == 1 and chosen[0].curve:  # of an ensemble's networks each has its own, and none is kept
        budgets, losses = zip(*chosen[0].curve, strict=True)
        stack = replace(stack, budgets=budgets, budget_nll=losses)
    probes, poolings, accuracies = zip(*((each.probes, each.poolings, each.accuracies) for each in chosen), strict=True)
    return CalibratedModel.assemble(model, probes, stack, poolings, accuracies, seed)
