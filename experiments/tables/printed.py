"""The two tables of scores that the paper prints, its numbers beside ours."""

from collections.abc import Mapping, Sequence

from experiments import paper
from experiments.dropout import OFF, ON, SAMPLES
from experiments.summaries import DATASET_TITLES, HEADLINE, Measured, method_title, spread, trained
from experiments.tables.markdown import ABSENT, NOT_RUN, Table, merge_missing, with_deviation
from experiments.tables.measured import FLOOR, SEEDS, titles

OURS = ("ece", "ece_floor", "nll", "brier_paper", "accuracy", "auc", "auc_keras")
PAPERS: Mapping[str, str] = {"brier_paper": "brier"}
"""What the paper calls it."""
NOTE = (
    f"{SEEDS} {FLOOR} Brier is the paper's, the standard one minus 1. The paper's AUC is probably Keras' "
    "approximation, which rewards calibration; ours is exact, with Keras' beside it."
)


def _paper_row(label: str, values: Mapping[str, str]) -> tuple[str, ...]:
    return (label, "paper", "5", *(values.get(PAPERS.get(metric, metric), ABSENT) for metric in OURS))


def _our_row(label: str, cells: Sequence[Measured], method: str) -> tuple[str, ...]:
    found = [spread(cell.mean(method, metric) for cell in cells) for metric in OURS]
    values = map(with_deviation, found) if cells else [ABSENT] * len(OURS)
    return (label, "ours" if cells else NOT_RUN, str(found[0].count), *values)


def imagenet(measured: Sequence[Measured]) -> Table:
    rows = [_paper_row(method_title(method), values) for method, values in paper.IMAGENET.items()]
    cells = trained(measured, "imagenet", "resnet50")
    rows += [_our_row(method_title(method), cells, method) for method in ("temperature_sgd", *HEADLINE)]
    header = ("method", "source", "seeds", *titles(OURS))
    return Table("imagenet", "ResNet50 on ImageNet, clean test set", header, tuple(rows), NOTE, text_columns=2)


def mc_title(method: str) -> str:
    """Marks the methods that are measured with dropout off."""
    return f"dropout off: {method_title(method)}" if method in OFF else method_title(method)


def mc_dropout(measured: Sequence[Measured]) -> Table:
    rows: list[tuple[str, ...]] = []
    for (dataset, rate), printed in paper.MC_DROPOUT.items():
        cells = trained(measured, dataset, "wide_resnet_28_10", dropout=rate)
        where = (DATASET_TITLES[dataset], f"{rate:g}")
        rows += [(*where, *_paper_row(label, values)) for label, values in printed.items()]
        rows += [(*where, *_our_row(mc_title(method), cells, method)) for method in (*OFF, *ON)]
    header = ("data set", "dropout", "method", "source", "seeds", *titles(OURS))
    title = "WRN-28-10 with Monte Carlo dropout, clean test set"
    note = (
        f"{NOTE} Ours: the mean of {SAMPLES} forward passes, with dropout off one; trained on flips and crops, by the paper's "
        "text on flips alone. With dropout on, temperature and LATES (within 1 % of the parameters) are lowered from the "
        "optimum of all passes pooled to a minimum of the mean's log-loss, which is not convex; with dropout off they are "
        "solved exactly. The paper's LATES is fitted by SGD."
    )
    return Table("mc_dropout", title, header, merge_missing(rows, shared=2, text_columns=5), note, text_columns=4)
