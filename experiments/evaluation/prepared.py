"""What all methods of a network learn from, computed once: features of the hold-out and trained probes.

Features of the training split are the large part (ResNet50: 11 GB a pass), so they are freed as soon as their probes are
trained. What stays is the hold-out and the probes.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

import lates
from experiments.data.datasets import ImageSet, as_inputs
from experiments.evaluation.clock import Clock
from experiments.evaluation.rivals.augmentation import log_mean_probabilities
from experiments.evaluation.rivals.density import Neighbours

AVERAGE = "average"
"""The module that every network of ours ends in: the head reads its output."""
STEM = "stem"
"""The module that most of them begin with."""
PASSES = 2
VIEWS: Mapping[str, int] = {"none": 1, "shift": PASSES, "jitter": PASSES, "robust": lates.DEFAULT.passes}
"""Of the training images, from which probes learn -> the passes over these, as in the recorded results."""
PAPER: Final = "paper"
DENSITY: Final = "density"
MIRRORED: Final = "mirrored"
KINDS = (*VIEWS, PAPER, DENSITY, MIRRORED)
"""What methods need: probes, by the views that they learn from or in the paper's mode; distances to training images; the mean
over an image and its mirror image."""
PAPER_BUDGET = 0.01
PAPER_BLOCKS = replace(lates.DEFAULT, last_block=False)
HoldOut = Literal["plain", "jittered", "both", "robust", "paper", "density", "mirrored"]
Recorded = Mapping[HoldOut, lates.Features]
Read = Callable[[ImageSet, Recorded], lates.Features]
"""Images, and what was read of them before, the plain features first -> features."""


@dataclass(frozen=True)
class Batches:
    """Images as a network takes them, a batch at a time, as often as needed; on a CPU few enough for its cache."""

    data: ImageSet

    @property
    def size(self) -> int:
        return 16 if self.data.images.device.type == "cpu" else 1000

    def __len__(self) -> int:
        return -(-len(self.data) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in zip(self.data.images.split(self.size), self.data.labels.split(self.size), strict=True):
            yield as_inputs(images), labels


@dataclass(frozen=True, eq=False)
class Prepared:
    """A network with hold-out features and probes for every method.

    blocks     those that the paper probes; `last_block`, the last of all, may not be among them
    holdouts   features of the hold-out, of all blocks and of `AVERAGE`: "plain"; "jittered", the same under jittered views;
               "both" and "robust", the plain one followed by one jittered or robust view of each of its images; and what
               `readers` make of it
    readers    what methods predict from -> how images are read. "plain"; "paper", pooled flat; "density", a block "nearest" and
               a block "kth" of squared distances [n, layers], from the plain features; "mirrored", logits averaged over an
               image, as it was read plainly, and its mirror image
    probes     kind -> block -> the probe trained on those views of the training split, uncut; "paper": on flips, by SGD
    """

    network: nn.Module
    seed: int
    blocks: tuple[str, ...]
    holdouts: Mapping[HoldOut, lates.Features]
    readers: Mapping[HoldOut, Read]
    probes: Mapping[str, Mapping[str, lates.TrainedProbe]]

    @property
    def holdout(self) -> lates.Features:
        return self.holdouts["plain"]

    @property
    def last_block(self) -> str:
        return lates.list_blocks(self.network)[-1]

    def read(self, images: ImageSet) -> Recorded:
        """All that methods predict from."""
        recorded: dict[HoldOut, lates.Features] = {}
        for name, read in self.readers.items():
            recorded[name] = read(images, recorded)
        return recorded


def prepare(
    network: nn.Module, train: ImageSet, holdout: ImageSet, seed: int, clock: Clock, kinds: Collection[str] = KINDS
) -> Prepared:
    """Read each split once per view and prepare these `kinds`, each a stage of the `clock`.

    A jittered or robust hold-out is read where such probes are wanted. Distances need the training images as they are: the
    kind "none".
    """

    def read(data: ImageSet, role: str, **options: Any) -> lates.Features:
        return lates.extract(network, Batches(data), seed=seed, role=role, **options)

    def reader(like: lates.Features, **options: Any) -> Read:
        like = _without_rows(like)
        return lambda images, _: read(images, "test", like=like, **options)

    with clock("extraction_holdout"):
        everything = read_plain(network, holdout, seed, [STEM] if DENSITY in kinds and _has_stem(network) else [])
        plain = only(everything, recorded_blocks(network))
    holdouts: dict[HoldOut, lates.Features] = {"plain": plain}
    readers: dict[HoldOut, Read] = {"plain": reader(everything)}
    if "jitter" in kinds:
        with clock("extraction_jittered_holdout"):
            jittered = read(holdout, "holdout", like=plain, views="jitter", passes=PASSES)
        holdouts |= {"jittered": jittered, "both": followed_by(plain, jittered)}
    if "robust" in kinds:
        with clock("extraction_robust_holdout"):
            holdouts["robust"] = with_robust_copies(network, holdout, plain, seed)
    probes: dict[str, Mapping[str, lates.TrainedProbe]] = {}
    for name in filter(kinds.__contains__, VIEWS):
        with clock(f"extraction_{name}"):
            changed: dict[str, Any] = {"like": everything} if name == "none" else {"like": plain, "views": name}
            features = read(train, "train", passes=VIEWS[name], **changed)
        if name == "none" and DENSITY in kinds:
            with clock("extraction_density"):
                readers[DENSITY] = _density_reader(network, features)
                holdouts[DENSITY] = readers[DENSITY](holdout, {"plain": everything})
        with clock(f"probes_{name}"):
            probes[name] = lates.train_probes(only(features, plain.blocks), plain, seed=seed)
        del features
    if PAPER in kinds:
        with clock("extraction_paper"):
            options = {"settings": lates.PAPER_LITERAL, "budget": PAPER_BUDGET}
            features = read(train, "train", views="flip", passes=lates.PAPER_LITERAL.passes, **options)
            readers[PAPER] = reader(features, settings=lates.PAPER_LITERAL)
            holdouts[PAPER] = readers[PAPER](holdout, holdouts)
        with clock("probes_paper"):
            probes[PAPER] = lates.train_probes(features, seed=seed, settings=lates.PAPER_LITERAL)
        del features
    if MIRRORED in kinds:
        with clock("extraction_mirrored"):
            readers[MIRRORED] = lambda images, recorded: _with_mirror_images(network, images, recorded["plain"])
            holdouts[MIRRORED] = readers[MIRRORED](holdout, holdouts)
    return Prepared(network, seed, blocks_of_the_paper(network, holdout), holdouts, readers, probes)


def blocks_of_the_paper(network: nn.Module, images: ImageSet) -> tuple[str, ...]:
    return tuple(lates.extract(network, [next(iter(Batches(images)))], settings=PAPER_BLOCKS).blocks)


def recorded_blocks(network: nn.Module) -> list[str]:
    return list(dict.fromkeys([*lates.list_blocks(network), AVERAGE]))


def read_plain(network: nn.Module, holdout: ImageSet, seed: int = 0, besides: Collection[str] = ()) -> lates.Features:
    names = [*besides, *recorded_blocks(network)]
    return lates.extract(network, Batches(holdout), blocks=names, seed=seed, role="holdout")


def with_robust_copies(network: nn.Module, holdout: ImageSet, plain: lates.Features, seed: int = 0) -> lates.Features:
    """Each image followed by one robust view: the one that `calibrate` draws, in its second pass."""
    options: dict[str, Any] = {"like": plain, "views": "robust", "passes": 2, "seed": seed, "role": "holdout"}
    return followed_by(plain, lates.extract(network, Batches(holdout), **options), number_of_pass=1)


def read_logits(network: nn.Module, images: ImageSet) -> Tensor:
    """[n, classes]"""
    with torch.no_grad():
        return torch.cat([network(inputs) for inputs, _ in Batches(images)])


def _has_stem(network: nn.Module) -> bool:
    return STEM in dict(network.named_children())


def _density_reader(network: nn.Module, train: lates.Features) -> Read:
    """Distances in the stem, at the quarter points of the depth (the stages' ends of a ResNet18) and in the logits."""
    blocks = lates.list_blocks(network)
    layers = dict.fromkeys(blocks[math.ceil(len(blocks) * part / 4) - 1] for part in range(1, 5))
    names = [*([STEM] if _has_stem(network) else []), *layers]
    device = next(network.parameters()).device  # features may lie on the host

    def averaged(features: lates.Features) -> dict[str, Tensor]:
        """Over the image: over the cells of a block, which are alike where its sides are even. Of the networks here one has odd
        sides: in the last stage of ImageNet's ResNet50, 7 x 7, the middle row and column count twice."""
        cells = {name: (-1, math.prod(features.poolings[name].size)) for name in names}
        layers = {name: features.blocks[name].float().unflatten(1, cells[name]).mean(2).to(device) for name in names}
        return {**layers, "logits": features.logits.to(device)}

    neighbours = Neighbours.of(averaged(train), train.classes)

    def read(images: ImageSet, recorded: Recorded) -> lates.Features:
        features = recorded["plain"]
        nearest, kth = neighbours.squared_distances(averaged(features)).to(features.logits.device).unbind(2)
        return replace(only(features, ()), blocks={"nearest": nearest, "kth": kth})

    return read


def _without_rows(features: lates.Features) -> lates.Features:
    """How they were read, without what was read: it is large."""
    logits, labels = features.logits.new_empty(0, features.classes), features.labels.new_empty(0)
    return replace(features, blocks={}, logits=logits, labels=labels)


def _with_mirror_images(network: nn.Module, images: ImageSet, plain: lates.Features) -> lates.Features:
    """Logits alone, averaged over each image and its mirror image."""
    mirrored = read_logits(network, replace(images, images=images.images.flip(-1))).to(plain.logits)
    return replace(only(plain, ()), logits=log_mean_probabilities(torch.stack([plain.logits, mirrored])))


def followed_by(plain: lates.Features, changed: lates.Features, number_of_pass: int = 0) -> lates.Features:
    """The rows of `plain`, then one pass of `changed`."""

    def joined(first: Tensor, second: Tensor) -> Tensor:
        return torch.cat([first, second[number_of_pass * len(first) :][: len(first)]])

    return replace(
        plain,
        blocks={name: joined(values, changed.blocks[name]) for name, values in plain.blocks.items()},
        logits=joined(plain.logits, changed.logits),
        labels=joined(plain.labels, changed.labels),
        passes=2,
    )


def only(features: lates.Features, names: Iterable[str]) -> lates.Features:
    """Features of some blocks alone."""
    parts = {
        part: {name: getattr(features, part)[name] for name in names} for part in ("blocks", "poolings", "centre", "deviation")
    }
    return replace(features, **parts)


def fit_model(
    network: nn.Module,
    probes: Mapping[str, lates.Probe],
    rows: lates.Features,
    solver: Literal["exact", "sgd"] = "exact",
    **options: Any,
) -> lates.CalibratedModel:
    """The last stage of `lates.calibrate`, for methods that share features and probes: weights fitted on the hold-out `rows`.
    Their blocks without a probe weigh 0."""
    members, labels = lates.member_logits(probes, rows), rows.labels
    if solver == "sgd":  # thousands of tiny steps: a GPU would wait for the host at each
        members, labels = {name: logits.cpu() for name, logits in members.items()}, labels.cpu()
    stack = lates.fit_stack(members, labels, solver=solver, passes=rows.passes, **options)
    return lates.CalibratedModel.assemble(network, [probes], stack, [rows.poolings])
