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
    Tokenizer,
    Views,
    check_loader,
    device_of,
    extract_holdout,
    extract_training,
    read_draws,
    refuse_overlap,
)
from lates.probes import ChosenProbes, check_budget, member_logits, train_and_cut
from lates.runtime import Progress, Run
from lates.settings import DEFAULT, Settings
from lates.stack import MemberRows, Stack, check_loss, fit_weights, rescale

VIEWS_ADVICE = (
    'Pass views=: "robust" for images, "noise" or "swap" for table rows, lates.views.mask_tokens(tokenizer) for text, or a '
    "function inputs -> inputs."
)


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
    blocks    None: all natural blocks; an int: the last n; a list of names; []: temperature scaling, which needs no train
    loss      minimised by the weights: "nll", "brier" or "soft_ece"; probes minimise the log-loss, those of
              `PAPER` this loss
    budget    cap on added parameters, as a share of the network's, such as 0.01 or "1%"; None: no cap
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
    draws, budget = read_draws(model), check_budget(budget)
    settings = settings.expecting_shift() if expect_shift else settings
    reading = Reading("train", blocks, views, passes, tokenizer=tokenizer, budget=budget, settings=settings)
    holdout_reading = _read_holdout(reading, holdout_views, expect_shift)
    device = device_of(draws.networks[0]) if device is None else device
    with Run.start(device, seed=seed, memory=memory, distributed=distributed, progress=progress) as run:
        _check_arguments(train, holdout, loss, draws, reading, run)
        # The hold-out first: faults show at once. Of MC dropout's samples the first one chooses the probes.
        holdouts = extract_holdout(draws, holdout, holdout_reading, run)
        firsts = [_without_copies(rows) if expect_shift else rows for rows in holdouts[:: draws.samples]]
        trainings = extract_training(draws, train, reading, run, firsts)
        # Step 1: one linear probe per block, trained on the training split (freed network by network), cut to the budget.
        spare = replace(run, memory=run.memory - sum(rows.bytes_in_memory for rows in (*trainings, *holdouts)))
        chosen = [train_and_cut(trainings.pop(0), rows, loss, budget, settings, spare) for rows in firsts]
        # Step 2: the logits of all members, the probes and the network itself, on the hold-out.
        members = _read_members(draws, chosen, holdouts, run)
        # Steps 3 and 4: from the network as it is, (0, …, 0, 1), to the weights beta >= 0 that minimise the loss.
        stack = fit_weights(members.first_pass() if expect_shift else members, loss, settings, run.seed)
        # Beyond the paper: where shift is expected, changed copies of the hold-out choose the scale of all weights.
        stack = rescale(stack, members, settings) if expect_shift else stack
    return _assemble(model, chosen, stack, firsts, run.seed)


def _read_members(draws: Draws, chosen: Sequence[ChosenProbes], holdouts: Sequence[Features], run: Run) -> MemberRows:
    pairs, memory = zip(draws.repeat(chosen), holdouts, strict=True), run.memory // 4 // len(holdouts)
    logits = [member_logits(of_network.probes, rows, memory=memory) for of_network, rows in pairs]
    passes, reduce = holdouts[0].passes, run.processes.sum
    return MemberRows.of(logits, holdouts[0].labels, samples=draws.samples, passes=passes, reduce=reduce)


def _assemble(
    model: nn.Module | Sequence[nn.Module],
    chosen: Sequence[ChosenProbes],
    stack: Stack,
    holdouts: Sequence[Features],
    seed: int,
) -> CalibratedModel:
    if len(chosen) == 1 and chosen[0].curve:  # of an ensemble's networks each has its own, and none is kept
        budgets, losses = zip(*chosen[0].curve, strict=True)
        stack = replace(stack, budgets=budgets, budget_nll=losses)
    probes, accuracies = [each.probes for each in chosen], [each.accuracies for each in chosen]
    return CalibratedModel.assemble(model, probes, stack, [rows.poolings for rows in holdouts], accuracies, seed)


def _read_holdout(reading: Reading, holdout_views: Views, expect_shift: bool) -> Reading:
    """How the hold-out is read, with changed copies of it where these are asked for."""
    if not isinstance(expect_shift, bool):
        raise ValueError(f"expect_shift={expect_shift!r}: expected True or False.")
    if not expect_shift:
        return replace(reading, views=holdout_views, views_option="holdout_views")
    if holdout_views is not None:
        raise ValueError(
            "Pass expect_shift=True or holdout_views=, not both: they use copies of the hold-out differently."
        )
    if reading.views is None:
        raise ValueError(
            "expect_shift=True draws changed copies of the hold-out by views=, which is None. " + VIEWS_ADVICE
        )
    return reading


def _without_copies(holdout: Features) -> Features:
    """The rows as they are, of a hold-out that has changed copies too."""
    if holdout.passes == 1:
        raise ValueError(
            'expect_shift=True draws changed copies of the hold-out by views=, and "auto" has none for such inputs. '
            + VIEWS_ADVICE
        )
    return holdout.first_pass()


def _check_arguments(
    train: Iterable[Any] | None, holdout: Iterable[Any], loss: str, draws: Draws, reading: Reading, run: Run
) -> None:
    check_loss(loss, several=len(draws.models) > 1)
    check_loader(holdout, "holdout")
    if train is not None:
        check_loader(train, "train")
        refuse_overlap(train, holdout)
    elif not isinstance(reading.blocks, Sequence) or len(reading.blocks) > 0:
        raise ValueError(
            "The probes learn from the training split: pass train=, the loader the model was trained on. For temperature "
            "scaling, which needs none, pass blocks=[]."
        )
    if run.processes.world_size > 1 and "sgd" in (reading.settings.optimiser, reading.settings.solver):
        raise ValueError(
            f"The paper's SGD is for one process, and here are {run.processes.world_size}. Use the settings' other solvers, or "
            "let one process work alone: distributed=False."
        )
