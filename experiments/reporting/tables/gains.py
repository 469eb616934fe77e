"""Relative gains over temperature scaling: by network, by size of the training and hold-out split, by budget."""

from collections.abc import Sequence

from experiments.reporting import paper
from experiments.reporting.names import BUDGETS, DATASET_TITLES, HEADLINE, RIVALS, VIEWS, method_title
from experiments.reporting.summaries import (
    CLEAN_SET,
    CORRUPTED,
    HOLDOUT_SIZE,
    LOW_DATA,
    Measured,
    Variation,
    added_over_networks,
    gain_over_networks,
    of_each_part,
    spread,
)
from experiments.reporting.tables.markdown import ABSENT, NOT_RUN, Table, merge_missing, number, signed
from experiments.reporting.tables.scores import FLOOR, network_rows, place, titles

LATES = HEADLINE[1:]
BY_PART = ("network", HEADLINE[0], "vector_scaling", "head_refitted_shift", *LATES)
RELATIVE = (
    "Percent of temperature scaling's value by which LATES is better; negative is worse. Brier is the standard one."
)
OF_PAPER_MODE = (
    f" {method_title('lates_paper')} is compared with {method_title(RIVALS['lates_paper'])}, all else with the optimum."
)


def _gains(cells: Sequence[Measured], method: str) -> list[str]:
    return [signed(spread(cell.relative_gain(method, metric) for cell in cells).mean) for metric in paper.METRICS]


def relative_gain(measured: Sequence[Measured]) -> Table:
    header = ("data set", "network", "method", "seeds", *titles(paper.METRICS))
    rows = network_rows(
        measured, LATES, len(paper.METRICS), lambda cells, method: [str(len(cells)), *_gains(cells, method)]
    )
    note = RELATIVE + OF_PAPER_MODE
    return Table("relative_gain", "Relative gain on the clean test set, %", header, rows, note, text_columns=3)


ABSOLUTE = ("ece", "ece_floor", "nll", "accuracy")
SAME_SEEDS = " Every line is of the seeds that all sizes have; the plain split's may be a network of another recipe."


def _by_part(title: str, measured: Sequence[Measured], variation: Variation, note: str = "") -> Table:
    """Method by method, so that the parts of one stand below one another; networks that were not run stand last, as one."""
    rows: list[tuple[str, ...]] = []
    header = ("data set", "network", "method", "train", "hold-out", "seeds", *titles(ABSOLUTE))
    header += tuple(f"{metric}, gain %" for metric in titles(paper.METRICS))
    for dataset in ("cifar100", "cifar10"):
        by_network = {network: of_each_part(measured, dataset, network, variation) for network in paper.NETWORKS}
        varied = {network: by_part for network, by_part in by_network.items() if by_part}
        for network, by_part in varied.items():
            for method in BY_PART:
                for part, cells in by_part.items():
                    shares = (f"{100 * part.train_fraction:.0f} %", f"{100 * part.holdout_fraction:.0f} %")
                    values = [number(spread(cell.mean(method, metric) for cell in cells).mean) for metric in ABSOLUTE]
                    gains = _gains(cells, method) if method in LATES else [ABSENT] * len(paper.METRICS)
                    where = (*place(dataset, network), method_title(method), *shares, str(len(cells)))
                    rows.append((*where, *values, *gains))
        if len(varied) < len(by_network):
            others = (DATASET_TITLES[dataset], "all others" if varied else "all", NOT_RUN)
            rows.append((*others, *[ABSENT] * (len(header) - len(others))))
    notes = f"{RELATIVE}{OF_PAPER_MODE} {FLOOR}{SAME_SEEDS}{note}"
    return Table(variation.recipe, title, header, tuple(rows), notes, text_columns=3)


def low_data(measured: Sequence[Measured]) -> Table:
    return _by_part("Clean test set, by the share of the training split", measured, LOW_DATA)


def holdout_size(measured: Sequence[Measured]) -> Table:
    title = "Clean test set, by the size of the hold-out, the network trained on the rest"
    note = (
        " In the paper temperature scaling gained nothing from a smaller hold-out and more training data, and its ECE rose in "
        "about 65 % of the cases."
    )
    return _by_part(title, measured, HOLDOUT_SIZE, note)


def budget(measured: Sequence[Measured]) -> Table:
    columns = [(metric, CLEAN_SET) for metric in paper.METRICS] + [(metric, CORRUPTED) for metric in paper.METRICS]
    rows: list[tuple[str, ...]] = []
    for dataset in paper.DATASETS:
        for views in VIEWS:
            for allowed in BUDGETS:
                method = f"lates_{views}_{allowed}"
                spent = added_over_networks(measured, dataset, method)
                gains = [gain_over_networks(measured, dataset, method, metric, sets) for metric, sets in columns]
                limit = "none" if allowed == "all" else f"{allowed} %"
                rows.append((DATASET_TITLES[dataset], views, limit, number(spent, 2), *map(signed, gains)))
    named = titles(paper.METRICS)
    return Table(
        "budget",
        "Relative gain by budget and views, %",
        ("data set", "views", "budget", "parameters added, %", *named, *(f"{metric}, corrupted" for metric in named)),
        merge_missing(rows, shared=1, text_columns=3),
        f"{RELATIVE} Mean over seeds, then over the networks that were run; corrupted: of the means over all corrupted sets.",
        text_columns=3,
    )
