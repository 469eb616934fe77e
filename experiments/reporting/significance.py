"""Is one method better than another by more than chance? Paired gains, intervals and tests.

A gain is how much better `method` is than `rival` on the same test images; positive is better. What was named beforehand, the
unit (the architecture), and how to read both intervals stand on the page `results/statistics.md`. In addition:

- *Bootstrap*: architectures are drawn with replacement, then seeds within them, crossed with test images (in 200 blocks, the
  same for every network) where a metric is a mean over images, else with corruption types, each with all its severities.
- *The paper's tests*, only to stand beside its numbers: Wilcoxon's signed rank with every (network, corrupted set) as a pair,
  zeros ranked and split evenly, p exact up to 50 pairs; and the repeated-measures ANOVA with the corruption type as subject, on
  means over networks and severities. With two methods F(1, types − 1) is t² of the paired t-test.
"""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from experiments.evaluation.image_blocks import BLOCKS, IMAGE_METRICS
from experiments.reporting.names import sign
from experiments.reporting.summaries import MISSING, Architectures, Group, Measured

Array = NDArray[np.float64]

TIE = 12  # decimals
DRAWS = 4_000  # of the bootstrap


# Gains


def mean_gains(cells: Sequence[Measured], method: str, rival: str, metric: str, groups: Sequence[Sequence[str]]) -> Array:
    """[networks, groups], positive where `method` is better: the mean over those test sets of a group that the network's recipe
    measures. Networks that lack one are left out."""
    gains = [[_gains(cell, method, rival, metric, cell.asked(sets)).mean() for sets in groups] for cell in cells]
    found = np.asarray(gains).reshape(len(cells), len(groups))
    return found[np.isfinite(found).all(axis=1)]


def network_gains(cells: Sequence[Measured], method: str, rival: str, metric: str, sets: Sequence[str]) -> Array:
    """[networks]: the mean over test sets."""
    return mean_gains(cells, method, rival, metric, [sets])[:, 0]


def architecture_gains(architectures: Architectures, method: str, rival: str, metric: str, sets: Sequence[str]) -> Array:
    """[architectures that were run]: the mean over seeds."""
    by_architecture = [network_gains(cells, method, rival, metric, sets) for cells in architectures]
    return np.asarray([gains.mean() for gains in by_architecture if len(gains)])


def count_better(gains: Array) -> int:
    return int((np.round(gains, TIE) > 0).sum())


def _gains(cell: Measured, method: str, rival: str, metric: str, sets: Sequence[str]) -> Array:
    return sign(metric) * (cell.values(method, metric, sets) - cell.values(rival, metric, sets))


def image_gains(cells: Sequence[Measured], method: str, rival: str, metric: str, groups: Mapping[str, int]) -> Array:
    """[networks, blocks of test images], positive where `method` is better: the mean over groups of test sets, weighted.

    Networks that lack a group are left out.
    """
    place = IMAGE_METRICS.index(metric)
    gains: list[Array] = []
    for cell in cells:
        if all((name, group) in cell.blocks for name in (method, rival) for group in groups):
            parts = [
                weight * (cell.blocks[method, group][place] - cell.blocks[rival, group][place])
                for group, weight in groups.items()
            ]
            gains.append(np.sum(parts, axis=0) / sum(groups.values()))
    return sign(metric) * np.asarray(gains) if gains else np.empty((0, BLOCKS))


# One comparison


@dataclass(frozen=True)
class Interval:
    low: float = MISSING
    high: float = MISSING


@dataclass(frozen=True)
class Gain:
    """The mean over architectures; its two 95 % intervals; p of the two-sided t-test over architectures; how many networks of
    how many gain. What does not exist is missing: of one architecture there is no t interval."""

    mean: float
    bootstrap: Interval
    t: Interval
    p: float
    architectures: int
    better: int
    networks: int


def compare(architectures: Architectures, method: str, rival: str, metric: str, group: Group) -> Gain:
    pair = (method, rival, metric)
    by_network = [network_gains(cells, *pair, group.sets) for cells in architectures]
    if not any(map(len, by_network)):
        return Gain(MISSING, Interval(), Interval(), MISSING, 0, 0, 0)
    redrawn = [image_gains(cells, *pair, group.blocks) for cells in architectures] if metric in IMAGE_METRICS else []
    if list(map(len, redrawn)) != list(map(len, by_network)):  # a network kept no images: its mean would be missing
        redrawn = [mean_gains(cells, *pair, group.by_type) for cells in architectures]
    means = np.asarray([gains.mean() for gains in by_network if len(gains)])
    everything = np.concatenate(by_network)
    t, p = t_test(means)
    return Gain(float(means.mean()), bootstrap(redrawn), t, p, len(means), count_better(everything), everything.size)


def t_test(values: Array) -> tuple[Interval, float]:
    """The 95 % interval of the mean and the two-sided p of mean 0; missing for fewer than two, or without spread."""
    if len(values) < 2 or (deviation := float(values.std(ddof=1))) == 0:
        return Interval(), MISSING
    mean, error, freedom = float(values.mean()), deviation / math.sqrt(len(values)), len(values) - 1
    half = float(stats.t.ppf(0.975, freedom)) * error
    return Interval(mean - half, mean + half), 2 * float(stats.t.sf(abs(mean) / error, freedom))


def bootstrap(by_architecture: Sequence[Array]) -> Interval:
    """Percentile interval of the mean of gains [seeds, things] of each architecture, every factor redrawn.

    Architectures are drawn with replacement, then the seeds of each that was drawn. Things, corruption types or blocks of test
    images, are crossed with both. Missing where nothing varies: of one network and one thing.
    """
    present = [gains for gains in by_architecture if len(gains)]
    if not present or (len(present) == 1 and present[0].size == 1):
        return Interval()
    v, random = _redraw(present[0].shape[1])
    random = deepcopy(random)
    chosen = random.multinomial(len(present), np.full(len(present), 1 / len(present)), size=DRAWS)
    means = np.zeros(DRAWS)
    for times, gains in zip(chosen.T, present, strict=True):
        seeds = len(gains)
        u = random.multinomial(times * seeds, np.full(seeds, 1 / seeds)) / seeds
        means += (u * (v @ gains.T)).sum(axis=1) / len(present)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(low), float(high))


@lru_cache(maxsize=4)
def _redraw(things: int) -> tuple[Array, np.random.Generator]:
    """What share each thing has of each draw, [draws, things], the same in every comparison; and the generator, for more."""
    random = np.random.default_rng(0)
    return random.multinomial(things, np.full(things, 1 / things), size=DRAWS) / things, random


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction over one family; missing tests stay missing and do not count."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)[: np.isfinite(p).sum()]  # NaN sorts last
    adjusted = p.copy()
    adjusted[order] = np.maximum.accumulate(np.minimum(p[order] * np.arange(len(order), 0, -1), 1))
    return adjusted.tolist()


# The paper's tests


def signed_rank(gains: Array) -> float:
    """p of Wilcoxon's signed rank test, two-sided; missing without pairs, 1 for zeros alone."""
    rounded = np.round(gains.ravel(), TIE)
    if not rounded.any():
        return 1.0 if rounded.size else MISSING
    _, p = np.asarray(stats.wilcoxon(rounded, zero_method="zsplit", correction=False, method="auto"))
    return float(p)


def anova(gains: Array) -> tuple[float, float]:
    """F(1, types − 1) of the repeated-measures ANOVA of gains [networks, corruption types], and its p; missing without
    networks, two types or any spread of gains."""
    by_type = gains.mean(axis=0) if gains.size else np.empty(0)
    _, p = t_test(by_type)
    if math.isnan(p):
        return MISSING, MISSING
    return len(by_type) * float(by_type.mean()) ** 2 / float(by_type.var(ddof=1)), p
