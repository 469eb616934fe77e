"""What all methods of a cell learn from, made once: hold-out members and trained probes, each with its seconds.

Features of the training split are the large part (ResNet50: 11 GB a pass), so a view's features live only until its
probes are trained. What stays is the hold-out and the probes.
"""

import math
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal

import torch
from torch import Tensor, nn

import lates
from experiments.data import ImageSet, scale

AVERAGE = "average"
"""The module that every network of ours ends in: the head reads its output."""
VIEWS: Mapping[str, Literal["shift", "jitter"] | None] = {"none": None, "shift": "shift", "jitter": "jitter"}
PAPER: Final = "paper"
KINDS = (*VIEWS, PAPER)
"""Of probes: by the views that they learn from, or in the paper's mode."""
PAPER_BUDGET = 0.01
HoldOut = Literal["plain", "jittered", "both", "paper"]


@dataclass(frozen=True)
class Batches:
    """Images as a network takes them, a batch at a time, as often as asked."""

    data: ImageSet
    size: int = 1000

    def __len__(self) -> int:
        return -(-len(self.data) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in zip(self.data.images.split(self.size), self.data.labels.split(self.size), strict=True):
            yield as_inputs(images), labels


def as_inputs(images: Tensor) -> Tensor:
    """uint8 images -> float32 in [0, 1], channels last, the layout in which convolutions are quickest."""
    return scale(images).contiguous(memory_format=torch.channels_last)


class OutOfTimeError(Exception):
    """The deadline passed; nothing was written, and the evaluation begins anew next time."""


class Clock:
    """Seconds by stage, the device's work included. No stage begins once `deadline`, by `time.monotonic()`, is past."""

    def __init__(self, device: torch.device, deadline: float = math.inf) -> None:
        self.device, self.deadline = device, deadline
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        if time.monotonic() > self.deadline:
            raise OutOfTimeError(f"The time was up before the stage {stage}.")
        started = self._now()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + self._now() - started

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


@dataclass(frozen=True, eq=False)
class Material:
    """A hold-out and probes for every method of a cell.

    blocks     those that get a probe by default; `last_block`, the last of all, may not be among them
    holdouts   features of the hold-out, of all blocks and of `AVERAGE`: "plain"; "jittered", the same under jittered views;
               "both", the plain one followed by one jittered view of each of its images; "paper", pooled flat
    probes     kind -> block -> the probe trained on those views of the training split, uncut; "paper": on flips, by SGD
    """

    seed: int
    blocks: tuple[str, ...]
    last_block: str
    holdouts: Mapping[HoldOut, lates.Features]
    probes: Mapping[str, Mapping[str, lates.TrainedProbe]]

    @property
    def holdout(self) -> lates.Features:
        return self.holdouts["plain"]


def gather_material(
    network: nn.Module, train: ImageSet, holdout: ImageSet, seed: int, clock: Clock, kinds: Collection[str] = KINDS
) -> Material:
    """Read each split once per view and train probes of these `kinds`, stage by stage of the `clock`.

    A jittered hold-out is for those who want jittered probes too.
    """
    read, held = Batches(train), Batches(holdout)
    passes = lates.DEFAULT.passes
    everything = lates.list_blocks(network)
    blocks = tuple(lates.extract(network, [next(iter(held))]).blocks)
    probed = {
        "none": blocks,
        "shift": (*blocks, *(name for name in everything[-1:] if name not in blocks), AVERAGE),
        "jitter": (*blocks, AVERAGE),
    }
    with clock("extraction_holdout"):
        plain = lates.extract(network, held, [*everything, AVERAGE], seed=seed, role="holdout")
    holdouts: dict[HoldOut, lates.Features] = {"plain": plain}
    if "jitter" in kinds:
        with clock("extraction_jittered_holdout"):
            jittered = lates.extract(
                network, held, like=plain, views="jitter", passes=passes, seed=seed, role="holdout"
            )
        holdouts |= {"jittered": jittered, "both": _followed_by_one_pass(plain, jittered)}
    probes: dict[str, Mapping[str, lates.TrainedProbe]] = {}
    for name, views in VIEWS.items():
        if name not in kinds:
            continue
        with clock(f"extraction_{name}"):
            features = lates.extract(
                network,
                read,
                like=_only(plain, probed[name]),
                views=views,
                passes=1 if views is None else passes,
                seed=seed,
                role="train",
            )
        with clock(f"probes_{name}"):
            probes[name] = lates.train_probes(features, plain, seed=seed)
        del features
    if PAPER in kinds:
        with clock("extraction_paper"):
            features = lates.extract(
                network,
                read,
                views="flip",
                passes=lates.PAPER.passes,
                budget=PAPER_BUDGET,
                seed=seed,
                settings=lates.PAPER,
                role="train",
            )
            pooled_flat = lates.extract(network, held, like=features, seed=seed, settings=lates.PAPER, role="holdout")
        holdouts[PAPER] = pooled_flat
        with clock("probes_paper"):
            probes[PAPER] = lates.train_probes(features, seed=seed, settings=lates.PAPER)
    return Material(seed, blocks, everything[-1], holdouts, probes)


def _followed_by_one_pass(plain: lates.Features, jittered: lates.Features) -> lates.Features:
    """The rows of the one, then as many of the other: passes stand one after the other, and the first is enough."""

    def joined(first: Tensor, second: Tensor) -> Tensor:
        return torch.cat([first, second[: len(first)]])

    return replace(
        plain,
        blocks={name: joined(values, jittered.blocks[name]) for name, values in plain.blocks.items()},
        logits=joined(plain.logits, jittered.logits),
        labels=joined(plain.labels, jittered.labels),
        passes=2,
    )


def _only(features: lates.Features, names: tuple[str, ...]) -> lates.Features:
    """Features of some blocks alone."""
    return replace(
        features,
        blocks={name: features.blocks[name] for name in names},
        poolings={name: features.poolings[name] for name in names},
        centre={name: features.centre[name] for name in names},
        deviation={name: features.deviation[name] for name in names},
    )
