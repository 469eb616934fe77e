"""Methods compared: on how many networks one is better, the paper's two tests beside ours, effect sizes with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.data.corruptions import CIFAR100_C, LIKE_JITTER, NAMES, UNLIKE_JITTER
from experiments.evaluation.image_blocks import CLEAN_GROUP, IMAGE_METRICS, LIKE_GROUP, UNLIKE_GROUP
from experiments.recipes import CIFAR_SETS
from experiments.reporting import paper
from experiments.reporting.names import BUDGETS, DATASET_TITLES, METRIC_TITLES, method_title
from experiments.reporting.significance import (
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
from experiments.reporting.summaries import Measured, all_trained, by_architecture, trained
from experiments.reporting.tables.markdown import ABSENT, Table, merge_missing, number, p_value, signed
from experiments.reporting.tables.scores import mc_title, titles

# At a glance


@dataclass(frozen=True)
class Expectation:
    """That `method` is better than `rival` in the mean over these corruptions; without any, on the clean test set."""

    title: str
    corruptions: tuple[str, ...]
    method: str
    rival: str
    datasets: tuple[str, ...] = CIFAR_SETS


CLEAN = ()
ALL, UNLIKE = ("corrupted", NAMES), ("corrupted, unlike the jitter", UNLIKE_JITTER)
WITHIN_ONE_PERCENT = ("lates_none_1", "lates_shift_1", "lates_jitter_1")
EXPECTATIONS = (
    *(
        Expectation(f"clean, {DATASET_TITLES[dataset]}", CLEAN, method, "temperature", (dataset,))
        for method in ("lates_none_1", "lates_shift_1")
        for dataset in reversed(CIFAR_SETS)
    ),
    Expectation(*ALL, "lates_shift_1", "temperature"),
    Expectation(*ALL, "lates_jitter_1", "temperature"),
    Expectation(*UNLIKE, "lates_jitter_1", "temperature"),
    *(Expectation(*ALL, f"lates_jitter_{budget}", "temperature_jittered_holdout") for budget in BUDGETS),
    Expectation(*UNLIKE, "lates_jitter_1", "temperature_jittered_holdout"),
    Expectation(*ALL, "lates_both_holdouts", "temperature_jittered_holdout"),
    Expectation(*UNLIKE, "lates_both_holdouts", "temperature_jittered_holdout"),
)


def expectations(measured: Sequence[Measured]) -> Table:
    note = (
        "By the mean over the test sets, of the networks on which both were measured. LATES, hold-out plain and jittered, has "
        "jittered views too."
    )
    networks = _networks(measured, CIFAR_SETS)
    if networks:
        parameters, flops = (_most_added(networks, fact) for fact in ("parameters", "flops"))
        note += f" Within 1 % it adds at most {number(parameters, 2)} % to a network's parameters and "
        note += f"{number(flops, 3)} % to its FLOPs."
    header = ("test sets", "method", "better than", *titles(paper.METRICS))
    rows = tuple(
        (each.title, method_title(each.method), method_title(each.rival), *_counts(measured, each))
        for each in EXPECTATIONS
    )
    return Table("expectations", "On how many networks LATES is better", header, rows, note, text_columns=3)


def _networks(measured: Sequence[Measured], datasets: Sequence[str]) -> list[Measured]:
    return [cell for dataset in datasets for cell in all_trained(measured, dataset)]


def _counts(measured: Sequence[Measured], expected: Expectation) -> list[str]:
    networks = _networks(measured, expected.datasets)
    pair = (expected.method, expected.rival)
    gains = [
        network_gains(corrupted_gains(networks, *pair, metric, expected.corruptions))
        if expected.corruptions
        else clean_gains(networks, *pair, metric)
        for metric in paper.METRICS
    ]
    return [f"{(each > 0).sum()} of {each.size}" if each.size else ABSENT for each in gains]


def _most_added(networks: Sequence[Measured], fact: str) -> float:
    """In percent; missing if one is: a maximum over a part would pass for the whole."""
    return float(np.max([100 * cell.fact("methods", each, fact) for cell in networks for each in WITHIN_ONE_PERCENT]))


# Tests


@dataclass(frozen=True)
class Comparison:
    method: str
    rival: str

    @property
    def title(self) -> str:
        return f"{method_title(self.method)} — {method_title(self.rival)}"


PAPERS_OWN = Comparison("lates_paper", "temperature_sgd")
COMPARISONS = (
    PAPERS_OWN,
    Comparison("lates_none_1", "temperature"),
    Comparison("lates_shift_1", "temperature"),
    Comparison("lates_jitter_1", "temperature"),
    Comparison("lates_jitter_1", "temperature_jittered_holdout"),
    Comparison("lates_jittered_holdout", "temperature_jittered_holdout"),
    Comparison("lates_shift_1", "head_refitted_shift"),
    Comparison("lates_jitter_1", "head_refitted_jitter"),
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
            printed = paper.WILCOXON[dataset][metric] if comparison == PAPERS_OWN else ABSENT
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
        merge_missing(rows, shared=2, text_columns=3),
        "Two-sided. Holm's family is one comparison's metrics x data sets that were run, for sets and for networks "
        "apart. Zeros are ranked and split evenly. r: rank-biserial correlation, dz: mean over deviation of "
        "the networks' gains. Sets of one network are not independent: their p is far too small. The networks' p, "
        "which with N of them cannot be less than 2 / 2^N, speaks of these architectures: seeds of one resemble one another."
        " Both methods of the first comparison are fitted by SGD as in the paper, all others exactly.",
        text_columns=3,
    )


def _share(test: SignedRank) -> str:
    return f"{test.better} / {test.pairs}" if test.pairs else ABSENT


def anova_table(measured: Sequence[Measured]) -> Table:
    rows: list[tuple[str, ...]] = []
    for comparison in COMPARISONS:
        for dataset in paper.DATASETS:
            for metric in paper.METRICS:
                printed = paper.ANOVA[dataset][metric] if comparison == PAPERS_OWN else None
                beside = (f"F(1, 16) = {printed.F}".replace("= <", "<"), printed.p) if printed else (ABSENT, ABSENT)
                architectures = by_architecture(measured, dataset)
                ours = (
                    text
                    for types in (CIFAR100_C, NAMES)
                    for text in _anova_cells(architectures, comparison, metric, types)
                )
                rows.append((comparison.title, DATASET_TITLES[dataset], METRIC_TITLES[metric], *beside, *ours))
    header = ("comparison", "data set", "metric", "paper", "p, paper", "17 types", "p", "dz", "all 19", "p", "dz")
    return Table(
        "anova",
        "Repeated-measures ANOVA over corruption types",
        header,
        merge_missing(rows, shared=2, text_columns=3),
        "The subject is the corruption type, its value the mean over seeds, then architectures, and over severities. 17 types "
        "are those of CIFAR-100 in Uncertainty Baselines, which give the paper's F(1, 16). dz: mean over deviation of the "
        "types' gains, negative where LATES is worse (F does not say). p is not corrected, as in the paper.",
        text_columns=3,
    )


def _anova_cells(
    architectures: Sequence[Sequence[Measured]], comparison: Comparison, metric: str, types: Sequence[str]
) -> tuple[str, str, str]:
    gains = [corrupted_gains(cells, comparison.method, comparison.rival, metric, types) for cells in architectures]
    means = [each.mean(axis=0) for each in gains if len(each)]
    test = anova(np.stack(means)) if means else None
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
            architectures = by_architecture(measured, dataset)
            for metric in paper.METRICS:
                where = (comparison.title, DATASET_TITLES[dataset], METRIC_TITLES[metric])
                rows.append((*where, *_effects(architectures, comparison, metric)))
    header = ("comparison", "data set", "metric", "clean [95 %]", "networks better")
    grouped = tuple(text for group in GROUPS for text in (f"{group.title} [95 %]", "networks better"))
    return Table(
        "effects",
        "Mean gains in the metric's own units, positive is better: corruptions like the jitter and unlike it, apart",
        (*header, *grouped),
        merge_missing(rows, shared=2, text_columns=3),
        "Each architecture counts once, however many seeds it has. Intervals: bootstrap of 10,000 draws over architectures, "
        "within them over seeds, crossed with test images (in 200 blocks) for NLL, Brier score and accuracy. ECE and AUC are "
        "no means over images: there, crossed with corruption types, each with its five severities, and on the clean set "
        "with nothing. So too where the images' values of one of the methods were not kept.",
        text_columns=3,
    )


def _effects(architectures: Sequence[Sequence[Measured]], comparison: Comparison, metric: str) -> list[str]:
    pair = (comparison.method, comparison.rival, metric)
    found = _clean_effect(architectures, comparison, metric)
    for group in GROUPS:
        gains = [corrupted_gains(cells, *pair, group.types) for cells in architectures]
        by_network = [network_gains(each) for each in gains]
        by_images = _redrawn(architectures, pair, group.blocks, by_network)
        found += _effect(by_network, by_images or [each.mean(axis=2) for each in gains])
    return found


def _clean_effect(architectures: Sequence[Sequence[Measured]], comparison: Comparison, metric: str) -> list[str]:
    pair = (comparison.method, comparison.rival, metric)
    gains = [clean_gains(cells, *pair) for cells in architectures]
    by_images = _redrawn(architectures, pair, {CLEAN_GROUP: 1}, gains)
    return _effect(gains, by_images or [each[:, None] for each in gains])


def _redrawn(
    architectures: Sequence[Sequence[Measured]],
    pair: tuple[str, str, str],
    groups: Mapping[str, int],
    by_network: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """Gains by blocks of images, of a metric that is a mean over images; nothing where a network that is counted kept none of
    one of the methods: the mean would be of some networks and the count beside it of all.
    """
    if pair[2] not in IMAGE_METRICS:
        return []
    gains = [image_gains(cells, *pair, groups) for cells in architectures]
    return gains if list(map(len, gains)) == list(map(len, by_network)) else []


def _effect(by_network: Sequence[np.ndarray], redrawn: Sequence[np.ndarray]) -> list[str]:
    """The mean gain with the interval of what is `redrawn`, and how many networks gain."""
    better = _share(signed_rank(np.concatenate(by_network)))
    found = bootstrap_gain(redrawn)
    if not found.networks:
        return [ABSENT, better]
    if found.low == found.high:
        return [signed(found.mean, 4), better]  # of one network, with nothing to cross it with
    return [f"{signed(found.mean, 4)} [{signed(found.low, 4)}, {signed(found.high, 4)}]", better]


MC_COMPARISONS = (
    Comparison("mcd_temperature", "mcd"),
    Comparison("mcd_lates", "mcd_temperature"),
    Comparison("mcd_lates_shift", "mcd_temperature"),
    Comparison("mcd_lates_shift", "mcd_lates"),
    Comparison("lates_none_1", "temperature"),
    Comparison("lates_shift_1", "temperature"),
    Comparison("lates_shift_1", "lates_none_1"),
    Comparison("lates_none_1", "mcd_temperature"),
    Comparison("lates_shift_1", "mcd_temperature"),
    Comparison("mcd_lates", "lates_none_1"),
)
"""What each step adds with dropout on, and off, and whether one pass can take the place of ten."""


def mc_dropout_gains(measured: Sequence[Measured]) -> Table:
    rows: list[tuple[str, ...]] = []
    metrics = ("ece", *IMAGE_METRICS)
    for dataset, rate in paper.MC_DROPOUT:
        cells = trained(measured, dataset, "wide_resnet_28_10", dropout=rate)
        for comparison in MC_COMPARISONS:
            gains = [_clean_effect([cells], comparison, metric)[0] for metric in metrics]
            methods = (mc_title(comparison.method), mc_title(comparison.rival))
            rows.append((DATASET_TITLES[dataset], f"{rate:g}", *methods, str(len(cells)), *gains))
    return Table(
        "mc_dropout_gains",
        "WRN-28-10 with Monte Carlo dropout: gains on the clean test set, positive is better",
        ("data set", "dropout", "method", "over", "seeds", *(f"{METRIC_TITLES[metric]} [95 %]" for metric in metrics)),
        merge_missing(rows, shared=2, text_columns=5),
        "Brier is the standard one. Intervals: bootstrap of 10,000 draws over seeds, crossed with test images (in 200 blocks) "
        "where the metric is a mean over images; of one seed they are of the test images alone, and say nothing of another "
        "training or of other masks.",
        text_columns=4,
    )
