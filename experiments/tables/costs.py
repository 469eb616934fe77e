"""What a calibration costs, who votes in it, and which networks were trained."""

from collections.abc import Sequence

from experiments import paper
from experiments.summaries import (
    DATASET_TITLES,
    HEADLINE,
    NETWORK_TITLES,
    Measured,
    datasets_of,
    method_title,
    networks_of,
    spread,
    trained,
)
from experiments.tables.markdown import ABSENT, NOT_RUN, Table, number
from experiments.tables.measured import place


def cost(measured: Sequence[Measured]) -> Table:
    claimed = (paper.COST["parameters"], paper.COST["flops"], ABSENT, ABSENT, paper.COST["seconds"])
    rows: list[tuple[str, ...]] = [("paper", ABSENT, "LATES", "5", *claimed)]
    for dataset in datasets_of(measured):
        for network in networks_of(measured, dataset):
            cells = trained(measured, dataset, network)
            if not cells:
                rows.append((*place(dataset, network), NOT_RUN, "0", *[ABSENT] * 5))
            for method in HEADLINE if cells else ():
                rows.append((*place(dataset, network), method_title(method), str(len(cells)), *_added(cells, method)))
    header = (
        "data set",
        "network",
        "method",
        "seeds",
        "parameters, %",
        "FLOPs, %",
        "training, s",
        "method, s",
        "time, %",
    )
    note = "Parameters and FLOPs as a share of the network's; time of the method (extraction, probes, stack) of training's."
    return Table("cost", "What a calibration adds", header, tuple(rows), note, text_columns=3)


def _added(cells: Sequence[Measured], method: str) -> tuple[str, ...]:
    parameters = spread(100 * cell.fact("methods", method, "parameters") for cell in cells).mean
    flops = spread(100 * cell.fact("methods", method, "flops") for cell in cells).mean
    training = spread(cell.fact("seconds", "training") for cell in cells).mean
    seconds = spread(cell.fact("methods", method, "seconds") for cell in cells).mean
    share = 100 * seconds / training if training else training
    return number(parameters, 2), number(flops, 3), number(training, 0), number(seconds, 2), number(share, 2)


def depth(measured: Sequence[Measured]) -> Table:
    rows: list[tuple[str, ...]] = []
    for dataset in datasets_of(measured):
        for network in networks_of(measured, dataset):
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
    header = (
        "data set",
        "network",
        "member",
        "accuracy",
        "accuracy, paper mode",
        *map(method_title, HEADLINE[1:]),
    )
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
            str(each.facts.get("commit", ABSENT))[:7],
            str(each.cell.seed),
            f"{100 * each.cell.train_fraction:.0f} %",
            f"{100 * each.cell.holdout_fraction:.0f} %",
            f"{each.cell.dropout:g}",
            number(each.fact("seconds", "training"), 0),
        )
        for each in measured
    )
    header = (
        "recipe",
        "data set",
        "network",
        "device",
        "commit",
        "seed",
        "train",
        "hold-out",
        "dropout",
        "training, s",
    )
    note = "Everything that was run; what is not here was not." if rows else "Nothing was run yet."
    return Table("cells", "Trained networks", header, rows, note, text_columns=5)
