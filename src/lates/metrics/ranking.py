"""Does a higher probability mean a likelier class? Areas under curves that only the order of values decides."""

import torch
from torch import Tensor

from lates.metrics.columns import Columns, ascending, over_columns
from lates.metrics.rows import Array, Rows, checked, describe_rows, exponential_, shifted_chunks, well_formed

CELL_SHIFT = 17  # keeps a float32's exponent and 6 bits of its mantissa
CELLS = (int(torch.tensor(1.0).view(torch.int32)) >> CELL_SHIFT) + 1
KERAS_THRESHOLDS = 200


def class_areas(columns: Columns) -> Tensor:
    """The area under each class's ROC curve [k], ties counted half; NaN without a positive or without a negative.

    Let a class have P positives u and N = n - P negatives, and let S = sum over all rows x of #{u < x} + #{u <= x}.
    The positives among themselves add P^2 to S, so AUC = 1 - (S - P^2) / (2 P N).

    Hardly any row needs a search for that. Non-negative floats are ordered like their bits, so the leading bits of the
    value rounded to float32 are a cell number that never decreases with the value. A row in a cell without positives
    has all positives of the lower cells below it, which a table tells. The other rows, D of each class, are sorted,
    and the positives are looked up in them: with l = #{x < u} and r = #{x <= u} counted in D, they add
    sum_u (2 |D| - l - r).
    """
    values, owners, rows = columns.probabilities, columns.owners, columns.rows
    k, n = values.shape
    base = torch.arange(k, dtype=torch.int32, device=values.device) * CELLS
    cells = (values.float().view(torch.int32) >> CELL_SHIFT).add_(base[:, None])
    held = torch.bincount(cells[owners, rows], minlength=k * CELLS).view(k, CELLS)
    table = torch.where(held > 0, -1, 2 * (held.cumsum(dim=1) - held)).int()
    found = table.flatten().index_select(0, cells.flatten()).view(k, n)
    shared = found < 0
    shared_counts = shared.sum(dim=1)
    S = found.sum(dim=1) + shared_counts  # each shared row was found as -1
    x = ascending(_rectangle(values[shared], shared_counts))
    u = _rectangle(values[owners, rows], columns.positives)
    below = torch.searchsorted(x, u) + torch.searchsorted(x, u, right=True)
    S += (2 * shared_counts[:, None] - below).masked_fill_(u.isinf(), 0).sum(dim=1)
    P = columns.positives.double()
    return 1 - (S - P**2) / (2 * P * (n - P))


def _rectangle(values: Tensor, counts: Tensor) -> Tensor:
    """Values of k successive classes, `counts` [k] of each, as rows of [k, largest count] that infinities fill up."""
    places = torch.arange(int(counts.max()), device=values.device) < counts[:, None]
    return values.new_full(places.shape, torch.inf).masked_scatter_(places, values)


def auc(logits: Array, labels: Array) -> float:
    """Area under the ROC curve, one class against the rest, averaged over classes (macro); exact, ties counted half.

    Ranks are those of the float64 softmax probabilities; raw logits would rank differently. Classes without a positive
    or without a negative row are left out; where none is left the result is NaN. With two classes both curves are the
    same but for rounding, and the area is the usual binary one, of the probability of class 1.
    """
    logits, labels = well_formed(logits, labels)
    areas = over_columns(class_areas, logits, labels)
    return float(areas[1] if len(areas) == 2 else areas.nanmean())


def auc_keras(logits: Array, labels: Array) -> float:
    """What `tf.keras.metrics.AUC()` approximates from one-hot labels and probabilities, presumably the paper's AUC.

    Every entry of the [n, classes] probabilities is one binary prediction, all classes pooled. The ROC curve is taken
    at the 200 thresholds t / 199 (predicted positive: strictly above; the first lies just below 0, the last just above
    1) and integrated by trapezia. Pooling compares probabilities of different rows and classes, and the thresholds are
    linear: unlike `auc`, it rewards calibration. NaN where there is only one class.
    """
    logits, labels = checked(logits, labels)
    steps = KERAS_THRESHOLDS - 1
    everything = torch.zeros(steps, dtype=torch.int64, device=logits.device)
    positive = torch.zeros_like(everything)
    for rows, _, shifted in shifted_chunks(logits):
        exponentials = exponential_(shifted)
        probabilities = exponentials / exponentials.sum(dim=1, keepdim=True)
        above = (probabilities * steps).ceil_().sub_(1).clamp_(min=0).long()  # the last threshold strictly below
        everything += torch.bincount(above.flatten(), minlength=steps)
        positive += torch.bincount(above.gather(1, labels[rows, None]).squeeze(1), minlength=steps)
    rates = [share_above(counts) for counts in (positive, everything - positive)]
    return float(torch.trapezoid(*rates))


def share_above(counts: Tensor) -> Tensor:
    """The share of values above each threshold [t + 1], rising from 0, for counts [t] by the last threshold below."""
    reached = torch.cat([counts.new_zeros(1), counts.flip(0).cumsum(0)])
    return reached / reached[-1].double()


def aurc_of_rows(rows: Rows) -> float:
    confidence, order = rows.confidence.sort(descending=True)
    _, block, sizes = confidence.unique_consecutive(return_inverse=True, return_counts=True)
    errors = torch.bincount(block, weights=1 - rows.correct[order]) / sizes
    risk = errors[block].cumsum(0) / torch.arange(1, len(rows) + 1)
    return float(risk.mean())


def aurc(logits: Array, labels: Array) -> float:
    """Area under the risk-coverage curve: the mean over k of the error rate among the k most confident rows.

    Confidence is the largest probability. Rows of equal confidence enter in random order, and the expectation over
    that order is taken: each counts as its tie's mean error, so the order of rows does not matter. 0 is best.
    """
    return aurc_of_rows(describe_rows(logits, labels))
