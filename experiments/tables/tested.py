"""Significance: the paper's two tests beside ours, and effect sizes with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments import paper
from experiments.corruptions import CIFAR100_C, LIKE_JITTER, NAMES, UNLIKE_JITTER
from experiments.images import CLEAN_GROUP, IMAGE_METRICS, LIKE_GROUP, UNLIKE_GROUP
from experiments.significance import (
    SignedRank,
    anova,
    bootstrap_gain,
    clean_gains,
    cohen_dz,
    corrupted_gains,
    holm,
    image_gains,
    network_gains,
    signed_rank,
)
from experiments.summaries import DATASET_TITLES, METRIC_TITLES, Measured, all_trained, method_title
from experiments.tables.markdown import ABSENT, Table, number, p_value, signed


@dataclass(frozen=True)
class Comparison:
    method: str
    rival: str

    @property
    def title(self) -> str:
        return f"{method_title(self.method)} — {method_title(self.rival)}"


COMPARISONS = (
    Comparison("lates_none_1", "temperature"),
    Comparison("lates_shift_1", "temperature"),
    Comparison("lates_jitter_1", "temperature"),
    Comparison("lates_jitter_1", "temperature_jittered_holdout"),
)


def wilcoxon(measured: Sequence[Measured]) -> Table:
    rows: list[tuple[str, ...]] = []
    places = [(dataset, metric) for dataset in paper.DATASETS for metric in paper.METRICS]
    for comparison in COMPARISONS:
        gains = [
            corrupted_gains(all_trained(measured, dataset), comparison.method, comparison.rival, metric)
            for dataset, metric in places
        ]
        by_pair = [signed_rank(each) for each in gains]
        by_network = [signed_rank(network_gains(each)) for each in gains]
        adjusted = zip(holm([test.p for test in by_pair]), holm([test.p for test in by_network]), strict=True)
        tests = zip(places, gains, by_pair, by_network, adjusted, strict=True)
        for (dataset, metric), gain, pairs, networks, (p_pairs, p_networks) in tests:
            ours = comparison == COMPARISONS[0]
            printed = paper.WILCOXON[dataset][metric] if ours else ABSENT
            effect = (number(networks.rank_biserial, 2), number(cohen_dz(network_gains(gain)), 2))
            where = (comparison.title, DATASET_TITLES[dataset], METRIC_TITLES[metric])
            of_pairs = (_share(pairs), number(pairs.rank_biserial, 2), p_value(pairs.p), p_value(p_pairs))
            of_networks = (_share(networks), *effect, p_value(networks.p), p_value(p_networks))
            rows.append((*where, printed, *of_pairs, *of_networks))
    over_sets = ("sets better", "r", "p", "p, Holm")
    over_networks = ("networks better", "r", "dz", "p", "p, Holm")
    return Table(
        "wilcoxon",
        "Wilcoxon signed rank over corrupted test sets: every set a pair, as in the paper, then every network",
        ("comparison", "data set", "metric", "p, paper", *over_sets, *over_networks),
        tuple(rows),
        "Two-sided. Holm's family is one comparison's metrics x data sets that were run, for sets and for networks "
        "apart. Zeros are ranked and split evenly. r: rank-biserial correlation, dz: mean over deviation of "
        "the networks' gains. Sets of one network are not independent: their p is far too small; the networks' is the "
        "one to trust, and with N of them it cannot be less than 2 / 2^N.",
        text_columns=3,
    )


def _share(test: SignedRank) -> str:
    return f"{test.better} / {test.pairs}" if test.pairs else ABSENT


def anova_table(measured: Sequence[Measured]) -> Table:
    rows: list[tuple[str, ...]] = []
    for comparison in COMPARISONS:
        for dataset in paper.DATASETS:
            for metric in paper.METRICS:
                printed = paper.ANOVA[dataset][metric] if comparison == COMPARISONS[0] else None
                beside = (f"F(1, 16) = {printed.F}".replace("= <", "<"), printed.p) if printed else (ABSENT, ABSENT)
                cells = all_trained(measured, dataset)
                ours = (
                    text for types in (CIFAR100_C, NAMES) for text in _anova_cells(cells, comparison, metric, types)
                )
                rows.append((comparison.title, DATASET_TITLES[dataset], METRIC_TITLES[metric], *beside, *ours))
    header = ("comparison", "data set", "metric", "paper", "p, paper", "17 types", "p", "dz", "all 19", "p", "dz")
    return Table(
        "anova",
        "Repeated-measures ANOVA over corruption types",
        header,
        tuple(rows),
        "The subject is the corruption type, its value the mean over networks, seeds and severities. 17 types are those of "
        "CIFAR-100 in Uncertainty Baselines, which give the paper's F(1, 16). dz: mean over deviation of the types' gains, "
        "negative where LATES is worse (F does not say). p is not corrected, as in the paper.",
        text_columns=3,
    )


def _anova_cells(
    cells: Sequence[Measured], comparison: Comparison, metric: str, types: Sequence[str]
) -> tuple[str, str, str]:
    test = anova(corrupted_gains(cells, comparison.method, comparison.rival, metric, types))
    if test is None:
        return ABSENT, ABSENT, ABSENT
    return f"F({test.df1}, {test.df2}) = {test.F:.2f}", p_value(test.p), number(test.dz, 2)


@dataclass(frozen=True)
class Group:
    """Corruption types by name, and the same as groups of blocks, each with its number of types."""

    title: str
    types: tuple[str, ...]
    blocks: Mapping[str, int]


LIKE, UNLIKE = {LIKE_GROUP: len(LIKE_JITTER)}, {UNLIKE_GROUP: len(UNLIKE_JITTER)}
GROUPS = (
    Group("all 19", NAMES, {**LIKE, **UNLIKE}),
    Group("like the jitter", LIKE_JITTER, LIKE),
    Group("unlike it", UNLIKE_JITTER, UNLIKE),
)


def effects(measured: Sequence[Measured]) -> Table:
    rows: list[tuple[str, ...]] = []
    for comparison in COMPARISONS:
        for dataset in paper.DATASETS:
            cells = all_trained(measured, dataset)
            for metric in paper.METRICS:
                where = (comparison.title, DATASET_TITLES[dataset], METRIC_TITLES[metric])
                rows.append((*where, *_effects(cells, comparison, metric)))
    header = ("comparison", "data set", "metric", "clean [95 %]", "networks better")
    grouped = tuple(text for group in GROUPS for text in (f"{group.title} [95 %]", "networks better"))
    return Table(
        "effects",
        "Mean gains in the metric's own units, positive is better: corruptions like the jitter and unlike it, apart",
        (*header, *grouped),
        tuple(rows),
        "Intervals: bootstrap of 10,000 draws. NLL, Brier score and accuracy: over networks x test images, crossed (images "
        "in 200 blocks). ECE and AUC, which are no means over images: over networks x corruption types, each with its five "
        "severities; the clean set has none.",
        text_columns=3,
    )


def _effects(cells: Sequence[Measured], comparison: Comparison, metric: str) -> list[str]:
    method, rival = comparison.method, comparison.rival
    clean = clean_gains(cells, method, rival, metric)
    mean = signed(float(np.mean(clean)), 4) if clean.size else ABSENT
    if metric in IMAGE_METRICS:
        mean = _interval(image_gains(cells, method, rival, metric, {CLEAN_GROUP: 1}), mean)
    found = [mean, _share(signed_rank(clean))]
    for group in GROUPS:
        gains = corrupted_gains(cells, method, rival, metric, group.types)
        spread = gains.mean(axis=2) if gains.size else gains
        if metric in IMAGE_METRICS:
            spread = image_gains(cells, method, rival, metric, group.blocks)
        found += [_interval(spread), _share(signed_rank(network_gains(gains)))]
    return found


def _interval(gains: np.ndarray, otherwise: str = ABSENT) -> str:
    found = bootstrap_gain(gains)
    if not found.networks:
        return otherwise
    return f"{signed(found.mean, 4)} [{signed(found.low, 4)}, {signed(found.high, 4)}]"
