"""Relative gains over temperature scaling by size of the training and hold-out split."""

from collections.abc import Sequence
from itertools import product

from experiments.reporting.names import CIFAR, in_words
from experiments.reporting.summaries import Measured, networks_of, of_each_part, spread
from experiments.reporting.tables.markdown import ABSENT, NOT_RUN, Table, number, signed

BY_PART = (
    "temperature", "vector_scaling", "sms", "head_refitted_shift", "lates_none_1", "lates_shift_1", "lates_jitter_1",
    "lates_robust_1",
)  # fmt: skip
SHOWN = ("nll", "ece", "accuracy")
BY = {
    "low_data": "the share of the training split",
    "holdout_size": "the size of the hold-out, the network trained on the rest",
}
RELATIVE = "Gain: percent of temperature scaling's value by which the method is better; negative is worse."


def by_part(measured: Sequence[Measured], recipe: str) -> Table:
    """Method by method, so that the parts of one stand below one another; networks that were not run stand last, as one."""
    rows: list[tuple[str, ...]] = []
    header = ("data set", "network", "method", "train", "hold-out", "seeds", *map(in_words, SHOWN))
    header += tuple(f"{in_words(metric)}, gain %" for metric in SHOWN)
    for dataset in CIFAR:
        by_network = {network: of_each_part(measured, dataset, network, recipe) for network in networks_of(dataset)}
        varied = {network: parts for network, parts in by_network.items() if parts}
        for network, parts in varied.items():
            for method, ((train, holdout), cells) in product(BY_PART, parts.items()):
                if any(method in cell.methods for cell in cells):
                    shares = (f"{100 * train:.0f} %", f"{100 * holdout:.0f} %")
                    where = (*map(in_words, (dataset, network)), in_words(method), *shares, str(len(cells)))
                    rows.append((*where, *_values(cells, method)))
        if len(varied) < len(by_network):
            others = (in_words(dataset), "all others" if varied else "all", NOT_RUN)
            rows.append((*others, *[ABSENT] * (len(header) - len(others))))
    note = f"{RELATIVE} Every line is of the seeds that all sizes have; the plain split's may be a network of another recipe."
    return Table(recipe, f"Clean test set, by {BY[recipe]}", header, tuple(rows), note, text_columns=3)


def _values(cells: Sequence[Measured], method: str) -> list[str]:
    values = [number(spread(cell.mean(method, metric) for cell in cells).mean) for metric in SHOWN]
    gains = [signed(spread(cell.relative_gain(method, metric) for cell in cells).mean) for metric in SHOWN]
    return [*values, *(gains if method != "temperature" else [ABSENT] * len(gains))]
