"""Bootstrap intervals of all methods' metrics at once, the same that `lates.metrics.bootstrap` gives one by one.

A draw of n rows with replacement is a vector of counts w [n]. Accuracy, log-loss and Brier score are then w · values / n, and
the ECE, whose bins do not move, is sum_b |w · residuals_b| / n with residuals_b = (correct - confidence) inside bin b: one
product of counts [draws, n] with columns [n, k] serves every method and metric, and pairs all differences.

The area under the risk–coverage curve needs the order of rows too. Sort by falling confidence and let tie j hold w_j rows, of
which e_j are wrong, after N rows and E errors; r = e_j / w_j. Its rows k = N+1 … N+w_j have risk (E + (k - N) r) / k, so they
add (E - N r)(H(N + w_j) - H(N)) + r w_j, where H(k) = 1 + 1/2 + … + 1/k.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from lates.metrics.calibration import BINS, assign_bins, bin_edges
from lates.metrics.intervals import Interval, centred_interval
from lates.metrics.rows import Rows, describe_rows
from lates.report.predictions import Predictions

MEANS = ("accuracy", "nll", "brier")
METRICS = (*MEANS, "ece", "aurc")
CONFIDENCE = 0.95
MOST_DRAWS, FEWEST_DRAWS = 1000, 200
WORK = 10**7  # counts drawn in all: a thousand draws of 10,000 rows
CHUNK = 2**20  # counts held at once: 8 MiB

Intervals = dict[str, Interval]
"""metric or member -> interval"""


def draws_for(rows: int) -> int:
    """A thousand where that is a matter of a second, fewer for many rows, whose quantiles are the steadier."""
    return min(MOST_DRAWS, max(FEWEST_DRAWS, WORK // rows))


def resample(predictions: Predictions, seed: int) -> tuple[dict[str, Intervals], dict[str, Intervals], Intervals]:
    """Per method its metrics; per method but the last, the last one minus it, paired; per member its accuracy."""
    draws = draws_for(predictions.rows)
    rows = {method: describe_rows(logits, predictions.labels) for method, logits in predictions.logits.items()}
    right = torch.stack(list(predictions.right.values()), dim=1).double()
    whole = torch.ones(1, predictions.rows, dtype=torch.float64)
    parts = [_measure(counts, rows, right) for counts in (whole, *_counts(predictions.rows, draws, seed))]
    value, *_ = parts
    drawn = {key: torch.cat([part[key] for part in parts[1:]]) for key in value}

    def interval(found: Tensor, over_draws: Tensor) -> Interval:
        return centred_interval(float(found), over_draws, CONFIDENCE)

    *others, last = rows
    metrics = list(METRICS)
    measured = {m: {k: interval(value[m, k], drawn[m, k]) for k in metrics} for m in rows}
    differences = {
        m: {k: interval(value[last, k] - value[m, k], drawn[last, k] - drawn[m, k]) for k in metrics} for m in others
    }
    members = {
        name: interval(value["members", str(i)], drawn["members", str(i)]) for i, name in enumerate(predictions.right)
    }
    return measured, differences, members


def _measure(counts: Tensor, rows: Mapping[str, Rows], right: Tensor) -> dict[tuple[str, str], Tensor]:
    """(method, metric) -> its value on each draw, for counts [draws, n]; ("members", place) -> a member's accuracy."""
    n = counts.shape[1]
    found: dict[tuple[str, str], Tensor] = {}
    for method, own in rows.items():
        means = counts @ torch.stack([own.correct, own.nll, own.brier], dim=1) / n
        found |= {(method, metric): means[:, i] for i, metric in enumerate(MEANS)}
        inside = torch.nn.functional.one_hot(assign_bins(own.confidence, _edges(own)), BINS).double()
        found[method, "ece"] = (counts @ (inside * (own.correct - own.confidence)[:, None])).abs().sum(1) / n
        found[method, "aurc"] = _aurc(counts, own)
    members = counts @ right / n
    return found | {("members", str(i)): members[:, i] for i in range(right.shape[1])}


def _edges(rows: Rows) -> Tensor:
    return bin_edges(rows.confidence, BINS, "width")


def _aurc(counts: Tensor, rows: Rows) -> Tensor:
    n = counts.shape[1]
    confidence, order = rows.confidence.sort(descending=True)
    _, sizes = confidence.unique_consecutive(return_counts=True)
    ends = sizes.cumsum(0) - 1
    taken = counts[:, order]
    N, E = taken.cumsum(1), (taken * (1 - rows.correct[order])).cumsum(1)
    if len(ends) < n:
        N, E = N[:, ends], E[:, ends]
    before, wrong_before = _shift(N), _shift(E)
    size = N - before
    r = (E - wrong_before) / size.clamp(min=1)
    H = torch.cat([torch.zeros(1, dtype=torch.float64), (1 / torch.arange(1, n + 1, dtype=torch.float64)).cumsum(0)])
    harmonic = H[N.long()]
    steps = harmonic - _shift(harmonic)
    return ((wrong_before - before * r) * steps + r * size).sum(1) / n


def _shift(running: Tensor) -> Tensor:
    """Running sums [draws, k] one place to the right, beginning with 0."""
    return torch.nn.functional.pad(running[:, :-1], (1, 0))


def _counts(n: int, draws: int, seed: int) -> Iterator[Tensor]:
    """How often each row is drawn [some draws, n], from the same stream of indices as `lates.metrics.bootstrap`."""
    generator = torch.Generator().manual_seed(seed)
    for block in torch.arange(draws).split(max(1, CHUNK // n)):
        drawn = [torch.bincount(torch.randint(n, (n,), generator=generator), minlength=n) for _ in block]
        yield torch.stack(drawn).double()
