"""What was measured, in and out of distribution, and where a gain comes from."""

from collections.abc import Sequence

from experiments.corruptions import LIKE_JITTER, NAMES, UNLIKE_JITTER
from experiments.summaries import (
    CLEAN_SET,
    CORRUPTED,
    DATASET_TITLES,
    METRIC_TITLES,
    NETWORK_TITLES,
    SMOKE,
    Measured,
    datasets_of,
    mean_over_networks,
    method_title,
    networks_of,
    sets_of,
    spread,
    trained,
)
from experiments.tables.markdown import ABSENT, NOT_RUN, Table, merge_missing, number, with_deviation

FLOORED = ("ece", "ece_floor", "classwise_ece", "nll", "brier", "accuracy", "auc", "aurc")
IN_DISTRIBUTION = ("network", "temperature", "lates_paper", "lates_none_1", "lates_shift_1", "lates_jitter_1")
OUT_OF_DISTRIBUTION = ("network", "temperature", "temperature_jittered_holdout", *IN_DISTRIBUTION[2:])
SEEDS = "Mean ± standard deviation over seeds."
SMOKE_NOTE = " The smoke test's means are over the few sets that it runs."
FLOOR = "Floor: the ECE that perfect calibration would measure with these confidences."
LATES_IS = "LATES is solved exactly, within 1 % of the network's parameters."


def titles(metrics: Sequence[str]) -> tuple[str, ...]:
    return tuple(METRIC_TITLES[metric] for metric in metrics)


def place(dataset: str, network: str) -> tuple[str, str]:
    return DATASET_TITLES[dataset], NETWORK_TITLES.get(network, network)


def commit_of(run: Measured) -> str:
    return str(run.facts.get("commit", ABSENT))[:7]


def _scores(
    name: str, title: str, measured: Sequence[Measured], methods: Sequence[str], sets: Sequence[str], note: str
) -> Table:
    rows: list[tuple[str, ...]] = []
    for dataset in datasets_of(measured):
        for network in networks_of(measured, dataset):
            cells = trained(measured, dataset, network)
            if not cells:
                rows.append((*place(dataset, network), NOT_RUN, "0", *[ABSENT] * len(FLOORED)))
            for method in methods if cells else ():
                found = [spread(cell.mean(method, metric, sets) for cell in cells) for metric in FLOORED]
                values = [with_deviation(each) for each in found]
                rows.append((*place(dataset, network), method_title(method), str(found[0].count), *values))
    header = ("data set", "network", "method", "seeds", *titles(FLOORED))
    return Table(name, title, header, tuple(rows), note, text_columns=3)


def in_distribution(measured: Sequence[Measured]) -> Table:
    note = f"{SEEDS} {FLOOR} {LATES_IS}"
    return _scores("in_distribution", "Clean test set", measured, IN_DISTRIBUTION, CLEAN_SET, note)


def out_of_distribution(measured: Sequence[Measured]) -> Table:
    title = f"Mean over {len(NAMES)} corruptions at five severities"
    note = f"{SEEDS} {LATES_IS} The fair rival of jittered views is temperature scaling on a jittered hold-out."
    note += SMOKE_NOTE if SMOKE in datasets_of(measured) else ""
    return _scores("out_of_distribution", title, measured, OUT_OF_DISTRIBUTION, CORRUPTED, note)


def jitter(measured: Sequence[Measured]) -> Table:
    rows: list[tuple[str, ...]] = []
    groups = (("resemble", LIKE_JITTER), ("do not", UNLIKE_JITTER))
    for dataset in datasets_of(measured):
        for group, corruptions in groups:
            for method in OUT_OF_DISTRIBUTION:
                sets = sets_of(corruptions)
                values = [mean_over_networks(measured, dataset, method, metric, sets) for metric in FLOORED]
                rows.append((DATASET_TITLES[dataset], group, method_title(method), *map(number, values)))
    return Table(
        "jitter",
        "Corruptions that resemble the jitter of the views, and those that do not",
        ("data set", "corruptions", "method", *titles(FLOORED)),
        merge_missing(rows, shared=1, text_columns=3),
        f"Mean over seeds, then over the networks that were run. Resemble: {', '.join(LIKE_JITTER)}.",
        text_columns=3,
    )


CONTROLS = (
    "network", "temperature", "temperature_sgd", "temperature_tau_sgd", "temperature_brier",
    "temperature_jittered_holdout", "vector_scaling", "head_refitted_shift", "head_refitted_jitter", "lates_paper",
    "lates_none_1", "lates_shift_1", "lates_jitter_1", "lates_jittered_holdout", "lates_last_block",
)  # fmt: skip


def controls(measured: Sequence[Measured]) -> Table:
    clean = ("ece", "nll", "brier", "accuracy", "auc", "auc_best_temperature")
    corrupted = ("ece", "nll", "accuracy", "auc")
    columns = [(metric, CLEAN_SET) for metric in clean] + [(metric, CORRUPTED) for metric in corrupted]
    rows: list[tuple[str, ...]] = []
    for dataset in datasets_of(measured):
        for method in CONTROLS:
            values = [mean_over_networks(measured, dataset, method, metric, sets) for metric, sets in columns]
            rows.append((DATASET_TITLES[dataset], method_title(method), *map(number, values)))
    return Table(
        "controls",
        "Where a gain comes from: every method",
        ("data set", "method", *titles(clean), *(f"{title}, corrupted" for title in titles(corrupted))),
        merge_missing(rows, shared=1, text_columns=2),
        "Mean over seeds, then over the networks that were run. AUC at best T: at the temperature "
        "that serves the method's AUC best, so that calibration alone earns little.",
        text_columns=2,
    )


AGAINST_SHIFT = (
    "temperature", "temperature_jittered_holdout", "temperature_both_holdouts", "head_refitted_jitter",
    "head_refitted_both_holdouts", "lates_jitter_1", "lates_jittered_holdout", "lates_both_holdouts",
)  # fmt: skip


def against_shift(measured: Sequence[Measured]) -> Table:
    """Network by network, not in means: only some were evaluated since the last of these methods came.

    A method that a network lacks has no row there.
    """
    metrics = ("ece", "nll", "brier", "accuracy", "auc")
    rows = tuple(
        (*place(each.dataset, each.cell.network), str(each.cell.seed), method_title(method), *map(number, values))
        for each in measured
        if each.cell.recipe == "out_of_distribution" and AGAINST_SHIFT[-1] in each.methods
        for method in AGAINST_SHIFT
        if method in each.methods
        for values in [[each.mean(method, metric, sets) for sets in (CLEAN_SET, CORRUPTED) for metric in metrics]]
    )
    header = (
        "data set",
        "network",
        "seed",
        "method",
        *titles(metrics),
        *(f"{title}, corrupted" for title in titles(metrics)),
    )
    note = (
        "Plain and jittered: the hold-out as it is and one jittered view of each of its images, together. A method that is "
        "not named for a network was not measured on it."
    )
    return Table("against_shift", "Everything that has seen the jitter", header, rows, note, text_columns=4)
