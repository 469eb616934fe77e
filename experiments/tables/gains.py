"""Relative gains over temperature scaling: by network, by size of the training and hold-out split, by budget."""

from collections.abc import Sequence

from experiments import paper
from experiments.summaries import (
    BUDGETS,
    CLEAN_SET,
    CORRUPTED,
    DATASET_TITLES,
    HEADLINE,
    HOLDOUT_SIZE,
    LOW_DATA,
    VIEWS,
    Measured,
    Part,
    datasets_of,
    gain_over_networks,
    method_title,
    networks_of,
    of_part,
    over_networks,
    spread,
    trained,
    was_varied,
)
from experiments.tables.markdown import ABSENT, NOT_RUN, Table, merge_missing, number, signed
from experiments.tables.measured import place, titles

RIVAL = "temperature"
LATES = HEADLINE[1:]
RELATIVE = (
    "Percent of temperature scaling's value by which LATES is better; negative is worse. Brier is the standard one."
)


def _gains(cells: Sequence[Measured], method: str) -> list[str]:
    return [
        signed(spread(cell.relative_gain(method, RIVAL, metric) for cell in cells).mean) for metric in paper.METRICS
    ]


def relative_gain(measured: Sequence[Measured]) -> Table:
    rows: list[tuple[str, ...]] = []
    for dataset in datasets_of(measured):
        for network in networks_of(measured, dataset):
            cells = trained(measured, dataset, network)
            for method in LATES if cells else ():
                rows.append((*place(dataset, network), method_title(method), str(len(cells)), *_gains(cells, method)))
            if not cells:
                rows.append((*place(dataset, network), NOT_RUN, "0", *[ABSENT] * len(paper.METRICS)))
    header = ("data set", "network", "method", "seeds", *titles(paper.METRICS))
    return Table("relative_gain", "Relative gain on the clean test set, %", header, tuple(rows), RELATIVE, 3)


def _by_part(name: str, title: str, measured: Sequence[Measured], parts: Sequence[Part], note: str = "") -> Table:
    rows: list[tuple[str, ...]] = []
    for dataset in ("cifar100", "cifar10"):
        for network in paper.NETWORKS:
            if not was_varied(measured, dataset, network, parts):
                nothing = [ABSENT] * (2 + len(paper.METRICS))
                rows.append((*place(dataset, network), NOT_RUN, ABSENT, ABSENT, "0", *nothing))
                continue
            for part in parts:
                cells = of_part(measured, dataset, network, part)
                shares = (f"{100 * part.train_fraction:.0f} %", f"{100 * part.holdout_fraction:.0f} %")
                for method in LATES:
                    ece = [number(spread(cell.mean(each, "ece") for cell in cells).mean) for each in (RIVAL, method)]
                    where = (*place(dataset, network), method_title(method), *shares, str(len(cells)))
                    rows.append((*where, *ece, *_gains(cells, method)))
    header = ("data set", "network", "method", "train", "hold-out", "seeds", "ECE of temperature", "ECE of LATES")
    gains = tuple(f"{metric}, %" for metric in titles(paper.METRICS))
    return Table(name, title, (*header, *gains), tuple(rows), RELATIVE + note, text_columns=3)


def low_data(measured: Sequence[Measured]) -> Table:
    return _by_part("low_data", "Relative gain by the share of the training split", measured, LOW_DATA)


def holdout_size(measured: Sequence[Measured]) -> Table:
    title = "Relative gain by the size of the hold-out, the network trained on the rest"
    note = " In the paper a smaller hold-out raised the ECE of temperature scaling in about 65 % of the cases."
    return _by_part("holdout_size", title, measured, HOLDOUT_SIZE, note)


def budget(measured: Sequence[Measured]) -> Table:
    columns = [(metric, CLEAN_SET) for metric in paper.METRICS] + [(metric, CORRUPTED) for metric in paper.METRICS]
    rows: list[tuple[str, ...]] = []
    for dataset in datasets_of(measured):
        for views in VIEWS:
            for allowed in BUDGETS:
                method = f"lates_{views}_{allowed}"
                spent = over_networks(
                    measured, dataset, lambda each, method=method: 100 * each.fact("methods", method, "parameters")
                )
                gains = [gain_over_networks(measured, dataset, method, RIVAL, metric, sets) for metric, sets in columns]
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
