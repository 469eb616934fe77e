"""The two tables of scores that the paper prints, its numbers beside ours."""

from collections.abc import Mapping, Sequence

from experiments import paper
from experiments.summaries import DATASET_TITLES, HEADLINE, Measured, method_title, spread, trained
from experiments.tables.markdown import ABSENT, NOT_RUN, Table, with_deviation
from experiments.tables.measured import titles

OURS = ("ece", "nll", "brier_paper", "accuracy", "auc", "auc_keras")
NOTE = (
    "Mean ± standard deviation over seeds. Brier is the paper's, the standard one minus 1. The paper's AUC is probably "
    "Keras' approximation, which rewards calibration; ours is exact, with Keras' beside it."
)


def _paper_row(label: str, values: Mapping[str, str]) -> tuple[str, ...]:
    return (label, "paper", "5", *(values[metric] for metric in paper.METRICS), ABSENT)


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


def mc_dropout(measured: Sequence[Measured]) -> Table:
    rows: list[tuple[str, ...]] = []
    for (dataset, rate), printed in paper.MC_DROPOUT.items():
        cells = trained(measured, dataset, "wide_resnet_28_10", dropout=rate)
        where = (DATASET_TITLES[dataset], f"{rate:g}")
        for method in ("mcd", "mcd_temperature", "mcd_lates"):
            if method in printed:
                rows.append((*where, *_paper_row(method_title(method), printed[method])))
            rows.append((*where, *_our_row(method_title(method), cells, method)))
    header = ("data set", "dropout", "method", "source", "seeds", *titles(OURS))
    title = "WRN-28-10 with Monte Carlo dropout, clean test set"
    note = f"{NOTE} Our temperature and LATES are fitted exactly to the mean over samples, the paper's LATES by SGD."
    return Table("mc_dropout", title, header, tuple(rows), note, text_columns=4)
