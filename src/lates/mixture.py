"""The mean of several predictions: weights for the samples of MC dropout, or for the models of an ensemble.

The prediction is the mean over samples s of softmax(R_s beta_s). Weights fitted to the samples one by one, or pooled,
leave that mean underconfident, for averaging flattens; so they only start a descent on the log-loss of the mean itself,

    F = mean_i -log( (1/S) sum_s p_sy ),    log p_sy = -logsumexp_c (e_s beta_s)_c    (e: excess over the label),
    dF/dbeta_s = mean_i r_is E_{p_is}[e_s],     r_is = p_sy / sum_t p_ty,

which is not convex.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lates.holdout import Holdout, Members, Reduce, combined, excess_chunks, in_this_process, rows_per_chunk
from lates.newton import descend
from lates.objective import CAP
from lates.stack import Stack, check_members, check_regularise, default_names, fit_holdout


@dataclass(frozen=True, eq=False)
class MeanFit:
    """Weights of the samples (one vector, where they share it), and the hold-out's log-loss of the mean prediction."""

    weights: tuple[Tensor, ...]
    nll: float
    nll_at_start: float
    residual: float
    steps: int


def fit_pooled(
    samples: Sequence[Members], labels: Tensor, *, regularise: float = 0.0, reduce: Reduce | None = None
) -> Stack:
    """One stack for the rows of all samples together, each a sequence of [n, classes] with the same labels [n].

    This is `fit_stack` on samples·n rows, without copying them; n in the penalty (c / sqrt(n)) / 2 · ||beta||² stays n.
    Where each process passes its own rows, `reduce` sums a tensor over all processes.
    """
    check_regularise(regularise)
    checked, labels = _check_samples(samples, labels, reduce)
    if len({len(members) for members in checked}) > 1:
        raise ValueError(f"Samples have {_counts(checked)} members; to share weights they need the same members.")
    holdout = Holdout(tuple((members, labels) for members in checked), reduce or in_this_process)
    return fit_holdout(holdout, default_names(len(checked[0])), regularise=regularise)


def refine_mean(
    samples: Sequence[Members],
    labels: Tensor,
    start: Sequence[Tensor],
    *,
    shared: bool,
    regularise: float = 0.0,
    reduce: Reduce | None = None,
) -> MeanFit:
    """Lower the log-loss of the mean of softmax(R_s beta_s) over samples s, from `start`; never ends above it.

    samples     one sequence of [n, classes] tensors for each sample; ensembles may differ in their numbers of members
    start       `shared`: one weight vector [members] for all samples (MC dropout); otherwise one for each (ensembles)
    regularise  c of the penalty (c / sqrt(n)) / 2 · mean_s ||beta_s||²
    reduce      sums a tensor over all processes, where each passes its own rows
    """
    check_regularise(regularise)
    checked, labels = _check_samples(samples, labels, reduce)
    sizes = [len(members) for members in checked]
    expected = sizes[:1] if shared else sizes
    if [len(weights) for weights in start] != expected or (shared and len(set(sizes)) > 1):
        raise ValueError(
            f"start has weight vectors of lengths {[len(weights) for weights in start]}, the samples have "
            f"{_counts(checked)} members; expected {'one vector for all' if shared else 'one vector for each sample'}."
        )
    groups = [checked] if shared else [[members] for members in checked]
    holdouts = [Holdout(tuple((members, labels) for members in group), reduce or in_this_process) for group in groups]
    scales = torch.cat([holdout.deviations() for holdout in holdouts])
    scales = torch.where(scales > 0, scales, 1.0)
    rows = holdouts[0].rows() / len(holdouts[0].parts)
    penalty = regularise / math.sqrt(rows) / len(start)

    def of_each_sample(point: Tensor) -> list[Tensor]:
        vectors = (point / scales).split(expected)
        return list(vectors) * len(checked) if shared else list(vectors)

    def value_and_gradient(point: Tensor) -> tuple[float, Tensor]:
        value, gradients = mean_log_loss(checked, labels, of_each_sample(point), reduce)
        gradient = torch.stack(gradients).sum(dim=0) if shared else torch.cat(gradients)
        weights = point / scales
        return value + penalty / 2 * float(weights @ weights), (gradient + penalty * weights) / scales

    first = torch.cat([weights.detach().to("cpu", torch.float64) for weights in start]) * scales
    end = descend(value_and_gradient, first, first.clamp(min=CAP))
    return MeanFit(
        weights=(end.point / scales).split(expected),
        nll=mean_log_loss(checked, labels, of_each_sample(end.point), reduce)[0],
        nll_at_start=mean_log_loss(checked, labels, of_each_sample(first), reduce)[0],
        residual=end.residual,
        steps=end.steps,
    )


def mean_log_loss(
    samples: Sequence[Members], labels: Tensor, weights: Sequence[Tensor], reduce: Reduce | None = None
) -> tuple[float, list[Tensor]]:
    """The log-loss of the mean prediction, and its gradient in each sample's weights, in one pass over the rows."""
    everybody = [member for members in samples for member in members]
    rows = rows_per_chunk(everybody, 2 * len(everybody))
    value, gradients = 0.0, [torch.zeros(len(vector), dtype=torch.float64) for vector in weights]
    for chunks in zip(*(excess_chunks(members, labels, rows) for members in samples), strict=True):
        log_label, means = [], []
        for chunk, vector in zip(chunks, weights, strict=True):
            logits, _ = combined(chunk, vector)
            log_normaliser = logits.logsumexp(dim=1, keepdim=True)
            log_label.append(-log_normaliser[:, 0].cpu())
            means.append((chunk[0] * (logits - log_normaliser).exp_()).sum(dim=2).cpu())
        scores = torch.stack(log_label)
        value += float((math.log(len(samples)) - scores.logsumexp(dim=0)).sum())
        for gradient, mean, responsibility in zip(gradients, means, scores.softmax(dim=0), strict=True):
            gradient += mean @ responsibility
    packed = torch.cat([torch.tensor([len(labels), value], dtype=torch.float64), *gradients])
    rows, total, *_ = sums = (reduce or in_this_process)(packed)
    return float(total / rows), list((sums[2:] / rows).split([len(vector) for vector in weights]))


def _check_samples(samples: Sequence[Members], labels: Tensor, reduce: Reduce | None) -> tuple[list[Members], Tensor]:
    if not samples:
        raise ValueError("There are no samples; expected at least one, a sequence of members [n, classes].")
    checked: list[Members] = []
    for members in samples:
        _, logits, labels = check_members(members, labels, least_rows=0 if reduce else 1)
        if checked and logits[-1].shape != checked[0][-1].shape:
            raise ValueError(
                f"Sample {len(checked)} has logits of shape {list(logits[-1].shape)}, sample 0 of "
                f"{list(checked[0][-1].shape)}; samples are predictions for the same rows and classes."
            )
        checked.append(logits)
    return checked, labels


def _counts(samples: Sequence[Members]) -> str:
    return ", ".join(str(len(members)) for members in samples)
