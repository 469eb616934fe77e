"""A network run again from scratch: how far apart two runs of the same thing lie."""

from collections.abc import Sequence

from experiments.corruptions import NAMES
from experiments.results import AGAIN
from experiments.summaries import CLEAN_SET, CORRUPTED, Measured, method_title, trained
from experiments.tables.markdown import ABSENT, NOT_RUN, Table, number, signed
from experiments.tables.measured import FLOOR, commit_of, place, titles

SHOWN = ("network", "temperature", "lates_none_1", "lates_shift_1", "lates_jitter_1")
CLEAN_METRICS = ("nll", "ece", "ece_floor", "accuracy")
BOUND = 0.02
"""On the difference in NLL."""
UNLIKE = (
    "The two runs may be of different commits, and their float32 matrix products of different precision: highest is float32, "
    "high TensorFloat-32; without an entry a run on a GPU was high before ec3f453, highest from there on."
)


def again(measured: Sequence[Measured]) -> Table:
    pairs = [
        (first, second)
        for second in measured
        if second.cell.recipe == AGAIN
        for first in trained(measured, second.dataset, second.cell.network)
        if first.cell.trained_alike == second.cell.trained_alike
    ]
    where = ("data set", "network", "method", "run", "commit", "precision")
    header = (*where, "seed", *titles(CLEAN_METRICS), "NLL, corrupted")
    rows = [row for first, second in pairs for method in SHOWN for row in _side_by_side(first, second, method)]
    note = f"{FLOOR} Corrupted: the mean over {len(NAMES)} corruptions at five severities. {UNLIKE} "
    note += f"They should agree within {BOUND:g} in NLL on the clean test set, for each of: "
    note += "; ".join(map(method_title, SHOWN))
    if pairs:
        clean, corrupted = (max(_apart(*pair, sets) for pair in pairs) for sets in (CLEAN_SET, CORRUPTED))
        note += f". At most, they differ by {number(clean)}, and by {number(corrupted)} in the mean over corrupted sets"
    nothing = (ABSENT, ABSENT, NOT_RUN, *[ABSENT] * (len(header) - 3))
    title = "One network run twice from scratch"
    return Table(AGAIN, title, header, tuple(rows) or (nothing,), f"{note}.", text_columns=len(where))


def _side_by_side(first: Measured, second: Measured, method: str) -> list[tuple[str, ...]]:
    def values(run: Measured) -> list[float]:
        return [*(run.mean(method, metric) for metric in CLEAN_METRICS), run.mean(method, "nll", CORRUPTED)]

    where = (*place(first.dataset, first.cell.network), method_title(method))
    seed = str(first.cell.seed)
    apart = [signed(new - old, 4) for old, new in zip(values(first), values(second), strict=True)]
    return [
        (*where, "first", commit_of(first), _precision_of(first), seed, *map(number, values(first))),
        (*where, "again", commit_of(second), _precision_of(second), seed, *map(number, values(second))),
        (*where, "difference", ABSENT, ABSENT, seed, *apart),
    ]


def _precision_of(run: Measured) -> str:
    return run.facts.get("settings", {}).get("matmul_precision", ABSENT)


def _apart(first: Measured, second: Measured, sets: Sequence[str]) -> float:
    return max(abs(second.mean(method, "nll", sets) - first.mean(method, "nll", sets)) for method in SHOWN)
