"""What a calibration costs, who votes in it, and which networks were trained."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median

from experiments.evaluation.timing import read_timing
from experiments.recipes import CIFAR_NETWORKS
from experiments.reporting import paper
from experiments.reporting.names import CIFAR, LATES, LOGIT_RIVALS, VIEW_RIVALS, in_words
from experiments.reporting.summaries import TRAININGS, Measured, all_trained, places, spread, trained
from experiments.reporting.tables.markdown import ABSENT, Table, number


def cost(measured: Sequence[Measured]) -> Table:
    """The most that a method adds to one of the networks."""
    cells = [cell for training in TRAININGS for each in CIFAR for cell in all_trained(measured, each, training)]
    rows = [("paper", paper.COST["parameters"], paper.COST["flops"])]
    for method in (*LOGIT_RIVALS, *VIEW_RIVALS, *LATES):
        added = [
            [100 * cell.fact("methods", method, fact) for cell in cells if method in cell.methods]
            for fact in ("parameters", "flops")
        ]
        if added[0] and (max(added[0]) > 0 or method in LATES):
            rows.append((in_words(method), number(max(added[0]), 3), number(max(added[1]), 3)))
    header = ("method", "parameters, at most, %", "FLOPs, at most, %")
    return Table("cost", "What a calibration adds to a network", header, tuple(rows), "As a share of the network's.")


def timing_table(folder: Path) -> Table:
    rows: list[tuple[str, ...]] = [("paper", ABSENT, ABSENT, ABSENT, ABSENT, paper.COST["seconds"])]
    for dataset, network in product(CIFAR, CIFAR_NETWORKS):
        file = folder / f"{dataset}-{network}" / "timing.json"
        if file.exists():
            timing = read_timing(file)
            took = timing.calibrations
            seconds = (number(timing.training, 0), number(median(took), 2), f"{min(took):.2f} to {max(took):.2f}")
            rows.append((*map(in_words, (dataset, network)), *seconds, number(100 * timing.share, 2)))
    header = ("data set", "network", "training, s", "calibrate, s", "its spread, s", "time, %")
    note = (
        "One device, nothing beside it. Training: the first epoch, with compiling, and the recipe's others at the median of "
        "five. calibrate: extraction, probes, budget and weights with the defaults of that time (shifted views, two passes), "
        "median, smallest and largest of three."
    )
    return Table("timing", "Time of a calibration beside that of training", header, tuple(rows), note, text_columns=2)


def depth(measured: Sequence[Measured]) -> Table:
    """For the CSV: accuracy and contribution of every member."""
    shown = [method for method in LATES if method.endswith("_1") or method == "lates_paper"]
    rows: list[tuple[str, ...]] = []
    for training, dataset, network in places(paper.DATASETS):
        cells = trained(measured, dataset, network, training=training)
        for member in cells[0].facts.get("probe_accuracy", {}) if cells else ():
            facts = [("probe_accuracy", member), *(("methods", each, "contributions", member) for each in shown)]
            means = (number(spread(cell.fact(*fact) for cell in cells).mean, 3) for fact in facts)
            rows.append((training, *map(in_words, (dataset, network)), member, *means))
    header = ("networks trained by", "data set", "network", "member", "accuracy", *map(in_words, shown))
    title = "Accuracy and contribution of each member, by depth"
    note = (
        "Means over seeds. Accuracy on the clean test set: of uncut probes trained without views. Then contributions."
    )
    return Table("depth", title, header, tuple(rows), note, text_columns=4)


def runs(measured: Sequence[Measured]) -> Table:
    """For the CSV: every network that was trained."""
    rows = tuple(
        (
            each.cell.recipe,
            *map(in_words, (each.cell.dataset, each.cell.network)),
            str(each.facts.get("device", ABSENT)),
            str(each.facts.get("commit", ABSENT))[:7],
            str(each.cell.seed),
            f"{each.cell.train_fraction:g}",
            f"{each.cell.holdout_fraction:g}",
            f"{each.cell.dropout:g}",
            number(each.fact("seconds", "training"), 0),
        )
        for each in measured
    )
    where, how = ("recipe", "data set", "network"), ("device", "commit", "seed", "train", "hold-out", "dropout")
    header = (*where, *how, "training, s")
    return Table("runs", "Trained networks", header, rows, "Everything that was run; what is not here was not.", 5)
