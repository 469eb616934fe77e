"""One network trained and measured twice from scratch: how far apart two runs of the same thing lie."""

from collections.abc import Sequence

from experiments.corruptions import NAMES
from experiments.results import AGAIN
from experiments.summaries import CLEAN_SET, CORRUPTED, Measured, method_title, trained
from experiments.tables.markdown import ABSENT, NOT_RUN, Table, number, signed
from experiments.tables.measured import FLOOR, place, titles

METHODS = ("network", "temperature", "lates_none_1", "lates_shift_1", "lates_jitter_1")
CLEAN = ("nll", "ece", "ece_floor", "accuracy")
BOUND = 0.02
"""On the difference in NLL."""


def again(measured: Sequence[Measured]) -> Table:
    pairs = [
        (first, second)
        for second in measured
        if second.cell.recipe == AGAIN
        for first in trained(measured, second.dataset, second.cell.network)
        if first.cell.trained_alike == second.cell.trained_alike
    ]
    header = ("data set", "network", "method", "run", "seed", *titles(CLEAN), "NLL, corrupted")
    rows = [row for first, second in pairs for method in METHODS for row in _side_by_side(first, second, method)]
    note = f"{FLOOR} Corrupted: the mean over {len(NAMES)} corruptions at five severities. "
    note += f"Two runs should agree within {BOUND:g} in NLL"
    if pairs:
        clean, corrupted = (max(_apart(*pair, sets) for pair in pairs) for sets in (CLEAN_SET, CORRUPTED))
        note += f"; at most, they differ by {number(clean)}, and by {number(corrupted)} in the mean over corrupted sets"
    nothing = (ABSENT, ABSENT, NOT_RUN, *[ABSENT] * (len(header) - 3))
    return Table(
        AGAIN, "One network run twice from scratch", header, tuple(rows) or (nothing,), f"{note}.", text_columns=4
    )


def _side_by_side(first: Measured, second: Measured, method: str) -> list[tuple[str, ...]]:
    def values(run: Measured) -> list[float]:
        return [*(run.mean(method, metric) for metric in CLEAN), run.mean(method, "nll", CORRUPTED)]

    where = (*place(first.dataset, first.cell.network), method_title(method))
    seed = str(first.cell.seed)
    apart = [signed(new - old, 4) for old, new in zip(values(first), values(second), strict=True)]
    return [
        (*where, "first", seed, *map(number, values(first))),
        (*where, "again", seed, *map(number, values(second))),
        (*where, "difference", seed, *apart),
    ]


def _apart(first: Measured, second: Measured, sets: Sequence[str]) -> float:
    return max(abs(second.mean(method, "nll", sets) - first.mean(method, "nll", sets)) for method in METHODS)
