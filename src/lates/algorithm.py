"""Algorithm 1 of the paper: probes on the blocks, trained on the training split; weights for all, fitted on the hold-out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lates.batches import check_loader, refuse_overlap
from lates.blocks import HEAD
from lates.budget import check_budget, fit_budget
from lates.checks import check_finite, check_integer
from lates.features import Features, check_beginning, extract_samples
from lates.linear import Probe, TrainedProbe, member_logits
from lates.memory import check_memory, default_memory
from lates.model import CalibratedModel
from lates.probes import train_probes
from lates.progress import Progress, shown
from lates.sampling import Draws, read_draws
from lates.settings import DEFAULT, Settings
from lates.standardised import rows_at_once
from lates.taps import choose_device
from lates.team import Shares, Team, form_team
from lates.views import Views
from lates.voters import Voter
from lates.votes import Votes, check_loss, fit_votes


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
    shares: Shares = "dealt",
) -> CalibratedModel:
    """Calibrate a trained classifier with all of its layers; the model itself is left as it was.

    model     an nn.Module that returns logits; `mc_dropout(model)`; or a list of models, an ensemble
    train     loader of (inputs, labels) on which the model was trained: the probes learn from it
    holdout   loader of rows that trained nothing: it chooses the weights
    blocks    None: all natural blocks; an int: the last n; a list of names; []: temperature scaling, which needs no train
    loss      "nll", "brier" or "soft_ece"
    budget    cap on added parameters, as a share of the network's; None: no cap
    views     on what variants of the inputs the probes train: None, "flip", "shift", "jitter", a function inputs -> inputs,
              or "auto", for images what the settings say and None otherwise; `passes` times over (None: as the settings say,
              and once where there are no views)
    holdout_views   None, or views as above: then decays, ranks and weights are chosen, and all that is told of the hold-out
              is measured, on it and one view of each of its rows, which makes them more careful under shift
    memory    bytes for what grows with the rows; beyond that it spills to temporary files, with the same result
    progress  bars on a terminal or in a notebook; False: silence; or a function (stage, done, total); in the first process
    shares    who reads what where torch.distributed runs several processes, all of which must call this and get the same
              calibration. "dealt": all pass the same loaders, whose batches are dealt out; "own": each passes loaders of
              rows that no other has; "whole": this process works alone

    >>> calibrated = lates.calibrate(model, train=train_loader, holdout=holdout_loader)
    >>> probabilities = calibrated.predict_proba(images)
    """
    draws = read_draws(model)
    device = choose_device(device, draws.networks[0])
    team = form_team(shares, device)
    with team, shown(progress if team.place == 0 else False) as report, torch.inference_mode(False):  # for gradients
        check_loss(loss, several=len(draws.models) > 1)
        check_budget(budget)
        seed = check_integer(seed, "seed")
        check_memory(memory)
        _check_loaders(train, holdout, blocks)
        _check_settings(settings, team)
        memory = default_memory(device, team.neighbours()) if memory is None else memory
        read = partial(
            extract_samples,
            dropout=draws.dropout,
            seed=seed,
            device=device,
            progress=report,
            settings=settings,
            team=team,
        )
        hold = partial(
            read,
            draws.models,
            holdout,
            views=holdout_views,
            passes=1 if holdout_views is None else 2,
            plain_first=True,
            memory=memory // 4,
            role="holdout",
        )
        learn = partial(train_probes, loss=loss, seed=seed, device=device, progress=report, settings=settings)
        if train is None or blocks == []:
            held = hold([])
            trained: Iterator[dict[str, TrainedProbe]] = ({} for _ in draws.networks)
        else:
            check_beginning(draws.networks, holdout, dropout=draws.dropout, seed=seed, device=device, role="holdout")
            seen = read(
                draws.networks,
                train,
                blocks,
                views=views,
                passes=passes,
                budget=budget,
                keep_logits=False,
                memory=memory // 2,
                role="train",
            )
            held = hold(like=draws.repeat(seen))
            spare = memory - sum(features.held for features in (*seen, *held))
            trained = (learn(seen.pop(0), rows, memory=spare) for rows in held[:: draws.samples])  # one at a time
        for rows in held:
            check_finite(rows.logits, "the network's logits of the holdout loader")
        probes: list[dict[str, Probe]] = []
        accuracies: list[dict[str, float]] = []
        for own, rows in zip(trained, held[:: draws.samples], strict=True):
            probes.append(fit_budget(own, rows, budget, settings=settings) if own else {})
            accuracies.append(holdout_accuracies(own, rows))
        room = memory // 4 // len(held)
        members = [member_logits(own, rows, memory=room) for own, rows in zip(draws.repeat(probes), held, strict=True)]
        votes = fit_votes(members, held[0].labels, draws, loss, settings, seed, team.sum if team.size > 1 else None)
    return CalibratedModel(make_voters(draws, held, probes, votes, accuracies), votes.fit, draws.samples, seed)


def holdout_accuracies(trained: Mapping[str, TrainedProbe], holdout: Features) -> dict[str, float]:
    """How often each probe as trained, before any cut, and the head are right on the hold-out.

    Taken now, for probes without a vote are not kept, and how knowledge grows with depth is worth seeing.
    """
    right = {name: _right(own.probe, holdout.blocks[name], holdout.labels) for name, own in trained.items()}
    head = int((holdout.logits.argmax(1) == holdout.labels).sum())
    counts = holdout.team.sum(torch.tensor([*right.values(), head], dtype=torch.float64))
    return dict(zip([*right, HEAD], (counts / holdout.all_rows).tolist(), strict=True))


def _right(probe: Probe, features: Tensor, labels: Tensor) -> int:
    step = rows_at_once(features.shape[1], len(probe.bias), probe.bias.device)
    chunks = zip(features.split(step), labels.split(step), strict=True)
    return sum(int((probe.logits(rows).argmax(1) == own.to(probe.bias.device)).sum()) for rows, own in chunks)


def make_voters(
    draws: Draws,
    held: Sequence[Features],
    probes: Sequence[Mapping[str, Probe]],
    votes: Votes,
    accuracies: Sequence[Mapping[str, float]],
) -> list[Voter]:
    """Each network with its probes and weights; blocks that got no probe are listed with weight 0."""
    voters: list[Voter] = []
    for place, (network, own) in enumerate(zip(draws.networks, probes, strict=True)):
        poolings = held[place * draws.samples].poolings
        of_member = dict(zip([*own, HEAD], range(len(own) + 1), strict=True))
        names = [*poolings, HEAD]
        weights, deviations = votes.weights[place], votes.deviations[place]
        chosen = [of_member.get(name) for name in names]
        full_weights = torch.stack([weights[i] if i is not None else weights.new_zeros(()) for i in chosen])
        full_deviations = torch.stack([deviations[i] if i is not None else weights.new_zeros(()) for i in chosen])
        alone = [accuracies[place][name] for name in names]
        voters.append(Voter(network, names, full_weights, full_deviations, own, poolings, draws.dropout, alone))
    return voters


def _check_loaders(train: Iterable[Any] | None, holdout: Iterable[Any], blocks: Sequence[str] | int | None) -> None:
    check_loader(holdout, "holdout")
    if train is not None:
        check_loader(train, "train")
        refuse_overlap(train, holdout)
    elif not isinstance(blocks, Sequence) or len(blocks) > 0:
        raise ValueError(
            "The probes learn from the training split: pass train=, the loader the model was trained on. For temperature "
            "scaling, which needs none, pass blocks=[]."
        )


def _check_settings(settings: Settings, team: Team) -> None:
    if team.size > 1 and "sgd" in (settings.optimiser, settings.solver):
        raise ValueError(
            f"The paper's SGD is for one process, and here are {team.size}. Use the settings' other solvers, or let one "
            'process work alone: shares="whole".'
        )
