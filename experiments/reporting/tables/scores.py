"""Tables of scores: the front page's, every method, every network, the paper's numbers beside ours."""

from collections.abc import Mapping, Sequence
from itertools import product

from experiments.data.datasets import IMAGENET, LARGE
from experiments.evaluation.dropout import OFF, ON, SAMPLES
from experiments.reporting import paper
from experiments.reporting.names import (
    CIFAR,
    DATASET_TITLES,
    DEFAULT,
    EXPECT_SHIFT,
    FORMER_DEFAULT,
    LOGIT_RIVALS,
    METHOD_TITLES,
    METRIC_TITLES,
    NETWORK_TITLES,
    PRIMARY_RIVAL,
    TRAINING_TITLES,
    VIEW_RIVALS,
    method_title,
)
from experiments.reporting.summaries import (
    CLEAN_SET,
    CORRUPTED,
    GROUPS,
    PAPER_TRAINING,
    STRONG_TRAINING,
    TRAININGS,
    Measured,
    mean_over_networks,
    methods_run,
    places,
    spread,
    trained,
)
from experiments.reporting.tables.markdown import ABSENT, NOT_RUN, Table, merge_missing, number, with_deviation

Row = tuple[str, ...]

MEANS = "Means over seeds, then over the architectures that were run: each counts once."
PUBLIC_NOTE = "Public networks: one half of the test images, corruptions at severity 3 alone."
FLOOR = "Floor: the ECE that perfect calibration would measure with these confidences."


def titles(metrics: Sequence[str]) -> Row:
    return tuple(METRIC_TITLES[metric] for metric in metrics)


def corrupted_titles(metrics: Sequence[str]) -> Row:
    return tuple(f"{title}, corrupted" for title in titles(metrics))


def place(dataset: str, network: str) -> tuple[str, str]:
    return DATASET_TITLES[dataset], NETWORK_TITLES.get(network, network)


# The front page


def best_rival(
    measured: Sequence[Measured], dataset: str, rivals: Mapping[str, str], group: str, training: str
) -> str | None:
    """The rival with the least NLL on these test sets: chosen on them, in its favour. None if none was run."""
    known = [method for method in rivals if method in methods_run(measured, dataset, training)]
    sets = GROUPS[group].sets
    return min(known, key=lambda each: mean_over_networks(measured, dataset, each, "nll", sets, training), default=None)


FRONT: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    STRONG_TRAINING: (("temperature", PRIMARY_RIVAL), (DEFAULT, EXPECT_SHIFT, "lates_robust_holdout")),
    PAPER_TRAINING: (("temperature",), (FORMER_DEFAULT, "lates_jitter_1")),
}
"""Rivals and LATES methods of the front page, by training; the best rivals come between."""


def front_methods(
    measured: Sequence[Measured], dataset: str, training: str, groups: tuple[str, str] = ("clean", "corrupted")
) -> dict[str, str]:
    """Method -> label. The best of logit rivals is chosen on the first of these test sets, of view-aware ones on the second."""
    rivals, ours = FRONT.get(training, FRONT[STRONG_TRAINING])
    labelled = {method: method_title(method) for method in rivals}
    for kind, known, group in zip(("logit", "view-aware"), (LOGIT_RIVALS, VIEW_RIVALS), groups, strict=True):
        best = best_rival(measured, dataset, known, group, training)
        if best is not None and best not in labelled:
            labelled[best] = f"best {kind} rival run: {method_title(best)}"
    return labelled | {method: method_title(method) for method in ours}


def main_table(measured: Sequence[Measured]) -> Table:
    metrics = ("nll", "ece", "accuracy")
    rows: list[Row] = []
    for training, dataset in product(FRONT, CIFAR):
        where = (TRAINING_TITLES[training], DATASET_TITLES[dataset])
        run = methods_run(measured, dataset, training)
        for method, label in front_methods(measured, dataset, training).items():
            values = [
                number(mean_over_networks(measured, dataset, method, metric, sets, training), 3)
                for sets, metric in product((CLEAN_SET, CORRUPTED), metrics)
            ]
            name = f"**{label}**" if method in (DEFAULT, EXPECT_SHIFT) else label
            cells = values if method in run else [NOT_RUN, *[ABSENT] * (len(values) - 1)]
            rows.append((*where, name, *cells) if run else (*where, NOT_RUN, *[ABSENT] * len(values)))
    return Table(
        "main",
        "Clean test set, and the mean over 19 corruptions",
        ("networks trained by", "data set", "method", *titles(metrics), *corrupted_titles(metrics)),
        tuple(dict.fromkeys(rows)),
        f"{MEANS} LATES stays within 1 % of the network's parameters. The best rivals were chosen on these very test sets, in "
        "their favour: by clean NLL among those that need logits alone, by corrupted NLL among those that see views, features "
        "or training images. Severities 1, 3 and 5; on networks of the paper's recipe, which were measured before robust views "
        "existed, all five.",
        text_columns=3,
    )


# Every method, every network


def methods_table(measured: Sequence[Measured]) -> Table:
    """Methods that were run somewhere, one row for each data set; the note names the others."""
    clean = ("nll", "ece", "ece_smooth", "brier", "accuracy", "auc", "auc_best_temperature")
    corrupted = ("nll", "ece", "accuracy")
    columns = [(metric, CLEAN_SET) for metric in clean] + [(metric, CORRUPTED) for metric in corrupted]
    listed = [method for method in METHOD_TITLES if method not in ON]
    rows: list[Row] = []
    whole: set[str] = set()
    for training, dataset in product(TRAININGS, CIFAR):
        run = methods_run(measured, dataset, training)
        where = (TRAINING_TITLES[training], DATASET_TITLES[dataset])
        for method in (method for method in listed if method in run):
            values = [mean_over_networks(measured, dataset, method, *column, training) for column in columns]
            rows.append((*where, method_title(method), *map(number, values)))
        if not run:
            rows.append((*where, NOT_RUN, *[ABSENT] * len(columns)))
        whole |= run
    anywhere = {method for cell in measured for method in cell.methods}
    partly = [method_title(method) for method in listed if method in anywhere - whole]
    missing = [method_title(method) for method in listed if method not in anywhere]
    return Table(
        "methods",
        "Every method that was run on all networks",
        ("networks trained by", "data set", "method", *titles(clean), *corrupted_titles(corrupted)),
        tuple(rows),
        f"{MEANS} {PUBLIC_NOTE} AUC at best T: at the temperature that serves the method's AUC best, so that calibration alone "
        "earns little. "
        + (f"Run on some networks alone, see tables/scores.csv: {'; '.join(partly)}. " if partly else "")
        + (f"Not run: {'; '.join(missing)}." if missing else ""),
        text_columns=3,
    )


BY_NETWORK = (
    "temperature", "vector_scaling", "sms", "temperature_jittered_holdout", "head_refitted_jitter", "head_refitted_robust",
    "best_layer", "lates_none_1", "lates_shift_1", "lates_jitter_1", "lates_last", "lates_capped_rescaled",
    "lates_robust_holdout",
)  # fmt: skip


def by_network(measured: Sequence[Measured], metric: str, group: str) -> Table:
    """A row for each network, a column for each method that was run on one."""
    where = {"clean": " on the clean test set", "corrupted": ", mean over corrupted test sets"}
    shown = [method for method in BY_NETWORK if any(method in each.methods for each in measured)]
    rows: list[Row] = []
    for training, dataset, network in places(CIFAR):
        cells = trained(measured, dataset, network, training=training)
        values = [spread(cell.mean(method, metric, GROUPS[group].sets) for cell in cells) for method in shown]
        named = (TRAINING_TITLES[training], *place(dataset, network))
        rows.append((*named, str(len(cells)), *(with_deviation(each, 3) for each in values)))
    header = ("networks trained by", "data set", "network", "seeds", *map(method_title, shown))
    merged = merge_missing(rows, shared=2, text_columns=4)
    title, note = METRIC_TITLES[metric] + where[group], f"Mean ± standard deviation over seeds. {PUBLIC_NOTE}"
    return Table(f"{group}_{metric}", title, header, merged, note, text_columns=3)


ALL_METRICS = ("nll", "ece", "ece_floor", "ece_smooth", "classwise_ece", "brier", "accuracy", "auc", "aurc")


def scores(measured: Sequence[Measured]) -> Table:
    """For the CSV: every method on every network."""
    rows: list[Row] = []
    for (training, dataset, network), ensemble in product(places(tuple(DATASET_TITLES)), (False, True)):
        cells = trained(measured, dataset, network, training=training, ensemble=ensemble)
        methods = dict.fromkeys(method for cell in cells for method in cell.methods)
        for method, group in product(methods, GROUPS.values()):
            values = [spread(cell.mean(method, each, group.sets) for cell in cells) for each in ALL_METRICS]
            if values[0].count:
                where = (TRAINING_TITLES[training], *place(dataset, network), group.title)
                shown = (number(each.mean) for each in values)
                rows.append((*where, method_title(method), str(values[0].count), *shown))
    header = ("networks trained by", "data set", "network", "test sets", "method", "seeds", *titles(ALL_METRICS))
    return Table("scores", "Every method on every network", header, tuple(rows), f"Means over seeds. {FLOOR}", 5)


# The two tables of scores that the paper prints, its numbers beside ours


OURS = ("ece", "ece_floor", "nll", "brier_paper", "accuracy", "auc", "auc_keras")
PAPERS: Mapping[str, str] = {"brier_paper": "brier"}
"""What the paper calls it."""
BESIDE_PAPER = (
    f"Mean ± standard deviation over seeds. {FLOOR} Brier is the paper's, the standard one minus 1. The paper's AUC is "
    "probably Keras' approximation, which rewards calibration; ours is exact, with Keras' beside it."
)


def _paper_row(label: str, values: Mapping[str, str]) -> Row:
    return (label, "paper", "5", *(values.get(PAPERS.get(metric, metric), ABSENT) for metric in OURS))


def _our_row(label: str, cells: Sequence[Measured], method: str) -> Row:
    values = [spread(cell.mean(method, metric) for cell in cells) for metric in OURS]
    shown = map(with_deviation, values) if cells else [ABSENT] * len(OURS)
    return (label, "ours" if cells else NOT_RUN, str(values[0].count), *shown)


def imagenet(measured: Sequence[Measured]) -> Table:
    """With Tiny-ImageNet, which stands in for it."""
    rows = [(DATASET_TITLES[IMAGENET], *_paper_row(method_title(each), row)) for each, row in paper.IMAGENET.items()]
    for dataset, method in product(LARGE, ("temperature_sgd", "temperature", "lates_paper", DEFAULT)):
        cells = trained(measured, dataset, "resnet50")
        rows.append((DATASET_TITLES[dataset], *_our_row(method_title(method), cells, method)))
    header, merged = ("data set", "method", "source", "seeds", *titles(OURS)), merge_missing(rows, 1, 4)
    return Table("imagenet", "ResNet50, clean test set", header, merged, BESIDE_PAPER, text_columns=3)


def mc_title(method: str) -> str:
    """Marks the methods that are measured with dropout off."""
    return f"dropout off: {method_title(method)}" if method in OFF else method_title(method)


def mc_dropout(measured: Sequence[Measured]) -> Table:
    rows: list[Row] = []
    for (dataset, rate), printed in paper.MC_DROPOUT.items():
        cells = trained(measured, dataset, "wide_resnet_28_10", dropout=rate)
        where = (DATASET_TITLES[dataset], f"{rate:g}")
        rows += [(*where, *_paper_row(label, values)) for label, values in printed.items()]
        rows += [(*where, *_our_row(mc_title(method), cells, method)) for method in (*OFF, *ON)]
    note = (
        f"{BESIDE_PAPER} Ours: the mean of {SAMPLES} forward passes, with dropout off one; trained on flips and crops, by the "
        "paper's text on flips alone. With dropout on, temperature and LATES (within 1 % of the parameters) are lowered from "
        "the optimum of all passes pooled to a minimum of the mean's log-loss, which is not convex; with dropout off they are "
        "solved exactly. The paper's LATES is fitted by SGD."
    )
    return Table(
        "mc_dropout",
        "WRN-28-10 with Monte Carlo dropout, clean test set",
        ("data set", "dropout", "method", "source", "seeds", *titles(OURS)),
        merge_missing(rows, shared=2, text_columns=5),
        note,
        text_columns=4,
    )
