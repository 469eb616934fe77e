"""Pairs of a method and a rival: the primary family, all gains with intervals, the paper's tests."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

from experiments.data.corruptions import CIFAR100_C, NAMES
from experiments.evaluation.image_blocks import IMAGE_METRICS
from experiments.reporting import paper
from experiments.reporting.names import CIFAR, DEFAULT, PRIMARY_RIVAL, in_words
from experiments.reporting.significance import Array, Gain, anova, compare, count_better, holm, mean_gains, signed_rank
from experiments.reporting.summaries import (
    CORRUPTED,
    GROUPS,
    STRONG_TRAINING,
    TRAININGS,
    Architectures,
    Measured,
    all_trained,
    by_architecture,
    sets_of,
    trained,
    with_common_seeds,
)
from experiments.reporting.tables.markdown import ABSENT, NOT_RUN, Table, interval, merge_missing, p_value, signed
from experiments.reporting.tables.scores import mc_title


def better_of(gains: Array, missing: str = ABSENT) -> str:
    return f"{count_better(gains)} of {gains.size}" if gains.size else missing


def shown(gain: Gain) -> tuple[str, str, str, str]:
    """Mean, bootstrap, t, and on how many networks."""
    better = f"{gain.better} of {gain.networks}" if gain.networks else ABSENT
    return signed(gain.mean, 4), interval(gain.bootstrap), interval(gain.t), better


GAIN_COLUMNS = ("gain", "bootstrap, 95 %", "t over architectures, 95 %", "networks better")


# Named beforehand


PRIMARY = (DEFAULT, PRIMARY_RIVAL)


def primary(measured: Sequence[Measured], name: str, metric: str) -> Table:
    """One endpoint."""
    equal = {dataset: with_common_seeds(by_architecture(measured, dataset, STRONG_TRAINING)) for dataset in CIFAR}
    places = list(product(CIFAR, ("clean", "corrupted")))
    compared = [compare(equal[dataset], *PRIMARY, metric, GROUPS[group]) for dataset, group in places]
    rows: list[tuple[str, ...]] = []
    for (dataset, group), gain, p in zip(places, compared, holm([gain.p for gain in compared]), strict=True):
        values = (*shown(gain), str(gain.architectures), p_value(gain.p), p_value(p))
        rows.append((f"{in_words(dataset)}, {group}", *(values if gain.networks else (NOT_RUN, *[ABSENT] * 6))))
    return Table(
        name,
        f"{in_words(metric)}: {' against '.join(map(in_words, PRIMARY))}, networks of the strong recipe",
        ("test sets", *GAIN_COLUMNS, "architectures", "p", "p, Holm"),
        tuple(rows),
        "Gain: positive is better. The unit is the architecture, each with the same seeds. p: two-sided t-test over "
        "architectures; Holm's family is these four comparisons.",
    )


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
                where = (*map(in_words, (training, dataset)), group.title, in_words(metric))
                rows.append((*map(in_words, pair), *where, *shown(gain), str(gain.architectures)))
    where = ("networks trained by", "data set", "test sets", "metric")
    header = ("method", "over", *where, *GAIN_COLUMNS, "architectures")
    note = "In the metric's own units, positive is better. Exploratory: no correction for the number of comparisons."
    return Table("gains", "Every gain with its intervals", header, tuple(rows), note, text_columns=6)


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
            texts = [f"{signed(gain.mean, 4)} {interval(gain.bootstrap)}".removesuffix(f" {ABSENT}") for gain in compared]
            rows.append((in_words(dataset), f"{rate:g}", *map(mc_title, pair), str(len(cells)), *texts))
    return Table(
        "mc_dropout_gains",
        "WRN-28-10 with Monte Carlo dropout: gains on the clean test set, positive is better",
        ("data set", "dropout", "method", "over", "seeds", *(f"{in_words(metric)} [95 %]" for metric in metrics)),
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
        everything = mean_gains(all_trained(measured, dataset), *PAPERS_OWN, metric, [[name] for name in CORRUPTED])
        gain = compare(architectures, *PAPERS_OWN, metric, GROUPS["corrupted"])
        rows.append(
            (
                *(in_words(dataset), in_words(metric), paper.WILCOXON[dataset][metric]),
                *(better_of(everything), p_value(signed_rank(everything))),
                *(f"F(1, 16) = {paper.ANOVA[dataset][metric]}".replace("= <", "<"), paper.ANOVA_P[dataset][metric]),
                *_anova(architectures, metric, CIFAR100_C),
                *_anova(architectures, metric, NAMES),
                *(signed(gain.mean, 4), interval(gain.t)),
            )
        )
    wilcoxon, anova_tests = ("Wilcoxon p, paper", "sets better", "p, ours"), ("ANOVA, paper", "p, paper")
    ours = ("17 types", "p, 17 types", "all 19", "p, all 19")
    return Table(
        "paper_tests",
        f"{' over '.join(map(in_words, PAPERS_OWN))}, corrupted test sets: the paper's tests beside ours",
        ("data set", "metric", *wilcoxon, *anova_tests, *ours, "mean gain", "t over architectures, 95 %"),
        tuple(rows),
        "Wilcoxon: every corrupted set of every network a pair. ANOVA: the subject is the corruption type. Neither is "
        "independent, so the p-values are far too small; the last column is the interval to trust. 17 types are those of "
        "CIFAR-100 in Uncertainty Baselines, which give the paper's F(1, 16).",
        text_columns=2,
    )


def _anova(architectures: Architectures, metric: str, types: Sequence[str]) -> tuple[str, str]:
    by_type = [sets_of((name,)) for name in types]
    gains_of_each = [mean_gains(cells, *PAPERS_OWN, metric, by_type) for cells in architectures]
    means = [each.mean(axis=0) for each in gains_of_each if len(each)]
    F, p = anova(np.asarray(means))
    return (ABSENT if math.isnan(F) else f"F(1, {len(types) - 1}) = {F:.2f}"), p_value(p)
