"""Tables of scores: in and out of distribution, where a gain comes from, the paper's numbers beside ours, two runs."""

from collections.abc import Callable, Mapping, Sequence

from experiments.data.corruptions import LIKE_JITTER, NAMES, UNLIKE_JITTER
from experiments.evaluation.dropout import OFF, ON, SAMPLES
from experiments.recipes import AGAIN
from experiments.reporting import paper
from experiments.reporting.names import DATASET_TITLES, HEADLINE, METRIC_TITLES, NETWORK_TITLES, method_title
from experiments.reporting.summaries import CLEAN_SET, CORRUPTED, Measured, mean_over_networks, sets_of, spread, trained
from experiments.reporting.tables.markdown import ABSENT, NOT_RUN, Table, merge_missing, number, signed, with_deviation

Row = tuple[str, ...]

FLOORED = ("ece", "ece_floor", "classwise_ece", "nll", "brier", "accuracy", "auc", "aurc")
IN_DISTRIBUTION = ("network", "temperature", "lates_paper", "lates_none_1", "lates_shift_1", "lates_jitter_1")
OUT_OF_DISTRIBUTION = ("network", "temperature", "temperature_jittered_holdout", *IN_DISTRIBUTION[2:])
SEEDS = "Mean ± standard deviation over seeds."
FLOOR = "Floor: the ECE that perfect calibration would measure with these confidences."
LATES_IS = "LATES is solved exactly, within 1 % of the network's parameters."


def titles(metrics: Sequence[str]) -> Row:
    return tuple(METRIC_TITLES[metric] for metric in metrics)


def place(dataset: str, network: str) -> tuple[str, str]:
    return DATASET_TITLES[dataset], NETWORK_TITLES.get(network, network)


def commit_of(run: Measured) -> str:
    return str(run.facts.get("commit", ABSENT))[:7]


def network_rows(
    measured: Sequence[Measured],
    methods: Sequence[str],
    width: int,
    values: Callable[[Sequence[Measured], str], Sequence[str]],
) -> tuple[Row, ...]:
    """Data set, network, method, and of (cells of an architecture, method) the seeds and `width` values; or "not run"."""
    rows: list[Row] = []
    for dataset in paper.DATASETS:
        for network in paper.networks_of(dataset):
            where, cells = place(dataset, network), trained(measured, dataset, network)
            if cells:
                rows += [(*where, method_title(each), *values(cells, each)) for each in methods]
            else:
                rows.append((*where, NOT_RUN, "0", *[ABSENT] * width))
    return tuple(rows)


def _scores(
    name: str, title: str, measured: Sequence[Measured], methods: Sequence[str], sets: Sequence[str], note: str
) -> Table:
    def values(cells: Sequence[Measured], method: str) -> list[str]:
        scores = [spread(cell.mean(method, metric, sets) for cell in cells) for metric in FLOORED]
        return [str(scores[0].count), *map(with_deviation, scores)]

    header = ("data set", "network", "method", "seeds", *titles(FLOORED))
    return Table(name, title, header, network_rows(measured, methods, len(FLOORED), values), note, text_columns=3)


def in_distribution(measured: Sequence[Measured]) -> Table:
    note = f"{SEEDS} {FLOOR} {LATES_IS}"
    return _scores("in_distribution", "Clean test set", measured, IN_DISTRIBUTION, CLEAN_SET, note)


def out_of_distribution(measured: Sequence[Measured]) -> Table:
    title = f"Mean over {len(NAMES)} corruptions at five severities"
    note = f"{SEEDS} {LATES_IS} The fair rival of jittered views is temperature scaling on a jittered hold-out."
    return _scores("out_of_distribution", title, measured, OUT_OF_DISTRIBUTION, CORRUPTED, note)


def jitter(measured: Sequence[Measured]) -> Table:
    rows: list[Row] = []
    for dataset in paper.DATASETS:
        for group, corruptions in (("resemble", LIKE_JITTER), ("do not", UNLIKE_JITTER)):
            for method in OUT_OF_DISTRIBUTION:
                sets = sets_of(corruptions)
                values = [mean_over_networks(measured, dataset, method, metric, sets) for metric in FLOORED]
                rows.append((DATASET_TITLES[dataset], group, method_title(method), *map(number, values)))
    return Table(
        "jitter",
        "Corruptions that resemble the jitter of the views, and those that do not",
        ("data set", "corruptions", "method", *titles(FLOORED)),
        merge_missing(rows, shared=1, text_columns=3),
        f"Mean over seeds, then over the networks that were run. Resemble: {', '.join(LIKE_JITTER)}.",
        text_columns=3,
    )


# Where a gain comes from


CONTROLS = (
    "network", "temperature", "temperature_sgd", "temperature_tau_sgd", "temperature_brier",
    "temperature_jittered_holdout", "vector_scaling", "head_refitted_shift", "head_refitted_jitter", "lates_paper",
    "lates_none_1", "lates_shift_1", "lates_jitter_1", "lates_jittered_holdout", "lates_last_block",
)  # fmt: skip


def controls(measured: Sequence[Measured]) -> Table:
    clean = ("ece", "nll", "brier", "accuracy", "auc", "auc_best_temperature")
    corrupted = ("ece", "nll", "accuracy", "auc")
    columns = [(metric, CLEAN_SET) for metric in clean] + [(metric, CORRUPTED) for metric in corrupted]
    rows: list[Row] = []
    for dataset in paper.DATASETS:
        for method in CONTROLS:
            values = [mean_over_networks(measured, dataset, method, metric, sets) for metric, sets in columns]
            rows.append((DATASET_TITLES[dataset], method_title(method), *map(number, values)))
    return Table(
        "controls",
        "Where a gain comes from: every method",
        ("data set", "method", *titles(clean), *(f"{title}, corrupted" for title in titles(corrupted))),
        merge_missing(rows, shared=1, text_columns=2),
        "Mean over seeds, then over the networks that were run. AUC at best T: at the temperature "
        "that serves the method's AUC best, so that calibration alone earns little.",
        text_columns=2,
    )


AGAINST_SHIFT = (
    "temperature", "temperature_jittered_holdout", "temperature_both_holdouts", "head_refitted_jitter",
    "head_refitted_both_holdouts", "lates_jitter_1", "lates_jittered_holdout", "lates_both_holdouts",
)  # fmt: skip


def against_shift(measured: Sequence[Measured]) -> Table:
    """Network by network, not in means: some were evaluated before the last of these methods existed.

    A method that a network lacks has no row there.
    """
    metrics = ("ece", "nll", "brier", "accuracy", "auc")
    rows = tuple(
        (*place(each.cell.dataset, each.cell.network), str(each.cell.seed), method_title(method), *map(number, values))
        for each in measured
        if each.cell.recipe == "out_of_distribution" and AGAINST_SHIFT[-1] in each.methods
        for method in AGAINST_SHIFT
        if method in each.methods
        for values in [[each.mean(method, metric, sets) for sets in (CLEAN_SET, CORRUPTED) for metric in metrics]]
    )
    shown = titles(metrics)
    header = ("data set", "network", "seed", "method", *shown, *(f"{title}, corrupted" for title in shown))
    note = (
        "Plain and jittered: the hold-out as it is and one jittered view of each of its images, together. A method that is "
        "not named for a network was not measured on it."
    )
    return Table("against_shift", "Everything that has seen the jitter", header, rows, note, text_columns=4)


# The two tables of scores that the paper prints, its numbers beside ours


OURS = ("ece", "ece_floor", "nll", "brier_paper", "accuracy", "auc", "auc_keras")
PAPERS: Mapping[str, str] = {"brier_paper": "brier"}
"""What the paper calls it."""
BESIDE_PAPER = (
    f"{SEEDS} {FLOOR} Brier is the paper's, the standard one minus 1. The paper's AUC is probably Keras' "
    "approximation, which rewards calibration; ours is exact, with Keras' beside it."
)


def _paper_row(label: str, values: Mapping[str, str]) -> Row:
    return (label, "paper", "5", *(values.get(PAPERS.get(metric, metric), ABSENT) for metric in OURS))


def _our_row(label: str, cells: Sequence[Measured], method: str) -> Row:
    scores = [spread(cell.mean(method, metric) for cell in cells) for metric in OURS]
    values = map(with_deviation, scores) if cells else [ABSENT] * len(OURS)
    return (label, "ours" if cells else NOT_RUN, str(scores[0].count), *values)


def imagenet(measured: Sequence[Measured]) -> Table:
    rows = [_paper_row(method_title(method), values) for method, values in paper.IMAGENET.items()]
    cells = trained(measured, "imagenet", "resnet50")
    rows += [_our_row(method_title(method), cells, method) for method in ("temperature_sgd", *HEADLINE)]
    header = ("method", "source", "seeds", *titles(OURS))
    return Table("imagenet", "ResNet50 on ImageNet, clean test set", header, tuple(rows), BESIDE_PAPER, text_columns=2)


def mc_title(method: str) -> str:
    """Marks the methods that are measured with dropout off."""
    return f"dropout off: {method_title(method)}" if method in OFF else method_title(method)


def mc_dropout(measured: Sequence[Measured]) -> Table:
    rows: list[Row] = []
    for (dataset, rate), printed in paper.MC_DROPOUT.items():
        cells = trained(measured, dataset, "wide_resnet_28_10", dropout=rate)
        where = (DATASET_TITLES[dataset], f"{rate:g}")
        rows += [(*where, *_paper_row(label, values)) for label, values in printed.items()]
        rows += [(*where, *_our_row(mc_title(method), cells, method)) for method in (*OFF, *ON)]
    note = (
        f"{BESIDE_PAPER} Ours: the mean of {SAMPLES} forward passes, with dropout off one; trained on flips and crops, by the "
        "paper's text on flips alone. With dropout on, temperature and LATES (within 1 % of the parameters) are lowered from "
        "the optimum of all passes pooled to a minimum of the mean's log-loss, which is not convex; with dropout off they are "
        "solved exactly. The paper's LATES is fitted by SGD."
    )
    return Table(
        "mc_dropout",
        "WRN-28-10 with Monte Carlo dropout, clean test set",
        ("data set", "dropout", "method", "source", "seeds", *titles(OURS)),
        merge_missing(rows, shared=2, text_columns=5),
        note,
        text_columns=4,
    )


# A network run again from scratch


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
        for first in trained(measured, second.cell.dataset, second.cell.network)
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


def _side_by_side(first: Measured, second: Measured, method: str) -> list[Row]:
    where, seed = (*place(first.cell.dataset, first.cell.network), method_title(method)), str(first.cell.seed)
    rows: list[Row] = []
    scores: list[list[float]] = []
    for label, run in (("first", first), ("again", second)):
        precision = run.facts.get("settings", {}).get("matmul_precision", ABSENT)
        scores.append([*(run.mean(method, metric) for metric in CLEAN_METRICS), run.mean(method, "nll", CORRUPTED)])
        rows.append((*where, label, commit_of(run), precision, seed, *map(number, scores[-1])))
    apart = [signed(new - old, 4) for old, new in zip(*scores, strict=True)]
    return [*rows, (*where, "difference", ABSENT, ABSENT, seed, *apart)]


def _apart(first: Measured, second: Measured, sets: Sequence[str]) -> float:
    return max(abs(second.mean(method, "nll", sets) - first.mean(method, "nll", sets)) for method in SHOWN)
