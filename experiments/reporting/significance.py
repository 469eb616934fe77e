"""Is one method better than another by more than chance? Tests and effect sizes on paired gains.

A gain is how much better `method` is than `rival` on the same test images, positive is better, laid out as
[networks, corruptions, severities]. Choices, stated once:

- *Unit.* The paper pairs every (network, seed, corruption, severity). The 95 corrupted sets of one network share its
  weights and its test images, so these pairs are strongly dependent and the p-value is far too small. The honest unit
  is the trained network: one gain each, its mean over sets. With N networks no two-sided p lies below 2 / 2^N.
- *Zeros* are ranked, and their ranks split evenly between the two sides ("zsplit"), as in Demšar (2006), whom the
  paper follows. Gains are rounded to 1e-12 first, so that equal gains tie.
- *p-values* are two-sided; exact up to 50 pairs (by permutation if there are ties, up to 13), normal beyond.
- *Holm's family* is one column of a table: one comparison and one unit, over its metrics x data sets.
- *ANOVA.* Repeated measures with the corruption type as the subject and the method as the only factor, on means over
  networks, seeds and severities. With two methods F(1, types − 1) = t² of the paired t-test = types · dz².
- *Bootstrap.* Architectures are drawn with replacement, then seeds within them, crossed with test images (in 200 blocks,
  the same for every network) where a metric is a mean over images: log-loss, Brier score, accuracy. ECE and areas under
  curves are not; there they are crossed with corruption types, each with all its severities, and the interval does not
  cover the choice of the 10,000 test images.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from experiments.data.corruptions import NAMES, SEVERITIES
from experiments.evaluation.image_blocks import BLOCKS, IMAGE_METRICS
from experiments.reporting.names import LARGER_IS_BETTER
from experiments.reporting.summaries import CLEAN_SET, MISSING, Measured, sets_of

Array = NDArray[np.float64]

TIE = 12  # decimals


def corrupted_gains(
    cells: Sequence[Measured], method: str, rival: str, metric: str, corruptions: Sequence[str] = NAMES
) -> Array:
    """[networks, corruptions, severities], positive where `method` is better; networks that lack a set are left out."""
    sets = sets_of(corruptions)
    gains = np.asarray([_gains(cell, method, rival, metric, sets) for cell in cells])
    gains = gains.reshape(len(cells), len(corruptions), len(SEVERITIES))
    return gains[np.isfinite(gains).all(axis=(1, 2))]


def clean_gains(cells: Sequence[Measured], method: str, rival: str, metric: str) -> Array:
    """[networks] on the clean test set."""
    gains = np.asarray([_gains(cell, method, rival, metric, CLEAN_SET) for cell in cells]).ravel()
    return gains[np.isfinite(gains)]


def _gains(cell: Measured, method: str, rival: str, metric: str, sets: Sequence[str]) -> Array:
    difference = cell.values(method, metric, sets) - cell.values(rival, metric, sets)
    return difference if metric in LARGER_IS_BETTER else -difference


def image_gains(cells: Sequence[Measured], method: str, rival: str, metric: str, groups: Mapping[str, int]) -> Array:
    """[networks, blocks of test images], positive where `method` is better: the mean over groups of test sets, weighted.

    Networks that lack a group are left out.
    """
    gains: list[Array] = []
    for cell in cells:
        if all((name, group) in cell.blocks for name in (method, rival) for group in groups):
            place = IMAGE_METRICS.index(metric)
            parts = [
                weight * (cell.blocks[method, group][place] - cell.blocks[rival, group][place])
                for group, weight in groups.items()
            ]
            gains.append(np.sum(parts, axis=0) / sum(groups.values()))
    sign = 1 if metric in LARGER_IS_BETTER else -1
    return sign * np.asarray(gains) if gains else np.empty((0, BLOCKS))


def network_gains(gains: Array) -> Array:
    """[networks]: each trained network's mean gain over its test sets."""
    return gains.reshape(len(gains), -1).mean(axis=1) if gains.size else np.empty(0)


# Effect sizes


def cohen_dz(gains: Array) -> float:
    """Mean gain over the standard deviation of gains (n − 1); missing for fewer than two or without spread."""
    if gains.size < 2 or (deviation := float(gains.std(ddof=1))) == 0:
        return MISSING
    return float(gains.mean()) / deviation


@dataclass(frozen=True)
class SignedRank:
    """Wilcoxon's signed rank test. `rank_biserial` is (R₊ − R₋) / (R₊ + R₋): 1 if every gain is positive."""

    pairs: int
    better: int
    p: float
    rank_biserial: float


def signed_rank(gains: Array) -> SignedRank:
    """Two-sided; of no pairs at all everything is missing, of zeros alone p is 1."""
    rounded = np.round(gains.ravel(), TIE)
    if rounded.size == 0:
        return SignedRank(0, 0, MISSING, MISSING)
    if not rounded.any():
        return SignedRank(rounded.size, 0, 1.0, 0.0)
    ranks = stats.rankdata(np.abs(rounded))
    balance = float(ranks @ np.sign(rounded) / ranks.sum())
    _, p = np.asarray(stats.wilcoxon(rounded, zero_method="zsplit", correction=False, method="auto"))
    return SignedRank(rounded.size, int((rounded > 0).sum()), float(p), balance)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction over one family; missing tests stay missing and do not count."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)[: np.isfinite(p).sum()]  # NaN sorts last
    adjusted = p.copy()
    adjusted[order] = np.maximum.accumulate(np.minimum(p[order] * np.arange(len(order), 0, -1), 1))
    return adjusted.tolist()


@dataclass(frozen=True)
class RepeatedMeasures:
    """F(df1, df2) of the repeated-measures ANOVA, its p, and Cohen's dz over corruption types."""

    F: float
    df1: int
    df2: int
    p: float
    dz: float


def anova(gains: Array) -> RepeatedMeasures | None:
    """Of gains [networks, corruptions, severities]; None without networks, two corruptions or any spread of gains."""
    by_corruption = gains.mean(axis=(0, 2)) if gains.size else np.empty(0)
    types, dz = len(by_corruption), cohen_dz(by_corruption)
    if math.isnan(dz):
        return None
    F = types * dz**2
    return RepeatedMeasures(F, 1, types - 1, float(stats.f.sf(F, 1, types - 1)), dz)


@dataclass(frozen=True)
class MeanGain:
    """The mean gain and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float
    networks: int


def bootstrap_gain(by_architecture: Sequence[Array], *, draws: int = 10_000, seed: int = 0) -> MeanGain:
    """Percentile interval of the mean of gains [seeds, things] of each architecture, every factor redrawn.

    Architectures are drawn with replacement, then the seeds of each that was drawn: seeds of one architecture resemble
    one another, and drawing all networks alike would take them for independent. Things, corruption types or blocks of
    test images, are crossed with both. An architecture counts once, however many seeds it has.
    """
    present = [gains for gains in by_architecture if len(gains)]
    if not present:
        return MeanGain(MISSING, MISSING, MISSING, 0)
    v, random = _redraw(present[0].shape[1], draws, seed)
    chosen = random.multinomial(len(present), np.full(len(present), 1 / len(present)), size=draws)
    means = np.zeros(draws)
    for times, gains in zip(chosen.T, present, strict=True):
        seeds = len(gains)
        u = random.multinomial(times * seeds, np.full(seeds, 1 / seeds)) / seeds
        means += (u * (v @ gains.T)).sum(axis=1) / len(present)
    low, high = np.quantile(means, [0.025, 0.975])
    mean = float(np.mean([gains.mean() for gains in present]))
    return MeanGain(mean, float(low), float(high), sum(map(len, present)))


def _redraw(things: int, draws: int, seed: int) -> tuple[Array, np.random.Generator]:
    """What share each thing has of each draw, [draws, things], and the generator that drew it, for more."""
    shares, state = _shares(things, draws, seed)
    random = np.random.default_rng()
    random.bit_generator.state = state
    return shares, random


@lru_cache(maxsize=4)
def _shares(things: int, draws: int, seed: int) -> tuple[Array, Mapping[str, Any]]:
    """The costly part, the same in every comparison."""
    random = np.random.default_rng(seed)
    shares = random.multinomial(things, np.full(things, 1 / things), size=draws) / things
    return shares, random.bit_generator.state
