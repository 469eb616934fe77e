"""What all methods of a network learn from, computed once: features of the hold-out and trained probes.

Features of the training split are the large part (ResNet50: 11 GB a pass), so they are freed as soon as their probes are
trained. What stays is the hold-out and the probes.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

import lates
from experiments.data.datasets import ImageSet, scale
from experiments.evaluation.clock import Clock

AVERAGE = "average"
"""The module that every network of ours ends in: the head reads its output."""
VIEWS: Mapping[str, Literal["shift", "jitter"] | None] = {"none": None, "shift": "shift", "jitter": "jitter"}
PAPER: Final = "paper"
KINDS = (*VIEWS, PAPER)
"""Of probes: by the views that they learn from, or in the paper's mode."""
PAPER_BUDGET = 0.01
PASSES = 2
"""Over shifted and jittered views, as in the recorded results; the library's default for robust ones is four."""
HoldOut = Literal["plain", "jittered", "both", "paper"]


@dataclass(frozen=True)
class Batches:
    """Images as a network takes them, a batch at a time, as often as needed."""

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


@dataclass(frozen=True, eq=False)
class Prepared:
    """A network with hold-out features and probes for every method.

    blocks     those that get a probe by default; `last_block`, the last of all, may not be among them
    holdouts   features of the hold-out, of all blocks and of `AVERAGE`: "plain"; "jittered", the same under jittered views;
               "both", the plain one followed by one jittered view of each of its images; "paper", pooled flat
    probes     kind -> block -> the probe trained on those views of the training split, uncut; "paper": on flips, by SGD
    """

    network: nn.Module
    seed: int
    blocks: tuple[str, ...]
    last_block: str
    holdouts: Mapping[HoldOut, lates.Features]
    probes: Mapping[str, Mapping[str, lates.TrainedProbe]]

    @property
    def holdout(self) -> lates.Features:
        return self.holdouts["plain"]


def prepare(
    network: nn.Module, train: ImageSet, holdout: ImageSet, seed: int, clock: Clock, kinds: Collection[str] = KINDS
) -> Prepared:
    """Read each split once per view and train probes of these `kinds`, each a stage of the `clock`.

    A jittered hold-out is read where jittered probes are wanted.
    """

    def read(data: ImageSet, role: str, **options: Any) -> lates.Features:
        return lates.extract(network, Batches(data), seed=seed, role=role, **options)

    everything = lates.list_blocks(network)
    blocks = tuple(lates.extract(network, [next(iter(Batches(holdout)))]).blocks)
    probed = {
        "none": blocks,
        "shift": (*blocks, *(name for name in everything[-1:] if name not in blocks), AVERAGE),
        "jitter": (*blocks, AVERAGE),
    }
    with clock("extraction_holdout"):
        plain = read(holdout, "holdout", blocks=[*everything, AVERAGE])
    holdouts: dict[HoldOut, lates.Features] = {"plain": plain}
    if "jitter" in kinds:
        with clock("extraction_jittered_holdout"):
            jittered = read(holdout, "holdout", like=plain, views="jitter", passes=PASSES)
        holdouts |= {"jittered": jittered, "both": _followed_by_one_pass(plain, jittered)}
    probes: dict[str, Mapping[str, lates.TrainedProbe]] = {}
    for name, views in VIEWS.items():
        if name not in kinds:
            continue
        with clock(f"extraction_{name}"):
            passes = 1 if views is None else PASSES
            features = read(train, "train", like=_only(plain, probed[name]), views=views, passes=passes)
        with clock(f"probes_{name}"):
            probes[name] = lates.train_probes(features, plain, seed=seed)
        del features
    if PAPER in kinds:
        with clock("extraction_paper"):
            options = {"settings": lates.PAPER_LITERAL, "budget": PAPER_BUDGET}
            features = read(train, "train", views="flip", passes=lates.PAPER_LITERAL.passes, **options)
            holdouts[PAPER] = read(holdout, "holdout", like=features, settings=lates.PAPER_LITERAL)
        with clock("probes_paper"):
            probes[PAPER] = lates.train_probes(features, seed=seed, settings=lates.PAPER_LITERAL)
    return Prepared(network, seed, blocks, everything[-1], holdouts, probes)


def _followed_by_one_pass(plain: lates.Features, jittered: lates.Features) -> lates.Features:
    """The rows of `plain`, then the first pass of `jittered`."""

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
    parts = {
        part: {name: getattr(features, part)[name] for name in names}
        for part in ("blocks", "poolings", "centre", "deviation")
    }
    return replace(features, **parts)
