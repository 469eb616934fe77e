"""Pairs of a method and a rival: the primary family, all gains with intervals, numbers of networks, the paper's tests."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

from experiments.data.corruptions import CIFAR100_C, NAMES
from experiments.data.natural import IMAGES, SYNSETS
from experiments.evaluation.image_blocks import IMAGE_METRICS
from experiments.evaluation.methods import BUDGETS
from experiments.recipes import CIFAR_SETS
from experiments.reporting import paper
from experiments.reporting.names import (
    CIFAR,
    DATASET_TITLES,
    DEFAULT,
    METRIC_TITLES,
    NETWORK_TITLES,
    PRIMARY_RIVAL,
    TRAINING_TITLES,
    method_title,
)
from experiments.reporting.significance import (
    Array,
    Gain,
    anova,
    compare,
    corrupted_gains,
    count_better,
    holm,
    network_gains,
    signed_rank,
)
from experiments.reporting.summaries import (
    GROUPS,
    PAPER_TRAINING,
    PUBLIC_TRAINING,
    STRONG_TRAINING,
    TRAININGS,
    Architectures,
    Measured,
    all_trained,
    by_architecture,
    mean_over_networks,
    trained,
    with_common_seeds,
)
from experiments.reporting.tables.markdown import (
    ABSENT,
    NOT_RUN,
    Table,
    interval,
    merge_missing,
    number,
    p_value,
    signed,
)
from experiments.reporting.tables.scores import front_methods, mc_title, titles


def better_of(gains: Array, missing: str = ABSENT) -> str:
    return f"{count_better(gains)} of {gains.size}" if gains.size else missing


def shown(gain: Gain) -> tuple[str, str, str, str]:
    """Mean, bootstrap, t, and on how many networks."""
    better = f"{gain.better} of {gain.networks}" if gain.networks else ABSENT
    return signed(gain.mean, 4), interval(gain.bootstrap), interval(gain.t), better


GAIN_COLUMNS = ("gain", "bootstrap, 95 %", "t over architectures, 95 %", "networks better")


# Named beforehand


PRIMARY = (DEFAULT, PRIMARY_RIVAL)


def primary(measured: Sequence[Measured]) -> Table:
    equal = {dataset: with_common_seeds(by_architecture(measured, dataset, STRONG_TRAINING)) for dataset in CIFAR}
    rows: list[tuple[str, ...]] = []
    places = list(product(CIFAR, ("clean", "corrupted")))
    for endpoint, metric in (("primary", "nll"), ("second", "ece_smooth")):
        compared = [compare(equal[dataset], *PRIMARY, metric, GROUPS[group]) for dataset, group in places]
        corrected = holm([gain.p for gain in compared])
        for (dataset, group), gain, p in zip(places, compared, corrected, strict=True):
            where = (endpoint, METRIC_TITLES[metric], DATASET_TITLES[dataset], group)
            rows.append((*where, *shown(gain), str(gain.architectures), p_value(gain.p), p_value(p)))
    header = ("endpoint", "metric", "data set", "test sets", *GAIN_COLUMNS, "architectures", "p", "p, Holm")
    return Table(
        "primary",
        f"{' against '.join(map(method_title, PRIMARY))}, networks of the strong recipe",
        header,
        merge_missing(rows, shared=3, text_columns=4) if any(row[4] != ABSENT for row in rows) else _not_run(rows),
        "Named before it was run. The unit is the architecture, each with the same seeds. p: two-sided t-test over "
        "architectures; Holm's family is the four comparisons of one endpoint. All other comparisons are exploratory.",
        text_columns=4,
    )


def _not_run(rows: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    return tuple((*row[:4], NOT_RUN, *[ABSENT] * (len(row) - 5)) for row in rows)


# Exploratory


PAPERS_OWN = ("lates_paper", "temperature_sgd")
COMPARISONS = (
    PAPERS_OWN,
    *(
        (f"lates_{views}_1", rival)
        for views in ("none", "shift", "jitter", "robust")
        for rival in ("temperature", "vector_scaling", "sms", f"head_refitted_{views}")
    ),
    ("lates_jitter_1", "temperature_jittered_holdout"),
    ("lates_jittered_holdout", "temperature_jittered_holdout"),
    ("lates_both_holdouts", "temperature_jittered_holdout"),
    ("lates_last", "temperature_robust_holdout"),
    ("lates_last", "last_layer_grid"),
    ("lates_robust_sms", "lates_last"),
    ("lates_capped_rescaled", "temperature"),
    ("lates_capped_rescaled", "temperature_robust_holdout"),
    ("lates_capped_rescaled", "head_refitted_robust_holdout"),
    ("lates_capped_rescaled", "lates_last"),
    ("lates_robust_brier", "lates_last"),
    ("head_refitted_jitter", "temperature"),
)
METRICS = ("nll", "ece", "ece_smooth", "brier", "accuracy", "auc")


def gains(measured: Sequence[Measured]) -> Table:
    """For the CSV: every comparison that was run."""
    rows: list[tuple[str, ...]] = []
    for pair, training, dataset in product(COMPARISONS, TRAININGS, CIFAR):
        architectures = by_architecture(measured, dataset, training)
        for group, metric in product(GROUPS.values(), METRICS):
            gain = compare(architectures, *pair, metric, group)
            if gain.networks:
                where = (TRAINING_TITLES[training], DATASET_TITLES[dataset], group.title, METRIC_TITLES[metric])
                rows.append((*map(method_title, pair), *where, *shown(gain), str(gain.architectures)))
    where = ("networks trained by", "data set", "test sets", "metric")
    header = ("method", "over", *where, *GAIN_COLUMNS, "architectures")
    note = "In the metric's own units, positive is better. Exploratory: no correction for the number of comparisons."
    return Table("gains", "Every gain with its intervals", header, tuple(rows), note, text_columns=6)


ON_COPIES = ("temperature_robust_holdout", "sms_robust_holdout", "head_refitted_robust_holdout", "best_layer")
"""Rivals that saw robust views, of training or hold-out images."""
STRONG_PAIRS = (
    ("clean", "lates_last", "temperature"),
    ("clean", "lates_last", "sms"),
    ("corrupted", "lates_last", "temperature"),
    *(("corrupted", "lates_last", rival) for rival in ON_COPIES),
    ("bar", "lates_last", "temperature"),
    *(("corrupted", "lates_capped_rescaled", rival) for rival in ON_COPIES),
    *(("bar", "lates_capped_rescaled", rival) for rival in ON_COPIES),
    ("clean", "lates_robust_holdout", "temperature"),
    *(("corrupted", "lates_robust_holdout", rival) for rival in ON_COPIES),
    *(("bar", "lates_robust_holdout", rival) for rival in ON_COPIES),
)
PAPER_PAIRS = (
    ("clean", "lates_none_1", "temperature"),
    ("clean", "lates_shift_1", "temperature"),
    ("clean", "lates_shift_1", "vector_scaling"),
    ("clean", "lates_shift_1", "head_refitted_shift"),
    ("corrupted", "lates_none_1", "temperature"),
    ("corrupted", "lates_shift_1", "temperature"),
    ("corrupted", "lates_jitter_1", "temperature"),
    ("unlike", "lates_jitter_1", "temperature"),
    *(("corrupted", f"lates_jitter_{budget}", "temperature_jittered_holdout") for budget in BUDGETS),
    ("unlike", "lates_jitter_1", "temperature_jittered_holdout"),
    ("corrupted", "lates_jitter_1", "head_refitted_jitter"),
    ("corrupted", "lates_both_holdouts", "temperature_jittered_holdout"),
)


def wins(measured: Sequence[Measured]) -> Table:
    return _wins("wins", measured, STRONG_TRAINING, STRONG_PAIRS)


def paper_wins(measured: Sequence[Measured]) -> Table:
    return _wins("paper_wins", measured, PAPER_TRAINING, PAPER_PAIRS)


def _wins(name: str, measured: Sequence[Measured], training: str, pairs: Sequence[tuple[str, str, str]]) -> Table:
    """On how many networks of both data sets."""
    metrics = ("nll", "ece", "brier", "accuracy")
    rows: list[tuple[str, ...]] = []
    cells = [cell for dataset in CIFAR_SETS for cell in all_trained(measured, dataset, training)]
    for group, method, rival in pairs:
        by_metric = [network_gains(cells, method, rival, metric, GROUPS[group].sets) for metric in metrics]
        counts = [better_of(by_metric[0], NOT_RUN), *map(better_of, by_metric[1:])]
        rows.append((GROUPS[group].title, method_title(method), method_title(rival), *counts))
    header = ("test sets", "method", "better than", *titles(metrics))
    title = f"On how many networks LATES is better, {TRAINING_TITLES[training]}"
    note = "Both data sets, by the mean over the test sets. Seeds of one architecture are not independent."
    return Table(name, title, header, tuple(rows), note, text_columns=3)


# Natural shift


def natural(measured: Sequence[Measured]) -> Table:
    where, group, metrics = ("cifar10", PUBLIC_TRAINING), GROUPS["natural"], ("nll", "ece", "accuracy")
    architectures = by_architecture(measured, *where)
    rows: list[tuple[str, ...]] = []
    for method, label in front_methods(measured, *where, ("natural", "natural")).items():
        means = [mean_over_networks(measured, where[0], method, each, group.sets, where[1]) for each in metrics]
        compared = [compare(architectures, method, "temperature", each, group) for each in metrics]
        texts = [_with_interval(gain) if method != "temperature" else ABSENT for gain in compared]
        rows.append((label, *map(number, means), *texts))
    networks = " and ".join(NETWORK_TITLES[cells[0].cell.network] for cells in architectures if cells)
    return Table(
        "natural",
        "Natural shift: CIFAR-10's classes in Tiny-ImageNet, released networks",
        ("method", *titles(metrics), *(f"{title}, gain over temperature [95 %]" for title in titles(metrics))),
        merge_missing(rows, shared=0, text_columns=1),
        f"About {IMAGES} photographs of each of {len(SYNSETS)} classes, reduced to 32 x 32 pixels. Means over {networks}. Of "
        "gains positive is better. Bootstrap over networks and images, of ECE over networks alone: two say little of a third. "
        "The best rivals were chosen on these very images, in their favour, by NLL.",
    )


def _with_interval(gain: Gain) -> str:
    """The mean gain, and the bootstrap's interval where there is one."""
    return f"{signed(gain.mean, 4)} {interval(gain.bootstrap)}".removesuffix(f" {ABSENT}")


# MC dropout


MC_COMPARISONS = (
    ("mcd_temperature", "mcd"),
    ("mcd_lates", "mcd_temperature"),
    ("mcd_lates_shift", "mcd_temperature"),
    ("mcd_lates_shift", "mcd_lates"),
    ("lates_none_1", "temperature"),
    ("lates_shift_1", "temperature"),
    ("lates_none_1", "mcd_temperature"),
    ("lates_shift_1", "mcd_temperature"),
    ("mcd_lates", "lates_none_1"),
)
"""What each step adds with dropout on, and off, and whether one pass can take the place of ten."""


def mc_dropout_gains(measured: Sequence[Measured]) -> Table:
    rows: list[tuple[str, ...]] = []
    metrics = ("ece", *IMAGE_METRICS)
    for dataset, rate in paper.MC_DROPOUT:
        cells = trained(measured, dataset, "wide_resnet_28_10", dropout=rate)
        for pair in MC_COMPARISONS:
            compared = [compare([cells], *pair, metric, GROUPS["clean"]) for metric in metrics]
            texts = map(_with_interval, compared)
            rows.append((DATASET_TITLES[dataset], f"{rate:g}", *map(mc_title, pair), str(len(cells)), *texts))
    return Table(
        "mc_dropout_gains",
        "WRN-28-10 with Monte Carlo dropout: gains on the clean test set, positive is better",
        ("data set", "dropout", "method", "over", "seeds", *(f"{METRIC_TITLES[metric]} [95 %]" for metric in metrics)),
        merge_missing(rows, shared=2, text_columns=5),
        "Brier is the standard one. Intervals: bootstrap over seeds, crossed with test images where the metric is a mean over "
        "images; of one seed they are of the test images alone, and say nothing of another training or of other masks. There "
        "is one architecture, so no t interval.",
        text_columns=4,
    )


# The paper's tests


def paper_tests(measured: Sequence[Measured]) -> Table:
    """Its Wilcoxon test and its ANOVA, of the paper's own comparison, both sides fitted by SGD."""
    rows: list[tuple[str, ...]] = []
    for dataset, metric in product(paper.DATASETS, paper.METRICS):
        architectures = by_architecture(measured, dataset)
        everything = corrupted_gains(all_trained(measured, dataset), *PAPERS_OWN, metric)
        gain = compare(architectures, *PAPERS_OWN, metric, GROUPS["corrupted"])
        rows.append(
            (
                *(DATASET_TITLES[dataset], METRIC_TITLES[metric], paper.WILCOXON[dataset][metric]),
                *(better_of(everything), p_value(signed_rank(everything))),
                *(f"F(1, 16) = {paper.ANOVA[dataset][metric]}".replace("= <", "<"), paper.ANOVA_P[dataset][metric]),
                *_anova(architectures, metric, CIFAR100_C),
                *_anova(architectures, metric, NAMES),
                *(signed(gain.mean, 4), interval(gain.t)),
            )
        )
    tests = ("Wilcoxon p, paper", "sets better", "p, ours", "ANOVA, paper", "p, paper", "17 types", "p", "all 19", "p")
    return Table(
        "paper_tests",
        f"{' over '.join(map(method_title, PAPERS_OWN))}, corrupted test sets: the paper's tests beside ours",
        ("data set", "metric", *tests, "mean gain", "t over architectures, 95 %"),
        tuple(rows),
        "Wilcoxon: every corrupted set of every network a pair. ANOVA: the subject is the corruption type. Neither is "
        "independent, so the p-values are far too small; the last column is the interval to trust. 17 types are those of "
        "CIFAR-100 in Uncertainty Baselines, which give the paper's F(1, 16).",
        text_columns=2,
    )


def _anova(architectures: Architectures, metric: str, types: Sequence[str]) -> tuple[str, str]:
    gains_of_each = [corrupted_gains(cells, *PAPERS_OWN, metric, types) for cells in architectures]
    means = [each.mean(axis=0) for each in gains_of_each if len(each)]
    F, p = anova(np.asarray(means))
    return (ABSENT if math.isnan(F) else f"F(1, {len(types) - 1}) = {F:.2f}"), p_value(p)
