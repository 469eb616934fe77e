"""All that a report prints about one set of logits."""

from lates.metrics.calibration import BINS, classwise_ece, ece_floor, ece_of_rows
from lates.metrics.ranking import auc, aurc_of_rows
from lates.metrics.rows import Array, describe_rows
from lates.metrics.scores import mean_brier, mean_correct, mean_nll


def summary(logits: Array, labels: Array, bins: int = BINS) -> dict[str, float]:
    """The main metrics by name: right or wrong, proper scores, calibration with its floor, ranking.

    Calibration is binned in equal widths; see the function of each name for its definition.
    """
    rows = describe_rows(logits, labels)
    return {
        "accuracy": mean_correct(rows),
        "nll": mean_nll(rows),
        "brier": mean_brier(rows),
        "ece": ece_of_rows(rows, bins),
        "ece_floor": ece_floor(logits, bins),
        "classwise_ece": classwise_ece(logits, labels, bins),
        "auc": auc(logits, labels),
        "aurc": aurc_of_rows(rows),
    }
