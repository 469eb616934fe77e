"""Tables of scores: every method, every network, the paper's numbers beside ours."""

from collections.abc import Mapping, Sequence
from itertools import product

from experiments.data.datasets import LARGE
from experiments.evaluation.dropout import OFF, ON, SAMPLES
from experiments.reporting import paper
from experiments.reporting.names import CIFAR, DATASET_TITLES, DEFAULT, EXPECT_SHIFT, METHOD_TITLES, in_words
from experiments.reporting.summaries import (
    CLEAN_SET,
    CORRUPTED,
    GROUPS,
    STRONG_TRAINING,
    TRAININGS,
    Measured,
    mean_over_networks,
    methods_run,
    places,
    sets_of,
    spread,
    trained,
)
from experiments.reporting.tables.markdown import ABSENT, NOT_RUN, Table, merge_missing, number, with_deviation

Row = tuple[str, ...]

FLOOR = "Floor: the ECE that perfect calibration would measure with these confidences."


def corrupted_titles(metrics: Sequence[str]) -> Row:
    return tuple(f"{in_words(metric)}, corrupted" for metric in metrics)


# Every method, every network


def methods_table(measured: Sequence[Measured]) -> Table:
    """Methods that were run somewhere, one row for each data set."""
    clean = ("nll", "ece", "ece_smooth", "brier", "accuracy", "auc", "auc_best_temperature")
    corrupted = ("nll", "ece", "accuracy")
    columns = [(metric, CLEAN_SET) for metric in clean] + [(metric, CORRUPTED) for metric in corrupted]
    listed = [method for method in METHOD_TITLES if method not in ON]
    rows: list[Row] = []
    for training, dataset in product(TRAININGS, CIFAR):
        run = methods_run(measured, dataset, training)
        where = tuple(map(in_words, (training, dataset)))
        for method in (method for method in listed if method in run):
            values = [mean_over_networks(measured, dataset, method, *column, training) for column in columns]
            rows.append((*where, in_words(method), *map(number, values)))
        if not run:
            rows.append((*where, NOT_RUN, *[ABSENT] * len(columns)))
    return Table(
        "methods",
        "Every method that was run on all networks",
        ("networks trained by", "data set", "method", *map(in_words, clean), *corrupted_titles(corrupted)),
        tuple(rows),
        "Means over seeds, then over the architectures that were run. AUC at best T: at the temperature that serves it best.",
        text_columns=3,
    )


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
                where = (*map(in_words, (training, dataset, network)), group.title)
                shown = (number(each.mean) for each in values)
                rows.append((*where, in_words(method), str(values[0].count), *shown))
    header = ("networks trained by", "data set", "network", "test sets", "method", "seeds", *map(in_words, ALL_METRICS))
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


BESIDE_BASELINES = (
    "network", "temperature", "sms", "temperature_robust_holdout", "head_refitted_robust", "best_layer", "lates_last",
    "lates_capped_rescaled", "lates_robust_holdout",
)  # fmt: skip


def baselines(measured: Sequence[Measured], dataset: str) -> Table:
    """WRN-28-10 beside Uncertainty Baselines' table."""
    cells = trained(measured, dataset, "wide_resnet_28_10", training=STRONG_TRAINING)
    columns = list(product((CLEAN_SET, sets_of(paper.BASELINE_TYPES[dataset])), paper.BASELINE_METRICS))
    rows = [(name, "published", *values.split()) for name, values in paper.BASELINES[dataset].items()]
    for method in BESIDE_BASELINES:
        found = (spread(cell.mean(method, metric, sets) for cell in cells).mean for sets, metric in columns)
        rows.append((in_words(method), "ours" if cells else NOT_RUN, *(number(each, 3) for each in found)))
    header = ("method", "source", *map(in_words, paper.BASELINE_METRICS), *corrupted_titles(paper.BASELINE_METRICS))
    severities = ", ".join(map(str, cells[0].severities)) if cells else NOT_RUN
    note = f"Corrupted: {len(paper.BASELINE_TYPES[dataset])} types; published at five severities, ours: {severities}."
    title = f"WRN-28-10 on {in_words(dataset)}: one network, but for ensembles"
    return Table(f"baselines_{dataset}", title, header, tuple(rows), note, text_columns=2)


def imagenet(measured: Sequence[Measured]) -> Table:
    """With Tiny-ImageNet, which stands in for it."""
    rows = [(in_words("imagenet"), *_paper_row(in_words(each), row)) for each, row in paper.IMAGENET.items()]
    for dataset, method in product(LARGE, ("temperature_sgd", "temperature", "sms", "lates_paper", DEFAULT, EXPECT_SHIFT)):
        cells = trained(measured, dataset, "resnet50")
        if any(method in each.methods for each in cells) or not cells:
            rows.append((in_words(dataset), *_our_row(in_words(method), cells, method)))
    header, merged = ("data set", "method", "source", "seeds", *map(in_words, OURS)), merge_missing(rows, 1, 4)
    return Table("imagenet", "ResNet50, clean test set", header, merged, BESIDE_PAPER, text_columns=3)


def mc_title(method: str) -> str:
    """Marks the methods that are measured with dropout off."""
    return f"dropout off: {in_words(method)}" if method in OFF else in_words(method)


def mc_dropout(measured: Sequence[Measured]) -> Table:
    rows: list[Row] = []
    for (dataset, rate), printed in paper.MC_DROPOUT.items():
        cells = trained(measured, dataset, "wide_resnet_28_10", dropout=rate)
        where = (in_words(dataset), f"{rate:g}")
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
        ("data set", "dropout", "method", "source", "seeds", *map(in_words, OURS)),
        merge_missing(rows, shared=2, text_columns=5),
        note,
        text_columns=4,
    )
