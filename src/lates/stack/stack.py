"""The stack on cached logits: what may be chosen, checked, and fitted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import torch

from lates.runtime import Array, check_integer
from lates.settings import DEFAULT
from lates.stack.members import MemberRows, Reduce
from lates.stack.optimum import fit_weights
from lates.stack.record import Stack
from lates.stack.rescaling import fit_expecting_shift


def fit_stack(
    members: Array | Sequence[Array] | Mapping[str, Array],
    labels: Array,
    *,
    loss: str = "nll",
    prior: float = DEFAULT.prior,
    regularise: float = 0.0,
    solver: Literal["exact", "sgd"] = "exact",
    seed: int = 0,
    reduce: Reduce | None = None,
    passes: int = 1,
    row_weights: Array | None = None,
    expect_shift: bool = False,
) -> Stack:
    """Fit the weights of members on hold-out labels [n].

    members     logits as one array [n, classes, members], a sequence of [n, classes] or a mapping name -> [n, classes];
                the head is the last. Logs of probabilities are logits; all must be finite. Nothing of their size is copied,
                but for the rows that remain where `row_weights` or outliers leave some out.
    loss        "nll", "brier" or "soft_ece".
    prior       how strongly few rows keep the weights at the network as it is, in wrong rows (see `Settings`). 0: not at all,
                and neither is a row left out, nor are probes dropped where they make the hold-out's accuracy clearly worse.
    regularise  c of the penalty (c / sqrt(n)) / 2 · ||beta||², n the number of distinct inputs.
    solver      "exact": the optimum of the log-loss; for "brier" and "soft_ece", which are not convex, a descent from there
                that never ends worse ("soft_ece": and lets the log-loss rise by at most 1 %). "sgd", the paper's: projected
                SGD from (0, …, 0, 1), batch 128, rate 0.005, 50 epochs, shuffled by `seed`.
    reduce      sums a tensor over all processes, where each passes its shard of the rows; the exact solver only.
    passes      how many rows each input has, such as views of it.
    row_weights how much each row counts [n], at least 0; only their ratios matter. Outliers are found, predictions and n are
                counted, without them. The exact solver only.
    expect_shift    the rows are the hold-out, then changed copies of it (`passes` in all): fitted to the first pass; all
                weights are then multiplied by the number, at most 1, that is best on all passes, as `calibrate` does.
    """
    if row_weights is not None and (solver == "sgd" or reduce is not None):
        raise ValueError('row_weights are for solver="exact" in one process; neither solver="sgd" nor reduce takes them.')
    if row_weights is not None and expect_shift:
        raise ValueError("expect_shift=True scales by copies of the rows; pass it or row_weights, not both.")
    if solver == "sgd" and reduce is not None:
        raise ValueError('solver="sgd" is for one process and takes no reduce; use solver="exact".')
    check_integer(passes, "passes", least=2 if expect_shift else 1)
    settings = replace(DEFAULT, prior=prior, regularise=regularise, solver=solver)
    rows = MemberRows.of([members], labels, passes=passes, reduce=reduce, row_weights=row_weights)
    copies = rows.labels[: len(labels) // passes].repeat(passes)
    if len(labels) % passes or (expect_shift and not torch.equal(copies, rows.labels)):
        raise ValueError(f"passes={passes} of {len(labels)} rows: expected the same inputs and labels in each, in one order.")
    return (fit_expecting_shift if expect_shift else fit_weights)(rows, loss, settings, seed)
