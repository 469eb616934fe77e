"""What a calibration costs, who votes in it, and which networks were trained."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

from experiments.evaluation.timing import read_timing
from experiments.recipes import CIFAR_NETWORKS, RECIPES, STRONG
from experiments.reporting import paper
from experiments.reporting.names import CIFAR, LATES, LOGIT_RIVALS, VIEW_RIVALS, in_words
from experiments.reporting.summaries import MISSING, TRAININGS, Measured, all_trained, mean, places, spread, trained
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
    """Measured beside the paper's recipe of 200 epochs, and from it what the default takes beside either recipe."""
    rows: list[tuple[str, ...]] = []
    recipe = RECIPES[STRONG]
    epochs = recipe.training_of(recipe.cells()[0]).epochs
    for dataset, network in product(CIFAR, CIFAR_NETWORKS):
        file = folder / f"{dataset}-{network}" / "timing.json"
        if file.exists():
            timing = read_timing(file)
            took = timing.calibrations
            default = 100 * median(took) * _times_as_long(folder, in_words(network))
            strong = replace(timing, recipe_epochs=epochs)
            shares = (100 * timing.share, default / timing.training, default / strong.training)
            seconds = (number(timing.training, 0), number(median(took), 2), f"{min(took):.2f} to {max(took):.2f}")
            rows.append((f"{in_words(network)}, {in_words(dataset)}", *seconds, *(number(each, 1) for each in shares)))
    header = (
        "network",
        "200 epochs, s",
        "calibrate, s",
        "its spread, s",
        "share, %",
        "default, %",
        "default, 100 epochs, %",
    )
    note = (
        "One device, nothing beside it. Training: the first epoch, with compiling, and the recipe's others at the median of "
        "five. calibrate: extraction, probes, budget and weights with the defaults of that time (shifted views, two passes), "
        "median, smallest and largest of three. default: with four robust views, computed from the parts; the networks of the "
        f"strong recipe are trained for 100 epochs. The paper says {paper.COST['seconds']}."
    )
    return Table("timing", "Time of a calibration as a share of that of training", header, tuple(rows), note)


SHIFT, ROBUST = "shift, two passes", "robust, four passes"
DEFAULT_ROW = "default, times as long as shift"


def views_timing_table(folder: Path) -> Table:
    """Parts of a calibration by views, and from them how much longer the default takes than what was timed as a whole."""
    header, *rows = _views_timing(folder)
    times = [number(_times_as_long(folder, network), 1) for network in header[1:]]
    title = "Parts of a calibration, s"
    shown = (*map(tuple, rows), (DEFAULT_ROW, *times)) if rows else ()
    return Table("timing_views", title, tuple(header), shown, "One H200.")


def _views_timing(folder: Path) -> list[list[str]]:
    file = folder / "views.csv"
    return [*csv.reader(file.read_text("utf-8").splitlines())] if file.exists() else [["part", "ResNet18", "VGG16"]]


def _times_as_long(folder: Path, network: str) -> float:
    """Missing without parts of the network. Of a range the middle."""
    header, *rows = _views_timing(folder)
    if not rows or network not in header:
        return MISSING
    seconds = {row[0]: mean([float(end) for end in row[header.index(network)].split(" to ")]) for row in rows}
    default, timed = (
        sum(seconds[part] for part in (f"read, {views}", f"train probes, {views}", "budget and weights"))
        for views in (ROBUST, SHIFT)
    )
    return default / timed


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
    note = "Means over seeds. Accuracy on the clean test set: of uncut probes trained without views. Then contributions."
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
