"""What a calibration costs, who votes in it, and which networks were trained."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from experiments.evaluation.timing import Timing, read_timing
from experiments.recipes import CIFAR_NETWORKS, CIFAR_SETS
from experiments.reporting import paper
from experiments.reporting.names import DATASET_TITLES, HEADLINE, NETWORK_TITLES, method_title
from experiments.reporting.summaries import Measured, spread, trained
from experiments.reporting.tables.markdown import ABSENT, NOT_RUN, Table, number
from experiments.reporting.tables.scores import commit_of, network_rows, place


def cost(measured: Sequence[Measured]) -> Table:
    claimed = ("paper", ABSENT, "LATES", "5", paper.COST["parameters"], paper.COST["flops"])
    rows = network_rows(measured, HEADLINE, 2, lambda cells, method: [str(len(cells)), *_added(cells, method)])
    header = ("data set", "network", "method", "seeds", "parameters, %", "FLOPs, %")
    note = "As a share of the network's."
    return Table("cost", "What a calibration adds", header, (claimed, *rows), note, text_columns=3)


def _added(cells: Sequence[Measured], method: str) -> tuple[str, str]:
    parameters = spread(100 * cell.fact("methods", method, "parameters") for cell in cells).mean
    flops = spread(100 * cell.fact("methods", method, "flops") for cell in cells).mean
    return number(parameters, 2), number(flops, 3)


def timing_table(folder: Path) -> Table:
    rows: list[tuple[str, ...]] = [("paper", ABSENT, ABSENT, ABSENT, ABSENT, paper.COST["seconds"])]
    for dataset in CIFAR_SETS:
        for network in CIFAR_NETWORKS:
            file = folder / f"{dataset}-{network}" / "timing.json"
            if file.exists():
                rows.append((*place(dataset, network), *_timed(read_timing(file))))
    header = ("data set", "network", "training, s", "calibrate, s", "its spread, s", "time, %")
    note = (
        "One device, nothing beside it. Training: the first epoch, with compiling, and the recipe's others at the median of "
        "five. calibrate: extraction, probes, budget and weights with the defaults, median, smallest and largest of three."
    )
    return Table("timing", "Time of a calibration beside that of training", header, tuple(rows), note, text_columns=2)


def _timed(timing: Timing) -> tuple[str, ...]:
    took = timing.calibrations
    spread_out = f"{number(min(took), 2)} to {number(max(took), 2)}"
    return number(timing.training, 0), number(median(took), 2), spread_out, number(100 * timing.share, 2)


def depth(measured: Sequence[Measured]) -> Table:
    rows: list[tuple[str, ...]] = []
    for dataset in paper.DATASETS:
        for network in paper.networks_of(dataset):
            cells = trained(measured, dataset, network)
            if not cells:
                rows.append((*place(dataset, network), NOT_RUN, ABSENT, ABSENT, *[ABSENT] * len(HEADLINE[1:])))
                continue
            for member in cells[0].facts.get("probe_accuracy", {}):
                accuracies = [
                    number(spread(cell.fact(kind, member) for cell in cells).mean, 3)
                    for kind in ("probe_accuracy", "probe_accuracy_paper")
                ]
                shares = [
                    number(spread(cell.fact("methods", each, "contributions", member) for cell in cells).mean, 3)
                    for each in HEADLINE[1:]
                ]
                rows.append((*place(dataset, network), member, *accuracies, *shares))
    header = ("data set", "network", "member", "accuracy", "accuracy, paper mode", *map(method_title, HEADLINE[1:]))
    return Table(
        "depth",
        "Accuracy of each member on the clean test set, and its contribution, by depth",
        header,
        tuple(rows),
        "Means over seeds. Accuracy: of uncut probes trained without views. "
        "Contribution: a member's weight over the sum of weights; within a budget some get none.",
        text_columns=3,
    )


def cells(measured: Sequence[Measured]) -> Table:
    rows = tuple(
        (
            each.cell.recipe,
            DATASET_TITLES.get(each.cell.dataset, each.cell.dataset),
            NETWORK_TITLES.get(each.cell.network, each.cell.network),
            str(each.facts.get("device", ABSENT)),
            commit_of(each),
            str(each.cell.seed),
            f"{100 * each.cell.train_fraction:.0f} %",
            f"{100 * each.cell.holdout_fraction:.0f} %",
            f"{each.cell.dropout:g}",
            number(each.fact("seconds", "training"), 0),
        )
        for each in measured
    )
    header = ("recipe", "data set", "network", "device", "commit", "seed")
    header += ("train", "hold-out", "dropout", "training, s")
    note = "Everything that was run; what is not here was not." if rows else "Nothing was run yet."
    return Table("cells", "Trained networks", header, rows, note, text_columns=5)
